"""Types of typed columns: their names and the order of their nodes."""

from __future__ import annotations

import pickle

import pytest

from kfast.schemas.types import FIXED_WIDTHS, DataType, Kind, SchemaField

_INT = DataType(Kind.INT32)
_TEXT = DataType(Kind.STRING)
_LINES = DataType(
    Kind.LIST,
    fields=(
        SchemaField(
            "item",
            DataType(
                Kind.STRUCT,
                fields=(SchemaField("sku", _TEXT), SchemaField("qty", _INT, is_nullable=False)),
            ),
        ),
    ),
)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (_INT, "int32"),
        (DataType(Kind.STRING, is_large=True), "large_string"),
        (DataType(Kind.TIME32, unit="ms"), "time32[ms]"),
        (DataType(Kind.TIMESTAMP, unit="us", is_utc=True), "timestamp[us, UTC]"),
        (DataType(Kind.TIMESTAMP, unit="ns"), "timestamp[ns]"),
        (DataType(Kind.DECIMAL128, precision=18, scale=4), "decimal128(18, 4)"),
        (DataType(Kind.FIXED_BINARY, size=12), "fixed_size_binary(12)"),
        (_LINES, "list<struct<sku: string, qty: int32 not null>>"),
        (
            DataType(
                Kind.MAP,
                fields=(SchemaField("key", _TEXT, is_nullable=False), SchemaField("value", _INT)),
            ),
            "map<string, int32>",
        ),
    ],
)
def test_text_of_a_type_is_its_name_in_schemas(made: DataType, text: str) -> None:
    assert str(made) == text


def test_nodes_are_in_preorder_with_their_paths() -> None:
    root = SchemaField(
        "",
        DataType(Kind.STRUCT, fields=(SchemaField("id", _INT), SchemaField("lines", _LINES))),
    )
    assert [path for path, _ in root.nodes()] == [
        "", "id", "lines", "lines[]", "lines[].sku", "lines[].qty"
    ]  # fmt: skip


def test_types_are_values() -> None:
    assert pickle.loads(pickle.dumps(_LINES)) == _LINES
    assert len({_LINES, pickle.loads(pickle.dumps(_LINES))}) == 1


def test_width_is_the_size_for_fixed_binary_and_zero_without_one() -> None:
    assert DataType(Kind.FIXED_BINARY, size=12).width == 12
    assert _TEXT.width == 0
    assert all(DataType(kind).width == width for kind, width in FIXED_WIDTHS.items())
