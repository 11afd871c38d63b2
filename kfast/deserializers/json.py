"""``Json``: documents to typed columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Never

import numpy as np
from numpy.typing import NDArray

from kfast._base.spelling import did_you_mean
from kfast._native import json_decode, json_rescue
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.spans import array_over
from kfast.columns.text import StringColumn
from kfast.columns.unknown_fields import UnknownFields
from kfast.deserializers.framed import NONE, FramedDeserializer, plans_of_rows
from kfast.deserializers.typed import Piece
from kfast.errors import ConfigurationError
from kfast.schemas.inference import MAX_FIELDS, InferenceReport, infer
from kfast.schemas.json_plan import COERCIONS, JsonPlan, json_plan
from kfast.schemas.schema import Schema
from kfast.schemas.types import SchemaField

if TYPE_CHECKING:
    from kfast._native.buffers import OwnedBuffer

MAX_DEPTH: Final = 1024
_DEFAULTS: Final[dict[str, Any]] = {
    "framing": NONE,
    "coerce": (),
    "duplicates": "error",
    "allow_nan": False,
    "max_depth": 64,
}
_SHOWN_BYTES: Final = 24
_FIRST_BYTES: Final = {
    '"': "a string",
    "{": "an object",
    "[": "an array",
    "t": "a boolean",
    "f": "a boolean",
    "n": "null",
}


class Json(FramedDeserializer):
    """JSON documents (RFC 8259), one per value, to typed columns.

    Parameters
    ----------
    schema : dict, list, str, Field, Arrow schema, class or Schema
        The columns, and so the projection: what it does not name is skipped, and an ingest
        counts it. A dict of names and types, a type's name, Spark's DDL, anything with
        ``__arrow_c_schema__``, a dataclass, TypedDict, NamedTuple or msgspec.Struct.
    framing : {"none", "confluent", "apicurio"}
        How documents name their schema: not at all; by a header of the record, else by a zero byte
        and an id of 4 bytes in front of them; by a zero byte and a global id of 8. The id is noted
        in errors and needs no registry.
    coerce : sequence of str
        What is read besides: ``"number_text"`` takes ``"12"`` for 12, ``"integral_float"`` takes
        1.0 and 1e3 for integers, ``"stringify"`` numbers, booleans and objects as their text into
        string columns, ``"truncate_time"`` cuts off digits finer than a column's unit.
    duplicates : {"error", "last"}
        What a wanted key that stands twice in an object is: a bad row, or its last value.
    allow_nan : bool
        Whether ``NaN``, ``Infinity`` and ``-Infinity`` are numbers, as Python writes them.
    max_depth : int
        Most levels of objects and arrays, 1 to 1024.

    Raises
    ------
    ConfigurationError
        The schema cannot be, or an argument is none of the above.

    Notes
    -----
    Rows are records, always: a document ``null`` is a null row, as a record without a value is, and
    a value that is no such document is an error that names code, path and byte. Nothing is
    converted or rounded in silence. Immutable, picklable, comparable; any thread.

    Examples
    --------
    >>> trades = kfast.Json({"id": "int64", "ts": "timestamp[ms, UTC]", "price": "float64"})
    >>> trades.decode([b'{"id": 1, "ts": 1769860800123, "price": 9.5}']).values["price"]
    array([9.5])
    """

    __slots__ = ("_plan", "_report", "_root")

    format_name: ClassVar[str] = "JSON"

    def __init__(
        self,
        schema: object,
        *,
        framing: str = NONE,
        coerce: str | Iterable[str] = (),
        duplicates: str = "error",
        allow_nan: bool = False,
        max_depth: int = 64,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        root_schema = Schema(schema)
        names = (coerce,) if isinstance(coerce, str) else tuple(coerce)
        for name in names:
            _check_name("coerce", name, COERCIONS)
        self._set_framing(framing)
        _check_name("duplicates", duplicates, ("error", "last"))
        if not isinstance(allow_nan, bool):
            raise ConfigurationError(f"allow_nan is True or False, not {allow_nan!r}")
        if not isinstance(max_depth, int) or not 1 <= max_depth <= MAX_DEPTH:
            raise ConfigurationError(f"max_depth is 1 to {MAX_DEPTH}, not {max_depth!r}")
        options = {
            "framing": framing,
            "coerce": tuple(sorted(set(names))),
            "duplicates": duplicates,
            "allow_nan": allow_nan,
            "max_depth": max_depth,
        }
        changed = {name: value for name, value in options.items() if value != _DEFAULTS[name]}
        self._options = {"schema": root_schema, **changed}
        self._root = root_schema.root
        self._report: InferenceReport | None = None
        self._plan = json_plan(
            self._root,
            coerce=names,
            duplicates_last=duplicates == "last",
            allow_nan=allow_nan,
            max_depth=max_depth,
        )

    @classmethod
    def infer(cls, sample: Any, *, timestamps: bool = False, max_fields: int = MAX_FIELDS) -> Json:
        """Return a deserializer for documents like those of a sample.

        A tool for people: look at ``.schema``, which prints as a dict to paste, and ``.report``.

        Parameters
        ----------
        sample : batch, BytesColumn, sequence of bytes or text, or lines of text
            Some documents, at most a few thousand.
        timestamps : bool
            Whether strings that are all timestamps of RFC 3339 become timestamps.
        max_fields : int
            Most keys of an object; one with more is a map of strings.

        Raises
        ------
        DeserializationError
            No document of the sample can be read.
        """
        root, report = infer(_documents(sample), timestamps=timestamps, max_fields=max_fields)
        deserializer = cls(root)
        deserializer._report = report
        return deserializer

    @property
    def root(self) -> SchemaField:
        """The root of the schema."""
        return self._root

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns; none if documents are no objects."""
        return Schema(self._root).names

    @property
    def plan(self) -> JsonPlan:
        """The compiled schema; ``repr`` has one line per operation."""
        return self._plan

    @property
    def report(self) -> InferenceReport | None:
        """What the sample had, if the schema was inferred; not kept by pickles."""
        return self._report

    def _decode(
        self, column: BytesColumn, headers: HeadersColumn | None, mode: int, most_bytes: int
    ) -> Piece:
        framed: tuple[Any, ...] = ()
        if self._framing != NONE:
            wire = self._scan(column, headers)
            framed = plans_of_rows(wire, [0] * len(wire.keys))
        built, errors, unknown = json_decode.decode(
            self._plan, *column.spans, mode, most_bytes, *framed
        )
        return Piece(
            self._root, built, errors, None if unknown is None else self._unknown(*unknown)
        )

    def rescued(
        self, column: BytesColumn, headers: HeadersColumn | None, counts: NDArray[np.int32]
    ) -> StringColumn:
        """Return the fields without a column as documents; null for rows without such fields.

        ``counts`` are those of `UnknownFields`, of rows that were decoded without an error. An item
        of a list has its number as a key.
        """
        prefixes = None
        if self._framing != NONE:
            wire = self._scan(column, headers)
            prefixes = plans_of_rows(wire, [0] * len(wire.keys))[1]
        offsets, data = json_rescue.rescue(
            self._plan, *column.spans, np.ascontiguousarray(counts), prefixes
        )
        ends = array_over(offsets, np.int32)
        lengths = np.diff(ends)
        lengths[lengths == 0] = -1
        return StringColumn(BytesColumn(data, ends[:-1], lengths))

    def _unknown(self, counts: OwnedBuffer, names: list[tuple[int, bytes]]) -> UnknownFields:
        """Return the fields without a column, by their paths."""
        above = self._plan.paths
        texts = ((above[node], _printable(name)) for node, name in names)
        paths = tuple(f"{path}.{name}" if path else name for path, name in texts)
        return UnknownFields(array_over(counts, np.int32), paths)

    def _type_at(self, raw: bytes, position: int) -> str:
        return _FIRST_BYTES.get(chr(raw[position]), "a number") if position < len(raw) else ""

    def _shown_at(self, raw: bytes, position: int) -> str:
        """Return the text at a position, or the byte if it is none."""
        if position >= len(raw):
            return ""
        first = raw[position]
        if first < 0x20 or first >= 0x7F:
            return f"0x{first:02x}"
        end = position + 1
        stops = b'"' if first == ord('"') else b" \n\r\t,]}:"
        while end < len(raw) and raw[end] not in stops:
            end += 1
        end += first == ord('"')
        shown = raw[position : min(end, position + _SHOWN_BYTES)]
        text = _printable(shown)
        return f"{text}..." if end > position + _SHOWN_BYTES else text


