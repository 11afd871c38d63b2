"""Schemas of Debezium's change events: the columns of an envelope, and its logical types.

Owns which column a logical type of Debezium or Kafka Connect becomes, and where an envelope has the
columns of its rows. A row is described as any other schema is, or by Connect's own description, the
``schema`` of messages that ``JsonConverter`` writes. In Avro, logical types of Connect are names
(``connect.name``) that Avro does not know: they become Avro's. Pure.

=========================================  =======================================================
name                                       column
=========================================  =======================================================
``io.debezium.time.Date``                  date32
``...time.Time``, ``MicroTime``            time32[ms], time64[us]
``...time.NanoTime``                       time64[ns]; in Avro int64
``...time.Timestamp``, ``MicroTimestamp``  timestamp[ms], timestamp[us]: local, as in the database
``...time.NanoTimestamp``                  timestamp[ns]
``...time.ZonedTimestamp``                 timestamp[us, UTC]
``org.apache.kafka.connect.data.``
``Date``, ``Time``, ``Timestamp``          date32, time32[ms], timestamp[ms, UTC]
``Decimal``                                decimal of the schema's precision (38 without) and scale
=========================================  =======================================================

Everything else stays what it is in the message: years, durations, zoned times, enums, geometry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from kfast._base.spelling import did_you_mean
from kfast.errors import ConfigurationError
from kfast.schemas.mapping import read_schema
from kfast.schemas.names import field_of_text, list_type, map_type, struct_type
from kfast.schemas.refusals import check_nesting, refusal
from kfast.schemas.schema import Schema
from kfast.schemas.types import DataType, Kind, SchemaField

OPERATION, BEFORE, AFTER, SOURCE, TRANSACTION = "op", "before", "after", "source", "transaction"
SENT_MS: Final = "ts_ms"
PAYLOAD: Final = "payload"

ZONED: Final = DataType(Kind.TIMESTAMP, unit="us", is_utc=True)
_TIME, _DATA = "io.debezium.time.", "org.apache.kafka.connect.data."
_ZONED_NAME: Final = f"{_TIME}ZonedTimestamp"
_DECIMAL_NAME: Final = f"{_DATA}Decimal"
_MOST_DIGITS: Final = 38

_LOGICAL: Final[Mapping[str, tuple[str, DataType]]] = {
    f"{_TIME}Date": ("int32", DataType(Kind.DATE32)),
    f"{_TIME}Time": ("int32", DataType(Kind.TIME32, unit="ms")),
    f"{_TIME}MicroTime": ("int64", DataType(Kind.TIME64, unit="us")),
    f"{_TIME}NanoTime": ("int64", DataType(Kind.TIME64, unit="ns")),
    f"{_TIME}Timestamp": ("int64", DataType(Kind.TIMESTAMP, unit="ms")),
    f"{_TIME}MicroTimestamp": ("int64", DataType(Kind.TIMESTAMP, unit="us")),
    f"{_TIME}NanoTimestamp": ("int64", DataType(Kind.TIMESTAMP, unit="ns")),
    _ZONED_NAME: ("string", ZONED),
    f"{_DATA}Date": ("int32", DataType(Kind.DATE32)),
    f"{_DATA}Time": ("int32", DataType(Kind.TIME32, unit="ms")),
    f"{_DATA}Timestamp": ("int64", DataType(Kind.TIMESTAMP, unit="ms", is_utc=True)),
}
"""Connect's type of a value with a logical type, and its column."""

_CONNECT: Final[Mapping[str, str]] = {
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float": "float32",
    "float32": "float32",
    "double": "float64",
    "float64": "float64",
    "boolean": "bool",
    "string": "string",
    "bytes": "binary",
}

_AVRO: Final[Mapping[str, tuple[str, str]]] = {
    f"{_TIME}Date": ("int", "date"),
    f"{_TIME}Time": ("int", "time-millis"),
    f"{_TIME}MicroTime": ("long", "time-micros"),
    f"{_TIME}Timestamp": ("long", "local-timestamp-millis"),
    f"{_TIME}MicroTimestamp": ("long", "local-timestamp-micros"),
    f"{_TIME}NanoTimestamp": ("long", "local-timestamp-nanos"),
    f"{_DATA}Date": ("int", "date"),
    f"{_DATA}Time": ("int", "time-millis"),
    f"{_DATA}Timestamp": ("long", "timestamp-millis"),
}
"""Avro's type of a value with a logical type of Connect, and Avro's own logical type for it."""

