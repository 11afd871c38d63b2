"""Columns of an Avro schema: its tree of types as kfast's, and its defaults as values.

===============================================  ==================================================
Avro                                             column
===============================================  ==================================================
record, array, map                               struct, list, map
union of null and one other, in either order     the other, nullable
enum                                             dictionary
fixed; duration                                  fixed_size_binary
date, time-*, timestamp-*, local-timestamp-*     date32, time32, time64, timestamp with and without
                                                 UTC
decimal                                          decimal128, beyond 38 digits decimal256
uuid, of a string or a fixed                     uuid
===============================================  ==================================================

Refused with the path: a union of several types besides null, a record that contains itself, null
alone, records without fields, fixed of no bytes. ``columns=`` leaves such parts out.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from kfast.errors import ConfigurationError
from kfast.schemas.avro_text import AvroField, AvroKind, AvroSchema, AvroType
from kfast.schemas.selection import ITEM, VALUE, Selection
from kfast.schemas.types import DataType, Kind, SchemaField

MAX_COLUMNS: Final = 10_000
"""Nodes of a tree of columns: a schema of a few lines can name more of them than fit in memory."""

_PLAIN: Final = {
    AvroKind.BOOLEAN: DataType(Kind.BOOL),
    AvroKind.INT: DataType(Kind.INT32),
    AvroKind.LONG: DataType(Kind.INT64),
    AvroKind.FLOAT: DataType(Kind.FLOAT32),
    AvroKind.DOUBLE: DataType(Kind.FLOAT64),
    AvroKind.BYTES: DataType(Kind.BINARY),
    AvroKind.STRING: DataType(Kind.STRING),
    AvroKind.ENUM: DataType(Kind.DICTIONARY),
}
_LOGICAL: Final = {
    "date": DataType(Kind.DATE32),
    "time-millis": DataType(Kind.TIME32, unit="ms"),
    "time-micros": DataType(Kind.TIME64, unit="us"),
    "timestamp-millis": DataType(Kind.TIMESTAMP, unit="ms", is_utc=True),
    "timestamp-micros": DataType(Kind.TIMESTAMP, unit="us", is_utc=True),
    "timestamp-nanos": DataType(Kind.TIMESTAMP, unit="ns", is_utc=True),
    "local-timestamp-millis": DataType(Kind.TIMESTAMP, unit="ms"),
    "local-timestamp-micros": DataType(Kind.TIMESTAMP, unit="us"),
    "local-timestamp-nanos": DataType(Kind.TIMESTAMP, unit="ns"),
    "uuid": DataType(Kind.UUID),
}
_BITS: Final = {AvroKind.INT: 32, AvroKind.LONG: 64}
MAX_DEFAULTS: Final = 4 << 20
"""Values and characters of the defaults that one reader's schema needs."""
TIMES_OF_DAY: Final = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
_NOT_A_NUMBER: Final = {
    "NaN": float("nan"), "INF": float("inf"), "Infinity": float("inf"), "-INF": float("-inf"),
    "-Infinity": float("-inf"),
}  # fmt: skip
_LEAVE_OUT: Final = "name the columns to read without it: columns=[...]"


class SchemaTooLargeError(ConfigurationError):
    """A schema stands for more than can be handled, however short its text is."""


def only(schema: AvroSchema, selection: Selection) -> AvroSchema:
    """Return the schema with those fields of its records that are wanted."""
    return AvroSchema(_only(schema.root, selection), schema.names)


def _only(avro: AvroType, selection: Selection) -> AvroType:
    if selection.is_all:
        return avro
    if avro.kind is AvroKind.UNION:
        branches = tuple(
            branch if branch.kind is AvroKind.NULL else _only(branch, selection)
            for branch in avro.types
        )
        return replace(avro, types=branches)
    if avro.kind is AvroKind.RECORD:
        selection.check([f.name for f in avro.fields], str(avro))
        selections = ((f, selection.wants(f.name)) for f in avro.fields)
        fields = tuple(replace(f, type=_only(f.type, child)) for f, child in selections if child)
        return replace(avro, fields=fields)
    steps = {AvroKind.ARRAY: ITEM, AvroKind.MAP: VALUE}
    step = steps.get(avro.kind)
    selection.check([step] if step else [], str(avro))
    child = selection.wants(step) if step else None
    return replace(avro, types=(_only(avro.types[0], child),)) if child else avro


