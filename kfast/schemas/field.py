"""``kfast.Field``: a column in a dict schema where the name of its type does not say enough.

Owns also what every kind of schema checks of a field: sources, encodings and defaults.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kfast.schemas.refusals import check_name, refusal, unknown_name
from kfast.schemas.types import DataType, Kind, SchemaField

BINARY_ENCODINGS: Final = ("base64", "base64url", "hex", "utf8")
TIMESTAMP_ENCODINGS: Final = ("epoch_s", "epoch_ms", "epoch_us", "epoch_ns", "rfc3339")
_ENCODINGS: Final = {
    Kind.BINARY: BINARY_ENCODINGS,
    Kind.FIXED_BINARY: BINARY_ENCODINGS,
    Kind.TIMESTAMP: TIMESTAMP_ENCODINGS,
}

_INTEGERS: Final = {
    Kind.INT8: (-(2**7), 2**7 - 1),
    Kind.INT16: (-(2**15), 2**15 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.INT64: (-(2**63), 2**63 - 1),
    Kind.UINT8: (0, 2**8 - 1),
    Kind.UINT16: (0, 2**16 - 1),
    Kind.UINT32: (0, 2**32 - 1),
    Kind.UINT64: (0, 2**64 - 1),
}
_DEFAULTS: Final[Mapping[Kind, tuple[type, ...]]] = {
    Kind.BOOL: (bool,),
    **dict.fromkeys(_INTEGERS, (int,)),
    Kind.FLOAT32: (float, int),
    Kind.FLOAT64: (float, int),
    Kind.STRING: (str,),
    Kind.DICTIONARY: (str,),
    Kind.BINARY: (bytes,),
    Kind.FIXED_BINARY: (bytes,),
    Kind.RAW: (bytes, str),
    Kind.DATE32: (datetime.date,),
    Kind.TIME32: (datetime.time,),
    Kind.TIME64: (datetime.time,),
    Kind.TIMESTAMP: (datetime.datetime, int),
    Kind.DURATION: (datetime.timedelta, int),
    Kind.DECIMAL128: (decimal.Decimal, int),
    Kind.DECIMAL256: (decimal.Decimal, int),
    Kind.UUID: (uuid.UUID,),
    Kind.LIST: (list, tuple),
    Kind.MAP: (dict,),
    Kind.STRUCT: (dict,),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A column in a dict schema, or the root of documents.

    Parameters
    ----------
    type : str, dict, list or class
        What a dict schema accepts as the type of a column.
    source : str or tuple of str, optional
        Where a document has the value: its key, or a path of keys joined by dots from the object
        that has the column. A key with a dot in it is written as a tuple of steps:
        ``("order.price",)``.
    required : bool
        Whether a missing value and ``null`` make the row bad. The column is not nullable then.
    default : object, optional
        The value of rows in which the key is missing. In a required column also of those that
        have ``null``.
    encoding : str, optional
        The one form that is read: for binary ``"base64"`` (the usual one), ``"base64url"``,
        ``"hex"`` or ``"utf8"``; for timestamps ``"epoch_s"``, ``"epoch_ms"``, ``"epoch_us"``,
        ``"epoch_ns"`` or ``"rfc3339"``.

    Examples
    --------
    >>> price = kfast.Field("float64", source="order.price", required=True)
    >>> kfast.Json({"price": price}).decode([b'{"order": {"price": 9.5}}']).values["price"]
    array([9.5])
    """

    type: object
    source: str | Sequence[str] | None = None
    required: bool = False
    default: object = None
    encoding: str | None = None

    def __repr__(self) -> str:
        arguments = {
            "source": self.source,
            "required": self.required or None,
            "default": self.default,
            "encoding": self.encoding,
        }
        parts = [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
        return f"kfast.Field({', '.join([repr(self.type), *parts])})"


def source_steps(source: object, path: str) -> tuple[str, ...]:
    """Return the steps of a source: a path with dots, or the steps themselves; none for None.

    Raises
    ------
    ConfigurationError
        It is neither, or a step is empty.
    """
    if source is None:
        return ()
    steps = source.split(".") if isinstance(source, str) else source
    if (
        not isinstance(steps, list | tuple)
        or not steps
        or not all(
            isinstance(step, str) and (step or not isinstance(source, str)) for step in steps
        )
    ):
        raise refusal(
            path,
            f"source is a path of keys, not {source!r}",
            'write source="order.price", or source=("order.price",) for a key with a dot',
        )
    for step in steps:
        check_name(path, step)
    return tuple(steps)


def checked_field(field: SchemaField, path: str) -> SchemaField:
    """Return a field whose encoding and default fit its type; a default is copied.

    Raises
    ------
    ConfigurationError
        One of them does not.
    """
    if field.encoding:
        encodings = _ENCODINGS.get(field.type.kind)
        if encodings is None:
            raise refusal(path, f"{field.type} has one form only: encoding does not belong here")
        if field.encoding not in encodings:
            raise unknown_name(path, "encoding", field.encoding, encodings)
    if field.default is None:
        return field
    check_default(field.type, field.default, path)
    return replace(field, default=_copied(field.default))


def check_default(data_type: DataType, value: object, path: str) -> None:
    """Raise ConfigurationError unless a value may be the default of a column."""
    kind = data_type.kind
    is_bool = isinstance(value, bool)
    if not isinstance(value, _DEFAULTS[kind]) or is_bool != (kind is Kind.BOOL):
        raise refusal(path, f"the default {value!r} is no {data_type}")
    limits = _INTEGERS.get(kind)
    if limits is not None and isinstance(value, int) and not limits[0] <= value <= limits[1]:
        raise refusal(path, f"the default {value} is out of range of {data_type}")
    if kind is Kind.FIXED_BINARY and isinstance(value, bytes) and len(value) != data_type.size:
        raise refusal(path, f"the default has {len(value)} bytes, not {data_type.size}")
    if kind is Kind.DATE32 and isinstance(value, datetime.datetime):
        raise refusal(path, f"the default {value!r} has a time of day")
    if isinstance(value, datetime.datetime) and (value.tzinfo is not None) != data_type.is_utc:
        needs = "needs a zone" if data_type.is_utc else "has no zone"
        raise refusal(path, f"the default of {data_type} {needs}: {value!r}")
    if kind is Kind.LIST and isinstance(value, list | tuple):
        for item in value:
            _check_child(data_type.item, item, f"{path}[]")
    if isinstance(value, dict):
        _check_members(data_type, value, path)


def _copied(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(map(_copied, value))
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value


def _check_members(data_type: DataType, value: dict[object, object], path: str) -> None:
    if data_type.kind is Kind.MAP:
        for key, item in value.items():
            if not isinstance(key, str):
                raise refusal(path, f"keys of a map are strings, not {key!r}")
            _check_child(data_type.fields[1], item, f"{path}{{value}}")
        return
    names = {field.name: field for field in data_type.fields}
    for key in value:
        if key not in names:
            raise unknown_name(path, "field of the default", str(key), names)
    for name, field in names.items():
        _check_child(field, value.get(name, field.default), f"{path}.{name}")


def _check_child(field: SchemaField, value: object, path: str) -> None:
    if value is not None:
        check_default(field.type, value, path)
    elif not field.is_nullable:
        raise refusal(path, "the default has no value here, and it is required")
