"""Typed columns in Spark's types: which become which, and that their values stay the same."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from typing import Any

import numpy as np
import pytest

import kfast
from kfast.columns.arrow import CapsulePair
from kfast.columns.bytes import BytesColumn
from kfast.columns.column_arrow import arrow_of
from kfast.columns.column_data import ColumnData
from kfast.errors import ConfigurationError
from kfast.schemas.ddl import ddl_type, field_of_ddl
from kfast.schemas.schema import Schema
from kfast.schemas.types import Kind, SchemaField
from kfast.table.arrow_types import arrow_type
from kfast.table.projection import sql_type
from kfast.table.value_columns import Converted, convert
from kfast.table.value_types import (
    check_conversion,
    field_of_spark,
    in_spark,
    json_of,
    wanted_paths,
)

pa = pytest.importorskip("pyarrow")

ALL: dict[str, Any] = {
    "b": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32 not null",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f32": "float32",
    "f64": "float64",
    "s": "string",
    "ls": "large_string",
    "bin": "binary",
    "fix": "fixed_size_binary(3)",
    "d": "date32",
    "t32": "time32[ms]",
    "t64": "time64[us]",
    "dur": "duration[ms]",
    "ts": "timestamp[ms, UTC]",
    "tsn": "timestamp[ns]",
    "tss": "timestamp[s]",
    "dec": "decimal128(9, 2)",
    "wide": "decimal256(38, 1)",
    "id": "uuid",
    "side": "dictionary",
    "raw": "raw",
    "list": ["uint8"],
    "map": {str: "uuid"},
    "nested": [{"when": "timestamp[s, UTC]", "side": "dictionary"}],
}
TYPES = {
    "b": "boolean", "i8": "tinyint", "i16": "smallint", "i32": "int", "i64": "bigint",
    "u8": "smallint", "u16": "int", "u32": "bigint", "u64": "decimal(20,0)", "f32": "float",
    "f64": "double", "s": "string", "ls": "string", "bin": "binary", "fix": "binary", "d": "date",
    "t32": "bigint", "t64": "bigint", "dur": "bigint", "ts": "timestamp", "tsn": "timestamp_ntz",
    "tss": "timestamp_ntz", "dec": "decimal(9,2)", "wide": "decimal(38,1)", "id": "string",
    "side": "string", "raw": "string", "list": "array<smallint>", "map": "map<string,string>",
    "nested": "array<struct<when:timestamp,side:string>>",
}  # fmt: skip
ID = "12345678-9abc-def0-1234-56789abcdef0"
FULL: dict[str, Any] = {
    "b": True, "i8": -8, "i16": -16, "i32": -32, "i64": -(2**63), "u8": 255, "u16": 65535,
    "u32": 2**32 - 1, "u64": 2**64 - 1, "f32": 0.5, "f64": 0.1, "s": "ä", "ls": "l",
    "bin": "AAE=", "fix": "AAEC", "d": "2026-02-03", "t32": "01:02:03.004",
    "t64": "01:02:03.000004", "dur": 7, "ts": "2026-02-03T04:05:06.007Z",
    "tsn": "2026-02-03T04:05:06.000000008", "tss": "2026-02-03T04:05:06", "dec": -1.25,
    "wide": "12345678901234567890123456789012345.6", "id": ID, "side": "buy", "raw": {"a": [1]},
    "list": [1, None, 3], "map": {"k": ID, "l": None},
    "nested": [{"when": 1, "side": "x"}, None, {"when": None, "side": None}],
}  # fmt: skip
UTC = dt.UTC
EXPECTED: dict[str, Any] = {
    **FULL,
    "u64": decimal.Decimal(2**64 - 1),
    "bin": b"\0\1",
    "fix": b"\0\1\2",
    "d": dt.date(2026, 2, 3),
    "t32": 3_723_004,
    "t64": 3_723_000_004,
    "ts": dt.datetime(2026, 2, 3, 4, 5, 6, 7000, UTC),
    "tsn": dt.datetime(2026, 2, 3, 4, 5, 6),
    "tss": dt.datetime(2026, 2, 3, 4, 5, 6),
    "dec": decimal.Decimal("-1.25"),
    "wide": decimal.Decimal(FULL["wide"]),
    "raw": '{"a": [1]}',
    "map": [("k", ID), ("l", None)],
    "nested": [
        {"when": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "side": "x"},
        None,
        {"when": None, "side": None},
    ],
}
OTHER: dict[str, Any] = {"i32": 1, "side": "sell", "list": [], "nested": [{"side": "x"}]}


def node_of(schema: Any, documents: list[bytes | None]) -> ColumnData:
    made = kfast.Json(schema).deserialize_column(
        BytesColumn.from_values(documents), None, stop_at_first=True
    )
    assert made.first_bad < 0
    assert made.node is not None
    return made.node


def arrow(node: ColumnData, wanted: SchemaField | None = None) -> Any:
    """Return a column in Spark's types as Arrow, checked against the type that Spark expects."""
    wanted = wanted or in_spark(node.field, "value")
    check_conversion(node.field, wanted, "value")
    made = convert(node, wanted)
    assert made.bad == ()
    array = pa.array(CapsulePair(arrow_of(made.column, "", is_nullable=True)))
    array.validate(full=True)
    assert array.type.equals(arrow_type(json_of(wanted.type)), check_metadata=True), array.type
    return array


