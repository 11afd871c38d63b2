"""``Debezium``: change events of JSON, Avro or Protobuf to typed columns of their envelope.

Owns the arguments, and the few values that a decoder of the format leaves as they are in the
message: decimals in base64, and texts that are times with a zone. Which columns an envelope has is
in ``kfast.schemas.debezium``; values are read by `Json`, `Avro` or `Protobuf`, whose errors and
registries these are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Never

import numpy as np
from numpy.typing import NDArray

from kfast._base.spelling import did_you_mean
from kfast.columns.bytes import BytesColumn
from kfast.columns.column_data import ColumnData
from kfast.columns.headers import HeadersColumn
from kfast.columns.record_errors import ERROR_ROW, ErrorKind
from kfast.columns.spans import read_only
from kfast.columns.typed import column_of
from kfast.deserializers.avro import Avro
from kfast.deserializers.deserializer import BadValue, DecodedColumn, FoundErrors
from kfast.deserializers.framed import NONE
from kfast.deserializers.json import Json
from kfast.deserializers.protobuf import Protobuf
from kfast.deserializers.typed import TypedDeserializer
from kfast.errors import ConfigurationError
from kfast.schemas.avro_text import AvroSchema, parse_avro
from kfast.schemas.debezium import (
    AFTER,
    BEFORE,
    DEFAULT_SOURCE,
    OPERATION,
    SENT_MS,
    SOURCE,
    TRANSACTION,
    ZONED,
    avro_with_logical_types,
    envelope_of,
    has_decimals,
    in_payload,
    is_connect,
    row_of,
    with_encoded_decimals,
    zoned_paths,
)
from kfast.schemas.schema import Schema
from kfast.schemas.types import DataType, Kind, SchemaField

if TYPE_CHECKING:
    from kfast.registry.registered_schema import (
        RegisteredSchema,
        SchemaAnswers,
        SchemaKey,
        SchemaSource,
    )

DECIMALS: Final = ("precise", "string", "double")
_BYTES_OF_DECIMAL: Final = 16
_NO_POSITION: Final = -1
_QUOTE: Final = ord('"')
_ZONED_TEXTS: Final = Json(SchemaField("", ZONED))


class Debezium(TypedDeserializer):
    """Change events of Debezium, as typed columns: ``op``, ``ts_ms``, ``before``, ``after``, ...

    Parameters
    ----------
    rows : schema, Avro or Protobuf
        Of JSON the columns of ``before`` and ``after``, in any form that `Json` takes; or the
        ``schema`` of a message, as ``JsonConverter`` of Kafka Connect writes it, read from JSON. Of
        the other formats the deserializer of the envelopes.
    payload : bool, optional
        Of JSON: values are ``{"schema": ..., "payload": ...}``, as with ``schemas.enable``.
        Default: whether ``rows`` is such a schema.
    decimals : {"precise", "string", "double"}, optional
        Of JSON: the connector's ``decimal.handling.mode``, that is whether decimals are bytes in
        base64, texts, or numbers (so also with ``decimal.format=NUMERIC`` of the converter). Has to
        be given for rows with decimals, unless the schema is one of Connect.
    source : sequence of str or mapping of str to type, optional
        Members of ``source``; of JSON those whose type is not known are given with it. Default: of
        JSON ``ts_ms``, ``db`` and ``table``, else all of them.
    transaction : bool
        Whether there is the column ``transaction``.
    envelope : bool
        False: keys and values are rows, without an envelope, with Connect's and Debezium's logical
        types: keys, and events that ``ExtractNewRecordState`` has flattened.
    framing : {"none", "confluent", "apicurio"}
        Of JSON, as in `Json`.

    Raises
    ------
    ConfigurationError
        The schema cannot be, or an argument is none of the above.

    Notes
    -----
    Values of Debezium's and Connect's logical types become dates, times, timestamps and decimals
    where the schema says which they are. Records without a value (tombstones) are null. Immutable,
    picklable, comparable; any thread.

    Examples
    --------
    >>> events = kfast.Debezium({"id": "int64", "name": "string"})
    >>> text = b'{"op": "c", "ts_ms": 1, "before": null, "after": {"id": 1, "name": "a"}}'
    >>> events.decode([text]).values["after"].to_list()
    [{'id': 1, 'name': 'a'}]
    """

    __slots__ = ("_inner", "_root")

    format_name: ClassVar[str] = "Debezium"

    def __init__(
        self,
        rows: object,
        *,
        payload: bool | None = None,
        decimals: str | None = None,
        source: Sequence[str] | Mapping[str, object] | None = None,
        transaction: bool = False,
        envelope: bool = True,
        framing: str = NONE,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        if decimals is not None and decimals not in DECIMALS:
            raise ConfigurationError(
                f"there are no decimals {decimals!r}", hint=f"one of {', '.join(DECIMALS)}"
            )
        options: dict[str, Any] = {
            "payload": payload,
            "decimals": decimals,
            "source": _frozen(source),
            "transaction": transaction or None,
            "envelope": None if envelope else False,
            "framing": None if framing == NONE else framing,
        }
        self._root: SchemaField | None = None
        if not envelope and (source is not None or transaction):
            raise ConfigurationError(
                "source and transaction are members of envelopes", hint="leave out envelope=False"
            )
        self._inner: Json | Avro | Protobuf
        if isinstance(rows, Avro | Protobuf):
            _check_only(rows, {name: options[name] for name in ("payload", "decimals", "framing")})
            paths = _paths(rows, source, has_transaction=transaction) if envelope else None
            self._inner = _with_types(rows, paths)
        else:
            row = row_of(rows, is_envelope=envelope)
            if decimals is None and not is_connect(rows) and has_decimals(row):
                raise ConfigurationError(
                    "decimals of JSON are bytes in base64, texts or numbers",
                    cause="the text 1250 may be both",
                    hint='decimals="precise", "string" or "double", as decimal.handling.mode of '
                    "the connector",
                )
            root = row
            if envelope:
                chosen = DEFAULT_SOURCE if source is None else source
                root = envelope_of(row, source=chosen, has_transaction=transaction)
            has_payload = is_connect(rows) if payload is None else payload
            self._root = in_payload(root) if has_payload else root
            is_precise = decimals in {None, "precise"}
            decoded = with_encoded_decimals(self._root) if is_precise else self._root
            self._inner = Json(decoded, framing=framing)
            if is_connect(rows):
                options["payload"] = True if payload is None else payload
                options["decimals"] = decimals or "precise"
            rows = Schema(row)
        self._options = {
            "rows": rows,
            **{name: value for name, value in options.items() if value is not None},
        }

    def key_deserializer(self, names: Sequence[str]) -> Debezium | None:
        """Return the deserializer of the keys of these records: some columns of the rows.

        None without a registry: the format of the keys does not follow from that of the values.

        Raises
        ------
        ConfigurationError
            Rows have no such column.
        """
        if isinstance(self._inner, Json):
            return Debezium(self._key_of_rows(names), **self._options_of_keys())
        if self._inner.registry is None:
            return None
        kind = Avro if isinstance(self._inner, Avro) else Protobuf
        keys = kind(registry=self._inner.registry, reader="latest")
        return Debezium(keys, envelope=False)

    def _key_of_rows(self, names: Sequence[str]) -> SchemaField:
        row: SchemaField = self._options["rows"].root
        columns = {field.name: field for field in row.type.fields}
        for name in names:
            if name not in columns:
                near = did_you_mean(name, columns)
                raise ConfigurationError(
                    f"the rows have no column {name}",
                    found=f"they have {', '.join(columns)}",
                    hint=f"did you mean {near}?" if near else "name columns of the rows",
                )
        fields = tuple(replace(columns[name], is_nullable=False) for name in names)
        return SchemaField("", DataType(Kind.STRUCT, fields=fields))

    def _options_of_keys(self) -> dict[str, Any]:
        kept = {"payload", "decimals", "framing"}
        shared = {name: value for name, value in self._options.items() if name in kept}
        return {**shared, "envelope": False}

    # --- the format's -----------------------------------------------------------------------------

    @property
    def root(self) -> SchemaField | None:
        """The root of the schema, None while it is not known."""
        if self._root is not None:
            return self._root
        inner = self._inner.root
        return None if inner is None else self._target(inner)

    @property
    def registry(self) -> SchemaSource | None:
        """Where schemas are looked up."""
        return self._inner.registry

    @property
    def reader(self) -> str | None:
        """The version of a subject that gives the columns; None without one."""
        return self._inner.reader

    @property
    def is_serialized(self) -> bool:
        """Whether schemas of a registry are wanted as descriptors."""
        return self._inner.is_serialized

    @property
    def needs_headers(self) -> bool:
        """Whether a header may name the schema of a value."""
        return self._inner.needs_headers

    def prepare(
        self, column: BytesColumn, headers: HeadersColumn | None, /
    ) -> Collection[SchemaKey]:
        """Return the keys of schemas that are needed and not known yet."""
        return self._inner.prepare(column, headers)

    def learn(self, answers: SchemaAnswers) -> None:
        """Take what the registry has answered for keys of `prepare`."""
        self._inner.learn(answers)

    def explain_error(
        self, root: SchemaField | None, raw: bytes, error: Any, schema_id: int | str | None
    ) -> BadValue:
        """Return why a value cannot be read, by its row of `FoundErrors`."""
        bad = self._inner.explain_error(root, raw, error, schema_id)
        if bad.byte_position == _NO_POSITION:  # of a conversion, which has no bytes of the message
            return replace(bad, reason=bad.reason.removesuffix(f" (byte {_NO_POSITION})"))
        if bad.path == OPERATION and bad.code == ErrorKind.MISSING.text:
            hint = "payload=True reads values that have schema and payload; flattened rows are Json"
            return replace(bad, hint=hint)
        return bad

    # --- decoding ---------------------------------------------------------------------------------

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
        decoded = self._inner.decode_some(
            column, headers, stop_at_first=stop_at_first, most_bytes=most_bytes
        )
        node = decoded.node
        assert node is not None  # decoders of columns
        if self._options.get("envelope", True):
            node.unknown = None  # members of envelopes that are left out are no columns of rows
        target = self._target(node.field)
        if target == node.field:
            return decoded
        converted, bad = _converted(node, target, 0)
        bad = [(number, rows[rows < len(column)]) for number, rows in bad]
        errors = _joined(decoded, target, bad)
        if errors is None:
            return DecodedColumn(column_of(converted), node=converted)
        rows = errors.rows["row"]
        is_bad = np.zeros(max(converted.length, int(rows[-1]) + 1), np.bool_)
        is_bad[rows] = True
        converted = converted.with_nulls(is_bad[: converted.length])
        return DecodedColumn(
            column_of(converted), int(rows[0]), read_only(is_bad), errors=errors, node=converted
        )

    def _target(self, field: SchemaField) -> SchemaField:
        """Return the columns that those of the decoder become."""
        if self._root is not None:
            return self._root
        if not isinstance(self._inner, _TypedAvro) or not self._inner.zoned:
            return field
        return _with_zoned(field, "", self._inner.zoned)


class _TypedAvro(Avro):
    """Avro whose schemas have Connect's names of logical types."""

    __slots__ = ("zoned",)

    def __init__(self, **options: Any) -> None:
        self.zoned: frozenset[str] = frozenset()
        for name in ("schema", "reader"):
            text = options.get(name)
            if isinstance(text, str) and text.lstrip().startswith(("{", "[")):
                options[name] = self._typed(text)
            elif isinstance(text, tuple):
                options[name] = tuple(map(self._typed, text))
        super().__init__(**options)

    def _typed(self, text: str) -> str:
        try:
            self.zoned |= zoned_paths(text)
            return avro_with_logical_types(text)
        except ValueError:
            return text  # no JSON: the parser of schemas says so

    def _read(self, _key: SchemaKey, schema: RegisteredSchema, /) -> AvroSchema:
        dependencies = [reference.schema.text for reference in schema.dependencies()]
        return parse_avro(
            self._typed(schema.text), list(map(avro_with_logical_types, dependencies))
        )


