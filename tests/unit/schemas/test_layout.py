"""The layout of builders, and constants as decoders append them."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from kfast.errors import ConfigurationError
from kfast.schemas.layout import MAX_DEPTH, constant_bytes, layout
from kfast.schemas.types import DataType, Kind, SchemaField

_INT = DataType(Kind.INT32)
_MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)
_MICROS = int((_MOMENT - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(microseconds=1))


def test_layout_is_storage_width_children_and_nullability_in_preorder() -> None:
    line = DataType(
        Kind.STRUCT,
        fields=(
            SchemaField("sku", DataType(Kind.STRING)),
            SchemaField("qty", _INT, is_nullable=False),
            SchemaField("fix", DataType(Kind.FIXED_BINARY, size=12)),
            SchemaField("side", DataType(Kind.DICTIONARY)),
        ),
    )
    root = SchemaField("", DataType(Kind.LIST, fields=(SchemaField("item", line),)), False)
    assert layout(root).tolist() == [
        *(2, 0, 1, 0),
        *(3, 0, 4, 1),
        *(1, 0, 0, 1),
        *(0, 4, 0, 0),
        *(0, 12, 0, 1),
        *(4, 4, 0, 1),
    ]


def test_trees_have_a_depth() -> None:
    field = SchemaField("", _INT)
    for _level in range(MAX_DEPTH - 1):
        field = SchemaField("", DataType(Kind.LIST, fields=(field,)))
    assert len(layout(field)) == 4 * MAX_DEPTH
    with pytest.raises(ConfigurationError, match="128 levels"):
        layout(SchemaField("", DataType(Kind.LIST, fields=(field,))))


def native(number: int, width: int) -> bytes:
    return b"\1" + number.to_bytes(width, sys.byteorder, signed=True)


@pytest.mark.parametrize(
    ("made", "value", "raw"),
    [
        (_INT, -2, native(-2, 4)),
        (
            DataType(Kind.DECIMAL128, precision=38, scale=2),
            Decimal("123456789012345678901234567890123456.78"),
            native(12345678901234567890123456789012345678, 16),
        ),
        (DataType(Kind.BOOL), True, b"\1\1"),
        (DataType(Kind.UINT64), 2**64 - 1, b"\1" + b"\xff" * 8),
        (DataType(Kind.TIMESTAMP, unit="us", is_utc=True), _MOMENT, native(_MICROS, 8)),
        (DataType(Kind.TIMESTAMP, unit="ms", is_utc=True), 12, native(12, 8)),
        (DataType(Kind.DATE32), dt.date(1970, 1, 3), native(2, 4)),
        (DataType(Kind.TIME64, unit="us"), dt.time(0, 0, 1, 5), native(1_000_005, 8)),
        (DataType(Kind.DURATION, unit="s"), dt.timedelta(days=1), native(86_400, 8)),
        (DataType(Kind.DECIMAL128, precision=9, scale=2), Decimal("-1.5"), native(-150, 16)),
        (DataType(Kind.UUID), UUID(int=1), b"\1" + bytes(15) + b"\1"),
        (DataType(Kind.STRING), "é", native(2, 4) + "é".encode()),
        (DataType(Kind.FIXED_BINARY, size=2), b"ab", b"\1ab"),
    ],
)
def test_values_as_bytes(made: DataType, value: Any, raw: bytes) -> None:
    assert constant_bytes(SchemaField("a", made), value) == raw
    assert constant_bytes(SchemaField("a", made, default=value)) == raw


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (SchemaField("a", _INT), "1"),
        (SchemaField("a", _INT), 1.5),
        (SchemaField("a", _INT), 2**31),
        (SchemaField("a", _INT), True),
        (SchemaField("a", _INT, is_nullable=False), None),
        (SchemaField("a", DataType(Kind.BOOL)), 1),
        (SchemaField("a", DataType(Kind.STRING)), 1),
        (SchemaField("a", DataType(Kind.FIXED_BINARY, size=2)), b"abc"),
        (SchemaField("a", DataType(Kind.DECIMAL128, precision=3, scale=1)), Decimal("0.25")),
        (SchemaField("a", DataType(Kind.DECIMAL128, precision=3, scale=1)), 100),
        (SchemaField("a", DataType(Kind.TIMESTAMP, unit="ms")), _MOMENT),
        (SchemaField("a", DataType(Kind.TIMESTAMP, unit="ms", is_utc=True)), _MOMENT),
        (SchemaField("a", DataType(Kind.LIST, fields=(SchemaField("item", _INT),))), 5),
    ],
)
def test_defaults_of_another_type_are_refused(field: SchemaField, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^a: .* is no "):
        constant_bytes(field, value)


def test_the_path_of_a_bad_default_is_given() -> None:
    inner = DataType(Kind.STRUCT, fields=(SchemaField("b", _INT), SchemaField("c", _INT)))
    field = SchemaField("a", DataType(Kind.LIST, fields=(SchemaField("item", inner),)))
    with pytest.raises(ConfigurationError, match=r"^a\[\]\.c: 'x' is no int32"):
        constant_bytes(field, [{"b": 1, "c": "x"}])
