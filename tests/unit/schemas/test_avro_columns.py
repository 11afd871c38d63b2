"""Avro schemas as trees of columns, and which of them are wanted."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from kfast.errors import ConfigurationError
from kfast.schemas.avro_columns import columns_of, only
from kfast.schemas.avro_text import parse_avro
from kfast.schemas.selection import select
from tests.unit.schemas.avro_records import record


def columns(schema: Any, wanted: list[str] | None = None) -> str:
    return columns_of(only(parse_avro(json.dumps(schema)), select(wanted))).type_text


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("boolean", "bool"),
        ("int", "int32"),
        ("long", "int64"),
        ("float", "float32"),
        ("double", "float64"),
        ("bytes", "binary"),
        ("string", "string"),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, "dictionary"),
        ({"type": "fixed", "name": "F", "size": 3}, "fixed_size_binary(3)"),
        (
            {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
            "fixed_size_binary(12)",
        ),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "uuid"),
        ({"type": "string", "logicalType": "uuid"}, "uuid"),
        ({"type": "int", "logicalType": "date"}, "date32"),
        ({"type": "int", "logicalType": "time-millis"}, "time32[ms]"),
        ({"type": "long", "logicalType": "time-micros"}, "time64[us]"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp[ms, UTC]"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp[ns, UTC]"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp[us]"),
        (decimal(38, 4), "decimal128(38, 4)"),
        (decimal(39, 0), "decimal256(39, 0)"),
        (
            {
                "type": "fixed",
                "name": "F",
                "size": 8,
                "logicalType": "decimal",
                "precision": 18,
                "scale": 2,
            },
            "decimal128(18, 2)",
        ),
        ({"type": "array", "items": ["null", "int"]}, "list<int32>"),
        ({"type": "map", "values": "int"}, "map<string, int32 not null>"),
        (
            record("R", a="int", b=["null", "string"], c=["long", "null"], d=["int"]),
            "struct<a: int32 not null, b: string, c: int64, d: int32 not null>",
        ),
        (
            record("R", a=["null", record("S", x={"type": "array", "items": "double"})]),
            "struct<a: struct<x: list<float64 not null> not null>>",
        ),
    ],
)
def test_columns_of_types(schema: Any, column: str) -> None:
    """TC-60."""
    assert columns(schema) == column


TREE = record(
    "Order",
    id="long",
    order=["null", record("Inner", price="double", side="string")],
    lines={"type": "array", "items": record("Line", sku="string", qty="int")},
    tags={"type": "map", "values": record("Tag", a="int", b="int")},
    odd=["null", "int", "string"],
    parent=["null", "Order"],
    none="null",
    nothing={"type": "record", "name": "Empty", "fields": []},
    zero={"type": "fixed", "name": "Zero", "size": 0},
)


@pytest.mark.parametrize(
    ("wanted", "column"),
    [
        (["id"], "struct<id: int64 not null>"),
        (["order.price", "id"], "struct<id: int64 not null, order: struct<price: float64 not nul"),
        (["order", "order.price"], "struct<order: struct<price: float64 not null, side: string"),
        (["order.price", "order"], "struct<order: struct<price: float64 not null, side: string"),
        (["lines[].sku"], "struct<lines: list<struct<sku: string not null> not null> not null>"),
        (["lines"], "struct<lines: list<struct<sku: string not null, qty: int32 not null>"),
        (["tags{value}.b"], "struct<tags: map<string, struct<b: int32 not null> not null> not nul"),
    ],
)
def test_the_wanted_columns_keep_the_nested_shape(wanted: list[str], column: str) -> None:
    """TC-62: what is not wanted may be anything."""
    assert columns(TREE, wanted).startswith(column)


def test_items_of_a_root_are_wanted() -> None:
    assert columns({"type": "array", "items": TREE}, ["[].id"]).startswith("list<struct<id: int64")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["odd"], r"odd is no column: \[null, int, string\] has several types besides null"),
        (["id", "parent"], "parent is no column: record Order contains itself"),
        (["none"], "none is no column: null has no values"),
        (["nothing"], "nothing is no column: record Empty has no fields"),
        (["zero"], "zero is no column: fixed Zero of 0 bytes has no bytes"),
        (None, "odd is no column"),
    ],
)
def test_what_is_no_column_is_refused_with_the_path(wanted: list[str], message: str) -> None:
    """TC-62."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        columns(TREE, wanted)
    assert "columns=[...]" in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["ids"], 'columns has "ids", and the root is record Order\ntry: did you mean "id"?'),
        (["order.prize"], 'did you mean "order.price"?'),
        (["lines.sku"], r'columns has "lines.sku", and lines is array of record Line'),
        (["lines.sku"], r'try: write "lines\[\]"'),
        (["id.x"], 'columns has "id.x", and id is long'),
        (["odd.x"], "odd is null|odd is int"),
        ([], "columns has no path"),
        ("id", r"try: columns=\['id'\]"),
        ([""], "is no path"),
        (["a..b"], "is no path"),
        (["a[]b"], "is no path"),
        (["a{key}"], "is no path"),
        ([3], "is no path"),
        (["a." * 1000 + "a"], "is no path"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(wanted: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        columns(TREE, wanted)


def test_a_schema_that_multiplies_has_too_many_columns() -> None:
    """TC-61: a few lines can name more columns than fit into memory."""
    begin = time.process_time()
    doubled: Any = record("R0", a="int")
    for level in range(1, 60):
        doubled = record(f"R{level}", a=doubled, b=f"R{level - 1}")
    with pytest.raises(ConfigurationError, match="more than 10000 columns"):
        columns(doubled)
    assert time.process_time() - begin < 2