def _paths(
    deserializer: Avro | Protobuf,
    source: Sequence[str] | Mapping[str, object] | None,
    *,
    has_transaction: bool,
) -> list[str]:
    """Return the columns of envelopes that are wanted."""
    if deserializer.columns is not None:
        raise ConfigurationError(
            f"{type(deserializer).__name__} of envelopes has columns of its own",
            hint="leave out columns; source= says which members of source there are",
        )
    if isinstance(source, Mapping):
        raise ConfigurationError(
            "source: the schema of the envelopes has the types", hint="source=[NAME, NAME]"
        )
    paths = [OPERATION, SENT_MS, BEFORE, AFTER]
    paths += [SOURCE] if source is None else [f"{SOURCE}.{name}" for name in source]
    return [*paths, *([TRANSACTION] if has_transaction else ())]


def _with_types(deserializer: Avro | Protobuf, paths: list[str] | None) -> Avro | Protobuf:
    """Return a deserializer of a format that knows Connect's logical types; of some columns."""
    options: dict[str, Any] = dict(deserializer.options)
    if paths is not None:
        options["columns"] = paths
    return _TypedAvro(**options) if isinstance(deserializer, Avro) else Protobuf(**options)


def _check_only(deserializer: TypedDeserializer, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise ConfigurationError(
                f"{name} is for events of JSON, not of {deserializer.format_name}",
                hint="leave it out",
            )


def _frozen(source: Any) -> Any:
    if source is None or isinstance(source, Mapping):
        return source
    if isinstance(source, str) or not isinstance(source, Iterable):
        raise ConfigurationError(
            f"source is names of members, not {source!r}", hint='source=["ts_ms", "lsn"]'
        )
    return tuple(source)


def _with_zoned(field: SchemaField, path: str, zoned: frozenset[str]) -> SchemaField:
    """Return a field with times in place of the texts at some paths."""
    data_type = field.type
    if path in zoned and data_type.kind is Kind.STRING:
        return replace(field, type=ZONED)
    fields = []
    for child in data_type.fields:
        if data_type.kind is Kind.STRUCT:
            inner = f"{path}.{child.name}" if path else child.name
        else:
            inner = f"{path}[]" if data_type.kind is Kind.LIST else f"{path}{{{child.name}}}"
        fields.append(_with_zoned(child, inner, zoned))
    return replace(field, type=replace(data_type, fields=tuple(fields)))


# --- values that decoders leave as they are -------------------------------------------------------

_Bad = list[tuple[int, NDArray[np.int64]]]
"""Numbers of nodes, in preorder, and the rows that are bad there."""


def _converted(node: ColumnData, target: SchemaField, number: int) -> tuple[ColumnData, _Bad]:
    """Return a column in the types of a field, and what cannot be one."""
    if node.field == target:
        return node, []
    if node.field.type.kind is Kind.BINARY:
        return _decimals(node, target, number)
    if node.field.type.kind is Kind.STRING:
        return _times(node, target, number)
    children, bad = [], []
    inner = number + 1
    for child, field in zip(node.children, target.type.fields, strict=True):
        column, child_bad = _converted(child, field, inner)
        children.append(column)
        bad += child_bad
        inner += sum(1 for _ in field.nodes())
    if node.offsets is not None:  # from items to rows
        bad = [
            (at, np.unique(np.searchsorted(node.offsets, rows, side="right") - 1))
            for at, rows in bad
        ]
    return node.as_type(target, offsets=node.offsets, children=children), bad


def _decimals(node: ColumnData, target: SchemaField, number: int) -> tuple[ColumnData, _Bad]:
    """Return two's complement numbers of any length, the highest byte first, as decimals."""
    starts, lengths = node.starts_and_lengths
    raw = np.zeros((node.length, _BYTES_OF_DECIMAL), np.uint8)
    is_value = lengths > 0
    is_negative = np.zeros(node.length, np.bool_)
    is_negative[is_value] = node.data[starts[is_value]] >= 0x80
    raw[is_negative] = 0xFF
    for place in range(min(int(lengths.max(initial=0)), _BYTES_OF_DECIMAL)):
        rows = np.flatnonzero(lengths > place)
        raw[rows, place] = node.data[starts[rows] + lengths[rows] - 1 - place]
    words = raw.view("<u8").astype(np.uint64)
    is_bad = lengths > _BYTES_OF_DECIMAL
    is_bad |= (lengths == 0) & _present(node)
    is_bad |= _is_beyond(words, is_negative, target.type)
    words[is_bad] = 0
    data = read_only(_native_words(words).view("V16").reshape(-1))
    rows = np.flatnonzero(is_bad)
    return node.as_type(target, data=data), [(number, rows)] if len(rows) else []


def _present(node: ColumnData) -> NDArray[np.bool_]:
    return np.ones(node.length, np.bool_) if node.is_null is None else ~node.is_null


def _is_beyond(
    words: NDArray[np.uint64], is_negative: NDArray[np.bool_], data_type: DataType
) -> NDArray[np.bool_]:
    """Whether numbers of two words, the low one first, have more digits than a type."""
    low, high = words[:, 0].copy(), words[:, 1].copy()
    low[is_negative] = ~low[is_negative] + np.uint64(1)
    carry = is_negative & (low == 0)
    high[is_negative] = ~high[is_negative]
    high[carry] += np.uint64(1)
    limit = 10**data_type.precision
    top, bottom = np.uint64(limit >> 64), np.uint64(limit & (2**64 - 1))
    is_beyond: NDArray[np.bool_] = (high > top) | ((high == top) & (low >= bottom))
    return is_beyond


def _native_words(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    is_little = np.little_endian
    return np.ascontiguousarray(words if is_little else words[:, ::-1])


def _times(node: ColumnData, target: SchemaField, number: int) -> tuple[ColumnData, _Bad]:
    """Return texts as times with a zone, read as those of JSON documents are."""
    starts, lengths = node.starts_and_lengths
    sizes = np.maximum(lengths, 0).astype(np.int64)
    quoted = sizes + 2
    begins = np.cumsum(quoted) - quoted
    text = np.full(int(quoted.sum()), _QUOTE, np.uint8)
    ends = np.cumsum(sizes)
    items = np.arange(int(ends[-1]) if len(ends) else 0)
    within = items - np.repeat(ends - sizes, sizes)
    text[np.repeat(begins + 1, sizes) + within] = node.data[np.repeat(starts, sizes) + within]
    spans = np.where(lengths < 0, np.int32(-1), quoted.astype(np.int32))
    decoded = _ZONED_TEXTS.deserialize_column(
        BytesColumn(text.tobytes(), begins, spans), None, stop_at_first=False
    )
    assert decoded.node is not None  # a decoder of columns
    times = node.as_type(target, data=decoded.node.data)
    if decoded.errors is None:
        return times, []
    return times, [(number, decoded.errors.rows["row"].copy())]


def _joined(decoded: DecodedColumn, target: SchemaField, bad: _Bad) -> FoundErrors | None:
    """Return the errors of a decoder with those of conversions, one per row, in order."""
    decode_errors = decoded.errors
    earlier = np.zeros(0, ERROR_ROW) if decode_errors is None else decode_errors.rows
    if not bad:
        if decode_errors is None:
            return None
        return FoundErrors(earlier, decode_errors.schema_ids, target)
    parts = [earlier]
    for number, rows in bad:
        range_errors = np.zeros(len(rows), ERROR_ROW)
        range_errors["row"], range_errors["node"] = rows, number
        range_errors["position"] = _NO_POSITION
        range_errors["code"] = ErrorKind.RANGE
        parts.append(range_errors)
    errors = np.concatenate(parts)
    _, first = np.unique(errors["row"], return_index=True)
    ids = None
    if decode_errors is not None and decode_errors.schema_ids is not None:
        ids_of_rows = dict(zip(earlier["row"].tolist(), decode_errors.schema_ids, strict=True))
        ids = [ids_of_rows.get(row) for row in errors["row"][first].tolist()]
    return FoundErrors(read_only(errors[first]), ids, target)
