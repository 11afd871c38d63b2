"""The shared part of ``Json``, ``Avro`` and ``Protobuf``: from values to typed columns and errors.

Owns: running a compiled decoder over a column, joining its pieces, ``decode()`` from memory, and
the texts of errors. What a format adds are its options, its plan and the call of its decoder.

A deserializer is immutable but for what it has learned from a registry; any thread. It never
fetches: `prepare` returns the keys that are missing, whoever calls it has them looked up, and
`learn` takes the answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Never

import numpy as np
from numpy.typing import NDArray

from kfast._base.spelling import did_you_mean
from kfast._native.arrow_import import import_bytes
from kfast.columns.arrow import SchemaNode
from kfast.columns.bytes import BytesColumn
from kfast.columns.column_data import ColumnData
from kfast.columns.headers import HeadersColumn
from kfast.columns.record_errors import ERROR_ROW, ErrorKind, ErrorPart, RecordErrors, error_message
from kfast.columns.spans import read_only
from kfast.columns.text import StringColumn
from kfast.columns.typed import column_of
from kfast.columns.unknown_fields import UnknownFields
from kfast.deserializers.deserializer import (
    BadValue,
    DecodedColumn,
    FoundErrors,
    confluent_schema_id,
    describe,
)
from kfast.errors import ConfigurationError, DeserializationError
from kfast.schemas.schema import Schema
from kfast.schemas.types import Kind, SchemaField

if TYPE_CHECKING:
    from kfast._native.buffers import OwnedBuffer
    from kfast._native.builders import Built
    from kfast.registry.registered_schema import SchemaAnswers, SchemaKey, SchemaSource

MODE_RAISE: Final = 0
MODE_NULL: Final = 1
NO_LIMIT: Final = 1 << 62

_REASONS: Final = {
    ErrorKind.EMPTY: "has no bytes",
    ErrorKind.TRUNCATED: "ends too early",
    ErrorKind.TRAILING: "has bytes after its end",
    ErrorKind.SYNTAX: "is not {format}",
    ErrorKind.UTF8: "is not UTF-8",
    ErrorKind.TYPE: "is {actual}not {type}",
    ErrorKind.RANGE: "does not fit {type}",
    ErrorKind.MISSING: "is missing, and required",
    ErrorKind.DUPLICATE_KEY: "is there twice",
    ErrorKind.DEPTH: "is nested too deep",
    ErrorKind.MAGIC: "does not begin as its framing says",
    ErrorKind.UNKNOWN_SCHEMA: "has schema id {id}, which the registry does not have",
    ErrorKind.SCHEMA: "has schema id {id}, {misfit}",
    ErrorKind.RESOLUTION: "has schema id {id}, which cannot be read by the reader's schema",
    ErrorKind.ENUM: "has a symbol that the schema does not have",
    ErrorKind.UNION: "has a branch of a union that the schema does not have",
    ErrorKind.TOO_LARGE: "is too large for one row",
}
_ABOUT_SCHEMAS: Final = frozenset(
    {ErrorKind.UNKNOWN_SCHEMA, ErrorKind.SCHEMA, ErrorKind.RESOLUTION}
)
_ARROW_FORMATS: Final = frozenset({"z", "Z", "u", "U"})
_ON_ERROR: Final = ("raise", "null", "skip")


class Decoded(NamedTuple):
    """What ``decode()`` returns."""

    values: Any
    """The column; with ``skip`` without the rows that are in ``errors``."""
    errors: RecordErrors
    """What could not be read; ``offset`` is the number of the row."""


class Piece(NamedTuple):
    """What a decoder has made of the first rows of a column: of all, unless memory ran out."""

    root: SchemaField
    built: Built
    errors: OwnedBuffer | None
    unknown: UnknownFields | None = None


class TypedDeserializer:
    """A deserializer with a schema.

    A format has ``_options``, the arguments it was made with that are not the default, and
    overrides what is said to be the format's.
    """

    __slots__ = ("_options",)

    format_name: ClassVar[str] = ""
    is_native: ClassVar[bool] = True
    schema_misfit: ClassVar[str] = ""
    """What is said of a schema id whose schema is another one."""

    _options: Mapping[str, Any]

    def _refuse_unknown(self, arguments: Mapping[str, Never]) -> None:
        """Refuse arguments that there are not, with the nearest name."""
        defaults = type(self).__init__.__kwdefaults__ or {}
        for name in arguments:
            near = did_you_mean(name, defaults)
            asked = f"; did you mean {near}?" if near else ""
            raise ConfigurationError(
                f"{type(self).__name__} has no argument {name}{asked}",
                hint=f"one of {', '.join(defaults)}",
            )

    # --- the format's -----------------------------------------------------------------------------

    @property
    def root(self) -> SchemaField | None:
        """The root of the schema, None while it is not known."""
        raise NotImplementedError

    @property
    def registry(self) -> SchemaSource | None:
        """Where schemas are looked up."""
        return None

    @property
    def is_serialized(self) -> bool:
        """Whether schemas of a registry are wanted as descriptors."""
        return False

    @property
    def reader(self) -> str | None:
        """The version of a subject that gives the columns, such as ``latest``; None without one."""
        return None

    @property
    def needs_headers(self) -> bool:
        """Whether a header may name the schema of a value."""
        return False

    def prepare(
        self, _column: BytesColumn, _headers: HeadersColumn | None, /
    ) -> Collection[SchemaKey]:
        """Return the keys of schemas that are needed and not known yet."""
        return ()

    def learn(self, answers: SchemaAnswers) -> None:
        """Take what the registry has answered for keys of `prepare`."""

    def _decode(
        self, column: BytesColumn, headers: HeadersColumn | None, mode: int, most_bytes: int
    ) -> Piece:
        """Run the compiled decoder; bad rows are null, and in mode 0 the first one ends it."""
        raise NotImplementedError

    def _schema_ids(
        self, _column: BytesColumn, _headers: HeadersColumn | None, _rows: NDArray[np.int64]
    ) -> Sequence[int | str | None] | None:
        """Return the ids that the values of some rows name, None where values have none."""
        return None

    def _type_at(self, _raw: bytes, _position: int) -> str:
        """Return the type of the bytes at a position in words, such as ``a string``."""
        return ""

    def _shown_at(self, raw: bytes, position: int) -> str:
        """Return the bytes at which a value is bad."""
        return "0x" + raw[position : position + 4].hex(" ") if position < len(raw) else ""

    # --- what users see ---------------------------------------------------------------------------

    @property
    def options(self) -> Mapping[str, Any]:
        """The arguments it was made with that are not the default."""
        return self._options

    @property
    def schema(self) -> Schema | None:
        """The schema of the column; None while it is not known."""
        root = self.root
        return None if root is None else Schema(root)

    def decode(
        self, values: Any, *, headers: HeadersColumn | None = None, on_error: str = "raise"
    ) -> Decoded:
        """Decode values that are in memory.

        Parameters
        ----------
        values : sequence of bytes and None, BytesColumn, or Arrow array of binary or text
            Arrow arrays are read through the PyCapsule interface, in place.
        headers : HeadersColumn, optional
            Headers of the records, if they name the schemas.
        on_error : {"raise", "null", "skip"}
            What is done about values that cannot be read.

        Returns
        -------
        Decoded
            The column and what could not be read.

        Raises
        ------
        DeserializationError
            A value cannot be read and ``on_error`` is ``"raise"``; ``offset`` is its row.
        SchemaRegistryError
            A schema cannot be looked up.
        """
        if on_error not in _ON_ERROR:
            raise ConfigurationError(
                f'on_error is "raise", "null" or "skip", not {on_error!r}', hint='on_error="null"'
            )
        column = values_of(values)
        self.wait_for_schemas(column, headers)
        result = self.deserialize_column(column, headers, stop_at_first=on_error == "raise")
        errors = result.errors
        if errors is None:
            return Decoded(result.values, RecordErrors())
        if on_error == "raise":
            raise self._error(column, errors)
        rows = errors.rows["row"]
        error_part = ErrorPart(
            "",
            -1,
            "value",
            read_only(rows.copy()),
            read_only(np.full(len(rows), -1)),
            column.select(rows),
            errors.rows,
            errors.schema_ids,
            partial(describe, self, errors.root),
        )
        decoded = result.values
        if on_error == "skip":
            assert result.is_bad is not None
            decoded = decoded[~result.is_bad]
        return Decoded(decoded, RecordErrors([error_part], [len(rows)]))

    def wait_for_schemas(self, column: BytesColumn, headers: HeadersColumn | None) -> None:
        """Look up the schemas that are needed and not known, and wait for them.

        Raises
        ------
        SchemaRegistryError
            The registry cannot be reached, or refuses.
        """
        missing = self.prepare(column, headers)
        if missing:
            assert self.registry is not None  # where its keys come from
            self.learn(self.registry.wait_for(missing, is_serialized=self.is_serialized))

    def deserialize_column(
        self, column: BytesColumn, headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Decode all values, or those before the first bad one."""
        return self.decode_some(column, headers, stop_at_first=stop_at_first, most_bytes=NO_LIMIT)

    def decode_some(
        self,
        column: BytesColumn,
        headers: HeadersColumn | None,
        /,
        *,
        stop_at_first: bool,
        most_bytes: int,
    ) -> DecodedColumn:
        """Decode values until the column has taken about ``most_bytes``, at least one."""
        nodes: list[ColumnData] = []
        parts: list[NDArray[Any]] = []
        done = 0
        while True:
            rest = column[done:] if done else column
            piece = self._decode(
                rest,
                headers if headers is None or not done else headers.select(slice(done, None)),
                MODE_RAISE if stop_at_first else MODE_NULL,
                most_bytes,
            )
            node = ColumnData.of_built(piece.root, piece.built)
            if piece.unknown is not None:
                node.unknown = piece.unknown.select(slice(0, node.length))
            nodes.append(node)
            if piece.errors is not None:
                rows = np.frombuffer(piece.errors.view(), ERROR_ROW).copy()
                rows["row"] += done
                parts.append(rows)
            done += nodes[-1].length
            if done == len(column) or (stop_at_first and parts) or most_bytes < NO_LIMIT:
                break
        node = ColumnData.concat(nodes)
        values = column_of(node)
        if not parts:
            return DecodedColumn(values, node=node)
        rows = read_only(np.concatenate(parts))
        numbers = rows["row"]
        is_bad = np.zeros(max(done, int(numbers[-1]) + 1), np.bool_)
        is_bad[numbers] = True
        ids = self._schema_ids(column, headers, numbers)
        errors = FoundErrors(rows, ids, piece.root)
        return DecodedColumn(values, int(numbers[0]), read_only(is_bad), errors=errors, node=node)

    def explain(self, raw: bytes) -> BadValue:
        """Return why a value cannot be read."""
        column = BytesColumn.from_values([raw])
        errors = self.deserialize_column(column, None, stop_at_first=True).errors
        if errors is None:
            return BadValue.of("cannot be read", raw)
        ids = errors.schema_ids
        return self.explain_error(errors.root, raw, errors.rows[0], None if ids is None else ids[0])

    def explain_error(
        self, root: SchemaField | None, raw: bytes, error: Any, schema_id: int | str | None
    ) -> BadValue:
        """Return why a value cannot be read, by its row of `FoundErrors`."""
        kind, node, position = ErrorKind(error["code"]), int(error["node"]), int(error["position"])
        path, field = "", root
        if root is not None and node >= 0:
            path, field = list(root.nodes())[node]
            path = _indexed(path, error["indexes"][: error["depth"]].tolist())
        actual = self._type_at(raw, position) if kind is ErrorKind.TYPE else ""
        shape = _REASONS[kind]
        if schema_id is None and kind is ErrorKind.SCHEMA:
            shape = "has message indexes that cannot be"
        elif self.registry is None and kind is ErrorKind.UNKNOWN_SCHEMA:
            shape = "has schema id {id}, which no schema that was given has"
        reason = shape.format(
            format=self.format_name,
            actual=f"{actual}, " if actual else "",
            type=_type_name(field),
            id=schema_id,
            misfit=self.schema_misfit,
        )
        if kind not in _ABOUT_SCHEMAS and kind is not ErrorKind.EMPTY:
            shown = self._shown_at(raw, position)
            reason += f" (byte {position}: {shown})" if shown else f" (byte {position})"
        is_framed = self._options.get("framing", "none") != "none"
        bad = BadValue.of(reason, raw, is_number=is_framed)
        if not is_framed and confluent_schema_id(raw) is not None:
            bad = replace(bad, hint='framing="confluent" reads values with a schema id')
        return bad.detailed(kind.text, path, position)

    def _error(self, column: BytesColumn, errors: FoundErrors) -> DeserializationError:
        row = int(errors.rows["row"][0])
        raw = column[row]
        schema_id = None if errors.schema_ids is None else errors.schema_ids[0]
        bad = self.explain_error(errors.root, raw or b"", errors.rows[0], schema_id)
        return DeserializationError(
            error_message(f"row {row}", "value", bad),
            found=bad.found or None,
            hint='on_error="null" or "skip" reads the others',
            offset=row,
            column="value",
            value_bytes=raw,
            code=bad.code,
            path=bad.path,
            byte_position=bad.byte_position,
            schema_id=schema_id,
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, TypedDeserializer)
        return self._options == other._options

    def __hash__(self) -> int:
        return hash((type(self), tuple(self._options)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), dict(self._options))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._options.items())
        return f"{type(self).__name__}({options})"