def columns_of(schema: AvroSchema) -> SchemaField:
    """Return the tree of columns. The root is nullable: a record may have no value at all.

    Raises
    ------
    ConfigurationError
        A part cannot become a column.
    """
    return replace(_Columns().field("", schema.root, ""), is_nullable=True)


def value_of_union(avro: AvroType) -> AvroType | None:
    """Return the type besides null of a union that has one, and any other type itself."""
    if avro.kind is not AvroKind.UNION:
        return avro
    others = [branch for branch in avro.types if branch.kind is not AvroKind.NULL]
    return others[0] if len(others) == 1 else None


class _Columns:
    def __init__(self) -> None:
        self._count = 0

    def field(self, name: str, avro: AvroType, path: str) -> SchemaField:
        """Return the column of a type. A union is a level of Avro's tree, not of this one."""
        self._count += 1
        if self._count > MAX_COLUMNS:
            raise SchemaTooLargeError(
                f"the Avro schema has more than {MAX_COLUMNS} columns", hint=_LEAVE_OUT
            )
        value = value_of_union(avro)
        if value is None:
            if all(branch.kind is AvroKind.NULL for branch in avro.types):
                raise _no_column(path, avro, "has no type besides null")
            raise _no_column(path, avro, "has several types besides null")
        is_nullable = value is not avro and len(avro.types) > 1
        return SchemaField(name, self._type(value, path), is_nullable=is_nullable)

    def _type(self, avro: AvroType, path: str) -> DataType:
        if avro.kind is AvroKind.RECORD:
            if not avro.fields:
                raise _no_column(path, avro, "has no fields")
            prefix = f"{path}." if path else ""
            fields = tuple(self.field(f.name, f.type, prefix + f.name) for f in avro.fields)
            return DataType(Kind.STRUCT, fields=fields)
        if avro.kind is AvroKind.ARRAY:
            return DataType(Kind.LIST, fields=(self.field("item", avro.types[0], path + ITEM),))
        if avro.kind is AvroKind.MAP:
            key = SchemaField("key", DataType(Kind.STRING), is_nullable=False)
            self._count += 1
            value = self.field("value", avro.types[0], path + VALUE)
            return DataType(Kind.MAP, fields=(key, value))
        if avro.kind is AvroKind.RECURSION:
            raise _no_column(path, avro, "contains itself")
        if avro.kind is AvroKind.NULL:
            raise _no_column(path, avro, "has no values")
        if avro.logical == "decimal":
            kind = Kind.DECIMAL128 if avro.precision <= 38 else Kind.DECIMAL256
            return DataType(kind, precision=avro.precision, scale=avro.scale)
        if avro.logical in _LOGICAL:
            return _LOGICAL[avro.logical]
        if avro.kind is AvroKind.FIXED:
            if not avro.size:
                raise _no_column(path, avro, "has no bytes")
            return DataType(Kind.FIXED_BINARY, size=avro.size)
        return _PLAIN[avro.kind]


def _no_column(path: str, avro: AvroType, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path or 'the root'} is no column: {avro} {why}", hint=_LEAVE_OUT, path=path
    )


# ---------------------------------------------------------------------------------------- defaults


class _Misfit(Exception):
    """The default is not of its type."""


