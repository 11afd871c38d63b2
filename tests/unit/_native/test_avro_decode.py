"""Avro's bytes, rule by rule; random schemas and values are in tests/property."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from kfast._native import avro_decode
from kfast.errors import ConfigurationError
from kfast.schemas.avro_columns import only
from kfast.schemas.avro_plan import AvroPlan, AvroTarget, compile_plan, target_of
from kfast.schemas.avro_text import parse_avro
from kfast.schemas.selection import select
from tests.property.avro_rows import NULL, RAISE, decode
from tests.reference.avro_encoder import encode, long, sized
from tests.unit._native.one_row import row_of
from tests.unit.schemas.avro_records import record

EMPTY, TRUNCATED, TRAILING, SYNTAX, UTF8, TYPE, RANGE = range(1, 8)
DEPTH, UNKNOWN_SCHEMA, ENUM, UNION, TOO_LARGE = 10, 12, 15, 16, 17
LIST_OF_INT = {"type": "array", "items": "int"}


def plan_of(
    writer: Any, reader: Any = None, columns: list[str] | None = None, max_depth: int = 64
) -> tuple[AvroTarget, AvroPlan]:
    parsed = parse_avro(json.dumps(writer))
    wanted = parsed if reader is None else parse_avro(json.dumps(reader))
    target = target_of(only(wanted, select(columns)))
    return target, compile_plan(parsed, target, max_depth)


def one(writer: Any, value: bytes, reader: Any = None, **more: Any) -> Any:
    """The value of one row; of a bad one code and position."""
    target, plan = plan_of(writer, reader, **more)
    depth = more.get("max_depth", 64)
    return row_of(lambda values: decode(target, [plan], values, max_depth=depth), value)


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        ("int", "00", 0),
        ("int", "01", -1),
        ("int", "feffffff0f", 2**31 - 1),
        ("int", "ffffffff0f", -(2**31)),
        ("int", "8000", 0),
        ("int", "8080808000", 0),
        ("int", "8080808010", (RANGE, 0)),
        ("int", "808080808000", (RANGE, 0)),
        ("int", "80808080808080808000", (RANGE, 0)),
        ("int", "ffffffffffffffffff01", (RANGE, 0)),
        ("int", "80", (TRUNCATED, 1)),
        ("int", "80808080", (TRUNCATED, 4)),
        ("long", "feffffffffffffffff01", 2**63 - 1),
        ("long", "ffffffffffffffffff01", -(2**63)),
        ("long", "ffffffffffffffff7f", -(2**62)),
        ("long", "80808080808080808000", 0),
        ("long", "ffffffffffffffffff02", (RANGE, 0)),
        ("long", "8080808080808080808000", (RANGE, 0)),
        ("long", "ffffffffffffffff", (TRUNCATED, 8)),
        ("long", "ffffffffffffffffff", (TRUNCATED, 9)),
        ("long", "", (EMPTY, 0)),
        ("long", "0000", (TRAILING, 1)),
        ("boolean", "01", True),
        ("boolean", "02", (TYPE, 0)),
        ("float", "0000c03f", 1.5),
        ("float", "0000c0", (TRUNCATED, 3)),
        ("double", "000000000000f83f", 1.5),
        ("double", "000000000000f8", (TRUNCATED, 7)),
        ("string", "0ac3a9c3a961", "éé" + "a"),
        ("string", "02ff", (UTF8, 1)),
        ("string", "06eda080", (UTF8, 1)),
        ("string", "0461", (TRUNCATED, 2)),
        ("string", "0161", (RANGE, 0)),
        ("string", "ffffffffffffffffff01", (RANGE, 0)),
        ("string", "feffffffffffffffff01", (TRUNCATED, 10)),
        ("bytes", "02ff", b"\xff"),
        ("bytes", "feffffffffffffffff01", (TRUNCATED, 10)),
        (["null", "int"], "0402", (UNION, 0)),
        (["null", "int"], "0102", (UNION, 0)),
        (["null", "int"], "800002", None),
        (["int"], "0202", (UNION, 0)),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "02", "b"),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "04", (ENUM, 0)),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "01", (ENUM, 0)),
        ({"type": "fixed", "name": "F", "size": 2}, "6162", b"ab"),
        ({"type": "fixed", "name": "F", "size": 2}, "61", (TRUNCATED, 1)),
        ({"type": "int", "logicalType": "time-millis"}, "01", (RANGE, 0)),
        ({"type": "int", "logicalType": "time-millis"}, "80f0b252", (RANGE, 0)),
        ({"type": "long", "logicalType": "timestamp-micros"}, "fdffffffffffffffff01", 1 - 2**63),
        ({"type": "long", "logicalType": "timestamp-micros"}, "ffffffffffffffffff01", (RANGE, 0)),
        ({"type": "string", "logicalType": "uuid"}, "0261", (TYPE, 0)),
    ],
)
def test_bytes_of_a_value(kind: Any, value: str, result: Any) -> None:
    """TC-65, TC-67, TC-69, TC-70: varints, lengths, indexes, text, bytes left."""
    raw = bytes.fromhex(value)
    if (kind, value) == (["null", "int"], "800002"):
        result = (TRAILING, 2)
    assert one(kind, raw) == result
    if isinstance(result, tuple) and result[0] in {RANGE, UTF8, TYPE, ENUM, UNION}:
        # The same with more behind it, where eight bytes can be loaded at once.
        behind = record("R", a=kind, b={"type": "fixed", "name": "Behind", "size": 20})
        assert one(behind, raw + bytes(20)) == result
    # And with another row behind it in the same memory: a value never goes on there.
    target, plan = plan_of(kind)
    (row, _), errors = decode(target, [plan], [raw, bytes(20)])
    assert result == (errors[0][2], errors[0][1]) if errors[0][0] == 0 else row == result


def test_one_row_is_decoded_however_little_memory_there_is() -> None:
    """TC-53: a chunk is cut at a row, not before the first one."""
    target, plan = plan_of(record("R", a="int"))
    assert decode(target, [plan], [b"\2", b"\4"], most_bytes=1)[0] == [{"a": 1}]


@pytest.mark.parametrize("size", [*range(50), 100, 1000])
def test_text_of_all_sizes_beside_other_bytes(size: int) -> None:
    """TC-70: what stands behind a text does not make it more than ASCII, nor less."""
    schema = record("R", a="string", b="bytes")
    for text in ("x" * size, "x" * size + "é", "é" + "x" * size):
        value = sized(text.encode()) + sized(b"\xff" * 20)
        assert one(schema, value) == {"a": text, "b": b"\xff" * 20}
    for at in range(size):
        bad = b"x" * at + b"\xff" + b"x" * (size - at - 1)
        assert one(schema, sized(bad) + sized(b"\xff" * 20)) == (UTF8, len(long(size)))
        assert one("string", sized(bad)) == (UTF8, len(long(size)))


def test_blocks_of_a_list() -> None:
    """TC-66: several blocks, negative counts with sizes, empty ones."""
    items = [long(1), long(-2), long(300)]
    whole = b"".join(items)
    for value in (
        long(3) + whole + long(0),
        long(1) + items[0] + long(2) + items[1] + items[2] + long(0),
        long(-3) + sized(whole) + long(0),
        long(-1) + sized(items[0]) + long(2) + items[1] + items[2] + long(0),
    ):
        assert one(LIST_OF_INT, value) == [1, -2, 300]
        # Skipped, in front of another value.
        both = record("R", a=LIST_OF_INT, b="int")
        assert one(both, value + long(7), columns=["b"]) == {"b": 7}
    assert one(LIST_OF_INT, long(0)) == []


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (long(3) + b"\2\2", (TRUNCATED, 3)),
        (long(2) + b"\2\2", (TRUNCATED, 3)),
        (long(1 << 60) + b"\2\2", (TRUNCATED, 11)),
        (long(-(1 << 63)) + b"\2\2", (RANGE, 0)),
        (long(-2) + long(3) + b"\2\2" + long(0), (SYNTAX, 4)),
        (long(-2) + long(1) + b"\2\2" + long(0), (SYNTAX, 4)),
        (long(-2) + long(-1) + b"\2\2" + long(0), (RANGE, 1)),
        (long(-2) + long(100) + b"\2\2" + long(0), (TRUNCATED, 6)),
    ],
)
def test_counts_and_sizes_of_blocks_that_are_wrong(value: bytes, result: Any) -> None:
    """TC-66."""
    code, position = one(LIST_OF_INT, value)
    assert code == result[0]
    assert position <= len(value)


EMPTY_RECORD = {"type": "record", "name": "Nothing", "fields": []}


@pytest.mark.parametrize(
    "empty", ["null", EMPTY_RECORD, {"type": "fixed", "name": "F", "size": 0}], ids=str
)
def test_items_without_bytes_are_bounded(empty: Any) -> None:
    """TC-66: a count of 2^60 costs neither time nor memory, skipped or not."""
    schema = record("R", a={"type": "array", "items": empty}, b="int")
    begin = time.process_time()
    many = long(1 << 60) + long(0) + long(7)
    assert one(schema, many, columns=["b"]) == (TOO_LARGE, 0)
    twice = long(1 << 19) + long((1 << 19) + 1) + long(0) + long(7)
    assert one(schema, twice, columns=["b"])[0] == TOO_LARGE
    enough = long(1 << 20) + long(0) + long(7)
    assert one(schema, enough, columns=["b"]) == {"b": 7}
    assert time.process_time() - begin < 1


def test_items_without_bytes_have_defaults_in_the_reader() -> None:
    """TC-64, TC-66: what the row would have is bounded, too."""
    writer = record("R", a={"type": "array", "items": EMPTY_RECORD})
    inner = {**record("Nothing", text="string")}
    inner["fields"][0]["default"] = "x" * 1000
    reader = record("R", a={"type": "array", "items": inner})
    assert one(writer, long(2) + long(0), reader) == {"a": [{"text": "x" * 1000}] * 2}
    begin = time.process_time()
    assert one(writer, long(1 << 20) + long(0), reader)[0] == TOO_LARGE
    assert time.process_time() - begin < 2


def decimal(precision: int, scale: int, size: int = 0) -> dict[str, Any]:
    made = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return {**made, "type": "fixed", "name": "D", "size": size} if size else made


@pytest.mark.parametrize(
    ("precision", "unscaled", "size", "fits"),
    [
        (4, 9999, 2, True),
        (4, -9999, 2, True),
        (4, 10_000, 2, False),
        (4, -10_000, 2, False),
        (4, 0, 1, True),
        (4, -1, 40, True),
        (4, 1, 40, True),
        (38, 10**38 - 1, 16, True),
        (38, -(10**38) + 1, 17, True),
        (38, 10**38, 16, False),
        (38, 1 << 200, 32, False),
        (39, 10**39 - 1, 17, True),
        (76, 10**76 - 1, 32, True),
        (76, 1 - 10**76, 33, True),
        (76, -(1 << 255), 32, False),
        (76, 1 << 255, 33, False),
        (76, 1 << 256, 40, False),
        (76, -(1 << 256), 40, False),
    ],
)
def test_decimals(precision: int, unscaled: int, size: int, fits: bool) -> None:
    """TC-68: exact to the last digit, whatever the bytes; too many digits are out of range."""
    raw = unscaled.to_bytes(size, "big", signed=True)
    sign = int(unscaled < 0)
    value = Decimal((sign, tuple(map(int, str(abs(unscaled)))), -2))
    assert one(decimal(precision, 2), sized(raw)) == (value if fits else (RANGE, 0))
    if size * 8 - 1 > 3.33 * precision:
        assert one(decimal(precision, 2, size), raw) == (value if fits else (RANGE, 0))


def test_a_decimal_of_no_bytes_is_out_of_range() -> None:
    """TC-68."""
    assert one(decimal(4, 2), sized(b"")) == (RANGE, 0)


NODE = record("Node", value="int", next=["null", "Node"])


def chain(length: int) -> bytes:
    return (long(7) + long(1)) * length + long(7) + long(0)


def test_a_record_in_itself_is_skipped_as_deep_as_allowed() -> None:
    """TC-73."""
    schema = record("R", a=NODE, b="int")
    assert one(schema, chain(50) + long(3), columns=["b"]) == {"b": 3}
    assert one(schema, chain(100) + long(3), columns=["b"], max_depth=200) == {"b": 3}
    assert one(schema, chain(100) + long(3), columns=["b"])[0] == DEPTH
    assert one(schema, chain(100_000) + long(3), columns=["b"])[0] == DEPTH
    endless = record("R", a=record("Loop", loop="Loop"), b="int")
    assert one(endless, long(3), columns=["b"])[0] == DEPTH
    with pytest.raises(ConfigurationError, match=r"a\.next is no column: record Node contains"):
        plan_of(schema)


def test_a_schema_deeper_than_allowed_is_refused() -> None:
    nested: Any = "int"
    for _ in range(9):
        nested = {"type": "array", "items": nested}
    value = long(1) * 9 + long(7) + long(0) * 9
    assert one(nested, value, max_depth=10) == [[[[[[[[[7]]]]]]]]]
    with pytest.raises(ConfigurationError, match="10 levels, more than max_depth=9"):
        one(nested, value, max_depth=9)


def test_a_record_that_multiplies_is_skipped_by_calls() -> None:
    """TC-61: the plan has the size of the schema's text."""
    inner: Any = record("R0", a="null")
    for level in range(1, 60):
        inner = record(f"R{level}", a=inner, b=f"R{level - 1}")
    target, plan = plan_of(record("Top", a=["null", inner], b="int"), columns=["b"])
    assert len(plan) < 500
    assert decode(target, [plan], [b"\0\6"])[0] == [{"b": 3}]