_SOURCE_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("version", "connector", "name", "snapshot", "db", "schema", "table", "collection",
         "sequence", "file", "gtid", "query", "scn", "commit_scn", "change_lsn", "commit_lsn"),
        "string",
    ),
    **dict.fromkeys(
        ("ts_ms", "ts_us", "ts_ns", "lsn", "txId", "xmin", "server_id", "pos", "row", "thread",
         "ord", "event_serial_no"),
        "int64",
    ),
}  # fmt: skip
"""Members of ``source`` in the events of Debezium's connectors."""
DEFAULT_SOURCE: Final = ("ts_ms", "db", "table")

_TRANSACTION: Final = "struct<id: string, total_order: int64, data_collection_order: int64>"


# --- envelopes of JSON ----------------------------------------------------------------------------


def is_connect(schema: object) -> bool:
    """Whether a schema is Connect's description of messages, not names and types of columns."""
    return (
        isinstance(schema, Mapping)
        and schema.get("type") == "struct"
        and isinstance(schema.get("fields"), list)
    )


def row_of(schema: Any, *, is_envelope: bool) -> SchemaField:
    """Return the row that a schema describes, of an envelope of Connect's that of ``after``.

    Raises
    ------
    ConfigurationError
        It describes none.
    """
    if not is_connect(schema):
        row = Schema(schema).root
    elif not is_envelope:
        row = _of_connect(schema, "", 0)
    else:
        members = {field.get("field"): field for field in schema["fields"]}
        if AFTER not in members or OPERATION not in members:
            raise refusal(
                "",
                "a schema of Connect that is no envelope of Debezium's",
                "events with op, before and after; envelope=False reads rows and keys",
            )
        row = _of_connect(members[AFTER], AFTER, 0)
    if row.type.kind is not Kind.STRUCT:
        raise refusal("", f"a row is a struct, not {row.type}", '{"id": "int64", ...}')
    return replace(row, name="", is_nullable=True)


def _of_connect(schema: Any, path: str, depth: int) -> SchemaField:
    """Return the field that a schema of Connect describes."""
    check_nesting(path, depth)
    if not isinstance(schema, Mapping):
        raise refusal(path, f"{schema!r} is no schema of Connect")
    kind, logical = str(schema.get("type")), schema.get("name")
    is_nullable = bool(schema.get("optional", False))
    name = str(schema.get("field") or "")
    if kind == "struct":
        fields = [
            _of_connect(field, f"{path}.{field.get('field')}", depth + 1)
            for field in schema.get("fields", ())
        ]
        data_type = struct_type(fields, path)
    elif kind == "array":
        data_type = list_type(_of_connect(schema.get("items"), f"{path}[]", depth + 1))
    elif kind == "map":
        key = _of_connect(schema.get("keys"), path, depth + 1)
        value = _of_connect(schema.get("values"), f"{path}{{value}}", depth + 1)
        data_type = map_type(key.type, value, path)
    elif logical == _DECIMAL_NAME and kind == "bytes":
        data_type = _decimal(schema.get("parameters") or {}, path)
    elif isinstance(logical, str) and logical in _LOGICAL and _LOGICAL[logical][0] == kind:
        data_type = _LOGICAL[logical][1]
    elif kind in _CONNECT:
        data_type = field_of_text(_CONNECT[kind]).type
    else:
        raise refusal(path, f"{kind!r} is no type of Connect")
    return SchemaField(name, data_type, is_nullable)


def _decimal(parameters: Mapping[str, Any], path: str) -> DataType:
    try:
        scale = int(parameters["scale"])
        precision = int(parameters.get("connect.decimal.precision", _MOST_DIGITS))
    except (KeyError, TypeError, ValueError):
        raise refusal(path, "a decimal of Connect has no scale", "parameters.scale") from None
    return field_of_text(f"decimal({precision}, {scale})").type


def in_payload(root: SchemaField) -> SchemaField:
    """Return the columns of documents whose ``payload`` has them."""
    fields = tuple(
        replace(field, source=(PAYLOAD, *(field.source or (field.name,))))
        for field in root.type.fields
    )
    return replace(root, type=replace(root.type, fields=fields))