def struct_of(ddl: str) -> SchemaField:
    """Return the struct that columns in Spark's DDL are, with the names of Spark's Arrow form."""
    return in_spark(field_of_ddl(ddl), "value")


def test_every_type_has_one_in_spark() -> None:
    """TC-152."""
    root = Schema(ALL).root
    made = in_spark(root, "value")
    assert {f.name: sql_type(json_of(f.type)) for f in made.type.fields} == TYPES
    # The text that Spark parses, and the way back from its types, are the same.
    assert struct_of(", ".join(f"{f.name} {ddl_type(f, '')}" for f in root.type.fields)).type == (
        in_spark(Schema({**ALL, "i32": "int32"}).root, "").type
    )
    assert field_of_spark(json_of(made.type), "value") == made


def test_values_stay_the_same() -> None:
    """TC-152: also of null structs, and of rows that are a slice or picked."""
    documents = [json.dumps(row).encode() for row in (FULL, OTHER, FULL)]
    node = node_of(ALL, [documents[0], None, documents[1], b"null", documents[2]])
    nothing = dict.fromkeys(ALL)
    rows = [EXPECTED, None, {**nothing, **OTHER, "nested": [{"when": None, "side": "x"}]}, None]
    rows.append(EXPECTED)
    assert arrow(node).to_pylist() == rows
    assert arrow(node.select(slice(2, 5))).to_pylist() == rows[2:]
    picked = np.array([4, 1, 0])
    assert arrow(node.select(picked)).to_pylist() == [rows[4], None, rows[0]]
    assert arrow(node.select(slice(1, 2))).to_pylist() == [None]
    assert len(arrow(node_of(ALL, []))) == 0


def test_members_are_found_by_name() -> None:
    """TC-152: in any order, and wider numbers if the query says so."""
    schema = {"a": "int8", "b": "float32", "c": {"x": "uint8", "y": "string"}, "d": ["int16"]}
    node = node_of(schema, [b'{"a": -1, "b": 0.5, "c": {"x": 9, "y": "z"}, "d": [1, 2]}'])
    wanted = struct_of("d ARRAY<BIGINT>, c STRUCT<x: BIGINT>, b DOUBLE, a INT")
    assert arrow(node, wanted).to_pylist() == [{"d": [1, 2], "c": {"x": 9}, "b": 0.5, "a": -1}]


@pytest.mark.parametrize(
    ("ddl", "message", "hint"),
    [
        ("i64 INT", "value.i64 is bigint in the schema of the values, not int", "use that type"),
        ("s INT", "value.s is string in the schema of the values, not int", "use that type"),
        ("I64 BIGINT", "value.I64 is not in the schema of the values; did you mean i64?", "names"),
        ("nothing INT", "value.nothing is not in the schema of the values", "names of fields"),
        ("i64 BIGINT NOT NULL", "value.i64 is NOT NULL, and may be null", "leave NOT NULL out"),
        ("list BIGINT", "value.list is list in the schema of the values, not bigint", "use that"),
        ("list ARRAY<STRING>", "value.list[] is smallint in the schema", "use that type"),
        ("map MAP<STRING, INT>", "value.map{value} is string in the schema", "use that type"),
        ("nested ARRAY<STRUCT<x: INT>>", "value.nested[].x is not in the schema", "names of"),
        ("dec DECIMAL(9,3)", "value.dec is decimal(9,2) in the schema", "use that type"),
        ("ts TIMESTAMP_NTZ", "value.ts is timestamp in the schema", "use that type"),
    ],
)
def test_what_cannot_become_another(ddl: str, message: str, hint: str) -> None:
    """TC-152: is refused by its path, with both types."""
    with pytest.raises(ConfigurationError) as raised:
        check_conversion(Schema(ALL).root, struct_of(ddl), "value")
    assert raised.value.message.startswith(message)
    assert (raised.value.hint or "").startswith(hint)


