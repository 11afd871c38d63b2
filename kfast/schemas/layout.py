"""The layout of builders: a schema's tree as compiled decoders take it, and constants in it.

Owns: which storage each kind of value has (``_native/builders.pyx``), and the bytes of a default
that decoders append. Both follow the preorder of :meth:`SchemaField.nodes`.

A constant is, for each node in turn: one byte, 0 for null and nothing more; else 1 and the value.
Values of fixed width are as in memory; others begin with an int32, the bytes of a text or binary,
or the items of a list or map, each of which follows as a constant of the item, or of key and value;
a struct is the constants of its members.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from enum import Enum
from struct import pack
from typing import Any, Final
from uuid import UUID

from kfast.errors import ConfigurationError
from kfast.schemas.types import DataType, Kind, SchemaField

FIXED, BYTES, LIST, STRUCT, DICTIONARY = range(5)
"""Storages of nodes; the numbers are those of ``builders.pxd``."""

MAX_DEPTH: Final = 128
"""Most levels of a tree."""

_STORAGES: Final = {
    Kind.STRING: BYTES, Kind.BINARY: BYTES, Kind.RAW: BYTES, Kind.DICTIONARY: DICTIONARY,
    Kind.LIST: LIST, Kind.MAP: LIST, Kind.STRUCT: STRUCT, Kind.NULL: BYTES,
}  # fmt: skip

_EXACT: Final = Context(prec=100)
"""More digits than any decimal has; Python's default rounds to 28."""
_FLOATS: Final = {Kind.FLOAT32: "=f", Kind.FLOAT64: "=d"}
_UNSIGNED: Final = frozenset({Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.UINT64})
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH: Final = datetime(1970, 1, 1)
_UNGIVEN: Final = object()


def storage_of(data_type: DataType) -> int:
    """Return the storage of a node of this type."""
    return _STORAGES.get(data_type.kind, FIXED)


def node_count(root: SchemaField) -> int:
    """Return the number of nodes of a tree."""
    return 1 + sum(map(node_count, root.type.fields))


def layout(root: SchemaField) -> array[int]:
    """Return storage, width, number of children and is_nullable of each node, in preorder.

    Raises
    ------
    ConfigurationError
        The tree has more than ``MAX_DEPTH`` levels.
    """
    nodes = array("i")
    _add_layout(root, nodes, 1)
    return nodes


def _add_layout(field: SchemaField, nodes: array[int], level: int) -> None:
    if level > MAX_DEPTH:
        raise ConfigurationError(f"the schema is nested more than {MAX_DEPTH} levels deep")
    storage = storage_of(field.type)
    width = 4 if storage == DICTIONARY else field.type.width if storage == FIXED else 0
    nodes.extend((storage, width, len(field.type.fields), int(field.is_nullable)))
    for child in field.type.fields:
        _add_layout(child, nodes, level + 1)


def constant_bytes(field: SchemaField, value: object = _UNGIVEN) -> bytes:
    """Return a value of a field, its default if none is given, as decoders append it.

    Takes what ``to_list()`` of such a column gives; times, timestamps, durations and dates also as
    numbers of their unit, and a decimal as int or text. Members that a dict lacks have their
    default.

    Raises
    ------
    ConfigurationError
        The value is not of the field's type, or null where there is no null.
    """
    return _encoded(field, field.default if value is _UNGIVEN else value, field.name)


def _encoded(field: SchemaField, value: object, path: str) -> bytes:
    if value is None:
        if not field.is_nullable:
            raise _misfit(path, field, value)
        return b"\0"
    try:
        return b"\1" + _value_bytes(field.type, value, path)
    except ConfigurationError:  # of something inside the value
        raise
    except (TypeError, ValueError, OverflowError, ArithmeticError, AttributeError) as error:
        raise _misfit(path, field, value) from error


def _misfit(path: str, field: SchemaField, value: object) -> ConfigurationError:
    return ConfigurationError(f"{path or 'the default'}: {value!r} is no {field.type_text}")


def _value_bytes(kind_of: DataType, value: Any, path: str) -> bytes:
    kind, fields = kind_of.kind, kind_of.fields
    storage = storage_of(kind_of)
    if storage == STRUCT:
        members: Mapping[str, object] = value
        return b"".join(
            _encoded(field, members.get(field.name, field.default), _below(path, field.name))
            for field in fields
        )
    if storage == LIST:
        rows = [(item,) for item in value] if kind is Kind.LIST else _pairs(value)
        items = (
            _encoded(field, cell, f"{path}[]")
            for row in rows
            for field, cell in zip(fields, row, strict=True)
        )
        return pack("=i", len(rows)) + b"".join(items)
    if storage in (BYTES, DICTIONARY):
        plain = _plain(value)
        raw = plain.encode() if isinstance(plain, str) else bytes(memoryview(plain))
        return pack("=i", len(raw)) + raw
    return _fixed_bytes(kind_of, _plain(value))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) and not isinstance(value, str) else value


def _pairs(value: Any) -> list[tuple[object, object]]:
    pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value
    return [(key, item) for key, item in pairs]


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _fixed_bytes(kind_of: DataType, value: Any) -> bytes:
    kind = kind_of.kind
    if kind is Kind.BOOL:
        if not isinstance(value, bool):
            raise TypeError(value)
        return bytes([value])
    if kind in _FLOATS:
        return pack(_FLOATS[kind], value)
    if kind in (Kind.UUID, Kind.FIXED_BINARY):
        raw: bytes = value.bytes if isinstance(value, UUID) else _binary(kind, value)
        if len(raw) != kind_of.width:
            raise ValueError(value)
        return raw
    if kind in (Kind.DECIMAL128, Kind.DECIMAL256):
        unscaled = Decimal(value).scaleb(kind_of.scale, _EXACT)
        number = int(unscaled)
        if number != unscaled or abs(number) >= 10**kind_of.precision:
            raise ValueError(value)
    else:
        number = _integer(kind_of, value)
    return number.to_bytes(kind_of.width, sys.byteorder, signed=kind not in _UNSIGNED)


def _binary(kind: Kind, value: Any) -> bytes:
    if isinstance(value, str):
        return UUID(value).bytes if kind is Kind.UUID else base64.b64decode(value, validate=True)
    return bytes(memoryview(value))


def _integer(kind_of: DataType, value: Any) -> int:
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        if (value.tzinfo is not None) != kind_of.is_utc:
            raise ValueError(value)
        value = moment - _EPOCH
    elif isinstance(value, date):
        return (value - _EPOCH.date()).days
    elif isinstance(value, time):
        value = datetime.combine(_EPOCH, value.replace(tzinfo=None)) - _EPOCH
    if isinstance(value, timedelta):
        return _in_unit(value, kind_of.unit)
    if isinstance(value, bool) or int(value) != value:
        raise TypeError(value)
    return int(value)


def _in_unit(length: timedelta, unit: str) -> int:
    micros = (length.days * 86_400 + length.seconds) * 1_000_000 + length.microseconds
    number, rest = divmod(micros * _PER_SECOND[unit], 1_000_000)
    if rest:
        raise ValueError(length)
    return number