class Defaults:
    """Values of defaults, for one pair of schemas: what they are in all is bounded.

    A default of ``{}`` stands for the defaults of all fields of a record, so that a few lines of
    schema can stand for any number of values.
    """

    def __init__(self) -> None:
        self._left = MAX_DEFAULTS

    def of(self, field: AvroField, path: str) -> object:
        """Return the value of a field that the writer lacks."""
        if not field.has_default:
            raise ConfigurationError(
                f"{path}: the writer's schema lacks this field, and the reader's has no default",
                hint="give the field a default in the reader's schema, or leave it out",
                path=path,
            )
        try:
            return self._value(field.type, field.default)
        except _Misfit:
            raise ConfigurationError(
                f"{path}: the default in the reader's schema is no {field.type}",
                found=repr(field.default)[:60],
                path=path,
            ) from None

    def _value(self, avro: AvroType, default: Any) -> Any:
        """Return the value that a default in JSON stands for."""
        self._left -= 1 + (len(default) if isinstance(default, str) else 0)
        if self._left < 0:
            raise SchemaTooLargeError("the defaults of the reader's schema are too large")
        kind = avro.kind
        if kind is AvroKind.UNION:  # any branch (Avro 1.12); the first one that fits (older)
            for branch in avro.types:
                try:
                    return self._value(branch, default)
                except _Misfit:
                    continue
            raise _Misfit
        if kind is AvroKind.ARRAY and isinstance(default, list):
            return [self._value(avro.types[0], item) for item in default]
        if kind is AvroKind.MAP and isinstance(default, dict):
            return {_utf8(key): self._value(avro.types[0], entry) for key, entry in default.items()}
        if kind is AvroKind.RECORD and isinstance(default, dict):
            return {field.name: self._member(field, default) for field in avro.fields}
        return _simple(avro, default)

    def _member(self, field: AvroField, default: dict[str, Any]) -> Any:
        if field.name in default:
            return self._value(field.type, default[field.name])
        if not field.has_default:
            raise _Misfit
        return self._value(field.type, field.default)


def _simple(avro: AvroType, default: Any) -> Any:
    """Return the value of a default without parts."""
    kind = avro.kind
    if kind is AvroKind.NULL and default is None:
        return None
    if kind is AvroKind.BOOLEAN and isinstance(default, bool):
        return default
    if kind in _BITS and isinstance(default, int) and not isinstance(default, bool):
        most = TIMES_OF_DAY.get(avro.logical)
        if most is None:
            bound = 1 << _BITS[kind] - 1
            is_in_range = -bound <= default < bound
        else:
            is_in_range = 0 <= default < most
        if is_in_range:
            return default
    if kind in {AvroKind.FLOAT, AvroKind.DOUBLE}:
        return _float(default)
    if kind is AvroKind.ENUM and default in avro.symbols:
        return default
    if kind in {AvroKind.BYTES, AvroKind.FIXED, AvroKind.STRING} and isinstance(default, str):
        return _bytes_or_text(avro, default)
    raise _Misfit


def _float(default: Any) -> float:
    if isinstance(default, str) and default in _NOT_A_NUMBER:  # as Java writes them
        return _NOT_A_NUMBER[default]
    if not isinstance(default, int | float) or isinstance(default, bool):
        raise _Misfit
    try:
        return float(default)
    except OverflowError:
        raise _Misfit from None


def _bytes_or_text(avro: AvroType, default: str) -> Any:
    if avro.kind is AvroKind.STRING:
        text = _utf8(default)
        return _uuid(text) if avro.logical == "uuid" else text
    try:
        raw = default.encode("latin-1")  # code points 0-255 stand for bytes
    except UnicodeEncodeError:
        raise _Misfit from None
    if avro.kind is AvroKind.FIXED and len(raw) != avro.size:
        raise _Misfit
    if avro.logical == "uuid":
        return UUID(bytes=raw)
    if avro.logical != "decimal":
        return raw
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) >= 10**avro.precision:
        raise _Misfit
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -avro.scale))


def _uuid(text: str) -> UUID:
    try:
        if len(text) == 36:
            return UUID(text)
    except ValueError:
        pass
    raise _Misfit


def _utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Misfit from None
    return text