def test_a_decimal_with_too_many_digits() -> None:
    """TC-152."""
    with pytest.raises(ConfigurationError, match=r"value\.d has 39 digits, and decimals of Spark"):
        in_spark(Schema({"d": "decimal256(39, 0)"}).root, "value")


@pytest.mark.parametrize(
    ("json_type", "message"),
    [
        ("void", "value is void, which no value of a record has"),
        ("interval day to second", "value is interval day to second, which no"),
        ({"type": "struct", "fields": []}, "value is a struct without fields"),
        (
            {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True},
            "keys of value are bigint",
        ),
        (
            {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True}] * 2},
            "value.a is in the schema twice",
        ),
    ],
)
def test_types_that_no_value_has(json_type: Any, message: str) -> None:
    """TC-152."""
    with pytest.raises(ConfigurationError) as raised:
        field_of_spark(json_type, "value")
    assert raised.value.message.startswith(message)
    assert raised.value.hint


def test_a_type_nested_too_deep() -> None:
    """TC-152: ends in an error."""
    nested: Any = "long"
    for _ in range(100):
        nested = {"type": "array", "elementType": nested, "containsNull": True}
    with pytest.raises(ConfigurationError, match="more than 64 levels"):
        field_of_spark(nested, "value")


def test_a_time_that_microseconds_cannot_hold() -> None:
    """TC-153: its row is known, in lists and maps too."""
    large, small = 2**63 - 1, -(2**63) + 1
    schema = {"t": "timestamp[s]", "l": [{"u": "timestamp[ms, UTC]"}], "m": {str: "timestamp[s]"}}
    documents = [
        b'{"t": 1}',
        b'{"t": %d}' % large,
        b'{"l": [{"u": 1}, {"u": %d}]}' % small,
        None,
        b'{"l": [{"u": 1}], "m": {"a": 1, "b": %d}}' % large,
        b'{"l": [], "m": {}}',
    ]
    node = node_of(schema, documents)
    made: Converted = convert(node, in_spark(node.field, "value"))
    found = {bad.path: bad.rows.tolist() for bad in made.bad}
    assert found == {"t": [1], "l[].u": [2], "m{value}": [4]}
    rest = node.select(slice(2, 5))
    made = convert(rest, in_spark(node.field, "value"))
    assert {bad.path: bad.rows.tolist() for bad in made.bad} == {"l[].u": [0], "m{value}": [2]}


def test_paths_of_what_is_wanted() -> None:
    """TC-154: for deserializers that leave out the rest."""
    wanted = struct_of("a INT, b STRUCT<c: INT, d: ARRAY<STRUCT<e: INT>>>, m MAP<STRING, INT>")
    assert wanted_paths(wanted) == ["a", "b.c", "b.d[].e", "m{value}"]
    assert wanted_paths(struct_of("a INT, `b.c` INT")) is None
    assert wanted_paths(SchemaField("", Schema("float64").root.type)) is None


def test_uuids_of_a_plain_deserializer() -> None:
    """TC-152."""
    from kfast.table.value_columns import node_of_uuids  # noqa: PLC0415 - beside what it makes

    raw = [uuid.UUID(ID).bytes, None]
    column: Any = (
        kfast.Uuid()
        .deserialize_column(BytesColumn.from_values(raw), None, stop_at_first=True)
        .values
    )
    node = node_of_uuids(column.data, column.is_null)
    assert node.field.type.kind is Kind.UUID
    assert arrow(node).to_pylist() == [ID, None]