def envelope_of(
    row: SchemaField,
    *,
    source: Iterable[str] | Mapping[str, object],
    has_transaction: bool,
) -> SchemaField:
    """Return the columns of events.

    All columns of ``before`` may be null, as a database may log its key alone.

    Raises
    ------
    ConfigurationError
        A member of ``source`` has no type that is known.
    """
    columns = row.type.fields
    before = replace(
        row.type,
        fields=tuple(replace(column, is_nullable=True, default=None) for column in columns),
    )
    text, number = field_of_text("string").type, field_of_text("int64").type
    fields = [
        SchemaField(OPERATION, text, is_nullable=False),
        SchemaField(SENT_MS, number),
        SchemaField(BEFORE, before),
        SchemaField(AFTER, row.type),
    ]
    chosen = _source_types(source)
    if chosen:
        fields.append(SchemaField(SOURCE, read_schema(chosen).type))
    if has_transaction:
        fields.append(SchemaField(TRANSACTION, field_of_text(_TRANSACTION).type))
    return SchemaField("", DataType(Kind.STRUCT, fields=tuple(fields)))


def _source_types(source: Iterable[str] | Mapping[str, object]) -> dict[str, object]:
    if isinstance(source, Mapping):
        return dict(source)
    types: dict[str, object] = {}
    for name in source:
        if name not in _SOURCE_TYPES:
            near = did_you_mean(name, _SOURCE_TYPES)
            raise ConfigurationError(
                f"source: the type of {name} is not known",
                hint=f"did you mean {near}?" if near else f'source={{"{name}": "string"}}',
            )
        types[name] = _SOURCE_TYPES[name]
    return types


def has_decimals(field: SchemaField) -> bool:
    """Whether a field is, or has below it, a decimal."""
    return any(node.type.kind in _DECIMALS for _path, node in field.nodes())


_DECIMALS: Final = frozenset({Kind.DECIMAL128, Kind.DECIMAL256})


def with_encoded_decimals(field: SchemaField) -> SchemaField:
    """Return a field with the bytes of decimals, which Connect's JSON has in base64."""
    data_type = field.type
    if data_type.kind in _DECIMALS:
        return replace(field, type=field_of_text("binary").type, default=None)
    fields = tuple(with_encoded_decimals(child) for child in data_type.fields)
    return replace(field, type=replace(data_type, fields=fields))


# --- Avro -----------------------------------------------------------------------------------------


def avro_with_logical_types(text: str) -> str:
    """Return a schema of Avro with Avro's logical types for those of Connect and Debezium."""
    return json.dumps(_with_logical(json.loads(text)))


def _with_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_logical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    attributes = {
        key: _with_logical(value) if key in {"type", "fields", "items", "values"} else value
        for key, value in schema.items()
    }
    kind, logical = _AVRO.get(str(schema.get("connect.name")), ("", ""))
    if kind and attributes.get("type") == kind:
        attributes.setdefault("logicalType", logical)
    return attributes


def zoned_paths(text: str) -> frozenset[str]:
    """Return the paths of texts that are ``ZonedTimestamp`` in a schema of Avro."""
    return frozenset(_zoned(json.loads(text), "", {}, 0))


def _zoned(schema: Any, path: str, names: dict[str, Any], depth: int) -> Iterator[str]:
    if isinstance(schema, str):
        schema = names.get(schema.rpartition(".")[2])
    if isinstance(schema, list):
        for branch in schema:
            yield from _zoned(branch, path, names, depth)
    if not isinstance(schema, dict) or depth > _MOST_LEVELS:
        return
    kind = schema.get("type")
    if isinstance(kind, dict | list):
        yield from _zoned(kind, path, names, depth)
    elif kind == "string" and schema.get("connect.name") == _ZONED_NAME:
        yield path
    elif kind == "array":
        yield from _zoned(schema.get("items"), f"{path}[]", names, depth + 1)
    elif kind == "map":
        yield from _zoned(schema.get("values"), f"{path}{{value}}", names, depth + 1)
    elif kind == "record":
        names[str(schema.get("name")).rpartition(".")[2]] = schema
        for field in schema.get("fields") or ():
            inner = f"{path}.{field.get('name')}" if path else str(field.get("name"))
            yield from _zoned(field.get("type"), inner, names, depth + 1)


_MOST_LEVELS: Final = 16
"""A record may contain itself."""