def test_skipped_parts_are_read_over() -> None:
    """TC-71: all kinds of types, in one row of several."""
    skipped = record(
        "S",
        a="boolean",
        b="float",
        c="double",
        d={"type": "fixed", "name": "F", "size": 3},
        e={"type": "enum", "name": "E", "symbols": ["a", "b"]},
        f=["int", "string", "null"],
        g={"type": "map", "values": ["null", "double"]},
        h="string",
        i="null",
    )
    schema = record("R", s={"type": "array", "items": skipped}, z="long")
    value = {
        "s": [
            {
                **{"a": True, "b": 1.5, "c": 2.5, "d": b"abc", "e": "b", "f": (branch, inner)},
                **{"g": {"k": (1, 0.5), "l": (0, None)}, "h": "text", "i": None},
            }
            for branch, inner in ((0, 5), (1, "five"), (2, None))
        ],
        "z": -9,
    }
    raw = encode(schema, value)
    assert one(schema, raw, columns=["z"]) == {"z": -9}
    assert one(schema, raw[:-1], columns=["z"])[0] == TRUNCATED
    bad = record("R", s=record("S", a="boolean"), z="int")
    assert one(bad, b"\2\0", columns=["z"]) == (TYPE, 0)
    bad = record("R", s=["int", "string", "long"], z="int")
    assert one(bad, b"\6\0\0", columns=["z"]) == (UNION, 0)
    bad = record("R", s={"type": "enum", "name": "E", "symbols": ["a"]}, z="int")
    assert one(bad, b"\2\0", columns=["z"]) == (ENUM, 0)