def _printable(text: bytes) -> str:
    return "".join(c if c.isprintable() else "?" for c in text.decode("utf-8", "replace"))


def _check_name(argument: str, name: object, choices: Iterable[str]) -> None:
    names = list(choices)
    if isinstance(name, str) and name in names:
        return
    nearest = did_you_mean(name, names) if isinstance(name, str) else None
    asked = f'; did you mean "{nearest}"?' if nearest else ""
    raise ConfigurationError(
        f"{argument} has no {name!r}{asked}", hint=f"use one of: {', '.join(names)}"
    )


def _documents(sample: Any) -> Iterable[bytes | str | None]:
    """Return the documents of a sample."""
    if isinstance(sample, str):
        return [line for line in sample.splitlines() if line.strip()]
    if isinstance(sample, bytes | bytearray):
        return _documents(bytes(sample).decode("utf-8", "surrogateescape"))
    values = getattr(sample, "values", None)
    if callable(values):  # records of several partitions are a mapping
        return [document for records in values() for document in _documents(records)]
    column = sample if values is None else values
    if isinstance(column, StringColumn):
        column = column.raw
    if isinstance(column, BytesColumn):
        return column.to_list()
    if values is not None or not isinstance(column, Iterable):
        raise ConfigurationError(
            f"a sample has documents as bytes or text, not {type(column).__name__}",
            hint="read the topic without a value_deserializer",
        )
    return list(column)