def _restored(kind: type[TypedDeserializer], options: dict[str, Any]) -> TypedDeserializer:
    return kind(**options)


def values_of(values: Any) -> BytesColumn:
    """Return values from memory as a column.

    Raises
    ------
    ConfigurationError
        They are no sequence of bytes and None, and no Arrow array of binary or text.
    """
    if isinstance(values, BytesColumn):
        return values
    if isinstance(values, StringColumn):
        return values.raw
    if isinstance(values, bytes | bytearray | str | Mapping):
        raise ConfigurationError(
            f"decode() takes a sequence of values, not {type(values).__name__}",
            hint="decode([value]) for a single one",
        )
    if hasattr(values, "__arrow_c_array__"):
        return _of_arrow(values)
    sequence = list(values)
    for row, value in enumerate(sequence):
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise ConfigurationError(
                f"decode() takes bytes and None; row {row} is {type(value).__name__}",
                hint="encode text by .encode()",
            )
    return BytesColumn.from_values([None if v is None else bytes(v) for v in sequence])


def _of_arrow(values: Any) -> BytesColumn:
    schema, array = values.__arrow_c_array__()
    arrow_format = SchemaNode.read(schema).format
    if arrow_format not in _ARROW_FORMATS:
        raise ConfigurationError(
            f'decode() takes Arrow arrays of binary or string, not of format "{arrow_format}"',
            hint="cast it to binary",
        )
    return BytesColumn(*import_bytes(array, arrow_format.isupper()))


def _indexed(path: str, indexes: list[int]) -> str:
    """Return a path with the numbers of elements in it, ``lines[2].qty``."""
    for index in indexes:
        path = path.replace("[]", f"[{index}]", 1)
    return path


def _type_name(field: SchemaField | None) -> str:
    if field is None:
        return "what the schema says"
    kind = field.type.kind
    if kind in {Kind.STRUCT, Kind.LIST, Kind.MAP}:
        return f"a {kind.name.lower()}"
    return str(field.type)