def test_an_error_names_node_and_items() -> None:
    """TC-74: the last field of the last item of the last row; all of the row is rolled back."""
    line = record("Line", sku="string", qty={"type": "array", "items": "boolean"})
    schema = record("R", id="int", lines={"type": "array", "items": line})
    target, plan = plan_of(schema)
    good = encode(schema, {"id": 1, "lines": [{"sku": "a", "qty": [True]}] * 3})
    bad = good[:-3] + b"\5" + good[-2:]
    rows, errors = decode(target, [plan], [good, bad, good, bad])
    assert rows[1] is rows[3] is None
    assert rows[0] == rows[2]
    node = target.paths.index("lines[].qty[]")
    at = len(good) - 3
    assert errors == [(1, at, TYPE, node, 0, 2, 0), (3, at, TYPE, node, 0, 2, 0)]
    rows, errors = decode(target, [plan], [good, bad, good, bad], RAISE)
    assert len(rows) == 1
    assert len(errors) == 1


def test_rows_name_their_plans_and_prefixes() -> None:
    """TC-72: several writers' schemas in one batch, in the order of the rows."""
    target, first = plan_of("long")
    second = compile_plan(parse_avro("int"), target, 64)
    values = [b"xx\2", b"\4", b"xx\6", None, b"xx", b"x", b"\2"]
    rows, errors = decode(
        target,
        [first, second],
        values,
        row_plans=np.array([0, 1, 0, -UNKNOWN_SCHEMA, 1, 0, -UNKNOWN_SCHEMA], np.int32),
        prefixes=np.array([2, 0, 2, 0, 2, 2, 0], np.int32),
    )
    assert rows == [1, 2, 3, None, None, None, None]
    assert [error[:5] for error in errors] == [
        (4, 2, EMPTY, 0, 1),
        (5, 1, TRUNCATED, 0, 0),
        (6, 0, UNKNOWN_SCHEMA, 0, -1),
    ]


def test_a_value_without_bytes_is_one_of_a_record_without_fields() -> None:
    """TC-74: empty is not null."""
    reader = record("R", a="int")
    reader["fields"][0]["default"] = 5
    assert one(record("R"), b"", reader) == {"a": 5}
    assert one(record("R", a="int"), b"", reader) == (EMPTY, 0)


def test_decoding_ends_where_memory_does() -> None:
    target, plan = plan_of("string")
    values = [sized(b"x" * 1000)] * 5000
    rows, errors = decode(target, [plan], values, most_bytes=2_000_000)
    assert not errors
    assert 0 < len(rows) < len(values)
    # However little there is, one row comes at a time.
    assert decode(target, [plan], values[:2], most_bytes=0)[0] == ["x" * 1000]


def test_arguments_that_do_not_fit_are_refused() -> None:
    target, plan = plan_of("int")
    spans = (b"\2", np.zeros(1, np.int32), np.ones(1, np.int32), NULL)
    ready = (plan.ops, plan.tables, plan.constants)
    arguments: tuple[tuple[list[Any], dict[str, Any]], ...] = (
        ([], {}),
        ([ready], {"row_plans": np.ones(1, np.int32)}),
        ([ready], {"row_plans": np.zeros(2, np.int32)}),
        ([ready], {"prefixes": np.zeros(2, np.int32)}),
        ([(plan.ops[:3], plan.tables, plan.constants)], {}),
    )
    for plans, more in arguments:
        with pytest.raises(ValueError, match=r"plan|prefix"):
            avro_decode.decode(target.layout, target.symbols, plans, *spans, **more)
