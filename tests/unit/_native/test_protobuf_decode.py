"""Protobuf's bytes, rule by rule; random schemas and messages are in tests/property."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from kfast._native import protobuf_decode
from kfast.schemas.proto_schema import parse_proto
from kfast.schemas.protobuf_columns import message_columns
from kfast.schemas.protobuf_plan import ProtobufPlan, compile_plan
from kfast.schemas.selection import select
from tests.property.protobuf_rows import NULL, RAISE, decode
from tests.property.protobuf_schemas import sized, tag, text_field, varint
from tests.unit._native.one_row import row_of

TRUNCATED, SYNTAX, UTF8, TYPE, RANGE, MISSING = 2, 4, 5, 6, 7, 8
DEPTH, MAGIC, SCHEMA, TOO_LARGE = 10, 11, 13, 17


def plan_of(text: str, columns: list[str] | None = None, **how: Any) -> ProtobufPlan:
    """The plan of message M; a text without a syntax is proto3."""
    if not text.startswith("syntax"):
        text = 'syntax = "proto3";' + text
    pool = parse_proto(text)
    return compile_plan(message_columns(pool, "M", columns=select(columns), **how))


def one(plan: ProtobufPlan | str, value: bytes | str, **more: Any) -> Any:
    """The value of one row; of a bad one code and position."""
    if isinstance(plan, str):
        plan = plan_of(f"message M {{ {plan} }}")
    if isinstance(value, str):
        value = bytes.fromhex(value)
    return row_of(lambda values: decode(plan, values, **more), value)


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        ("int32", "08 01", 1),
        ("int32", "08 ff ff ff ff ff ff ff ff ff 01", -1),
        ("int32", "08 ff ff ff ff 0f", -1),
        ("int32", "08 81 80 80 80 20", 1),
        ("int32", "08 80 80 80 80 80 80 80 80 80 00", 0),
        ("int32", "08 80 80 80 80 80 80 80 80 80 80 00", (SYNTAX, 1)),
        ("int32", "08 80", (TRUNCATED, 2)),
        ("int32", "08", (TRUNCATED, 1)),
        ("int32", "08 01 08 02", 2),
        ("int64", "08 ff ff ff ff ff ff ff ff 7f", 2**63 - 1),
        ("int64", "08 ff ff ff ff ff ff ff ff ff 7f", -1),
        ("uint64", "08 ff ff ff ff ff ff ff ff ff 01", 2**64 - 1),
        ("uint32", "08 ff ff ff ff ff ff ff ff ff 01", 2**32 - 1),
        ("sint32", "08 03", -2),
        ("sint32", "08 ff ff ff ff 0f", -(2**31)),
        ("sint64", "08 ff ff ff ff ff ff ff ff ff 01", -(2**63)),
        ("bool", "08 02", True),
        ("bool", "08 80 80 80 80 80 80 80 80 80 01", True),
        ("bool", "08 80 00", False),
        ("fixed64", "09 ff ff ff ff ff ff ff ff", 2**64 - 1),
        ("fixed64", "09 ff ff ff ff ff ff ff", (TRUNCATED, 8)),
        ("sfixed32", "0d ff ff ff ff", -1),
        ("fixed32", "0d ff ff ff", (TRUNCATED, 4)),
        ("float", "0d 00 00 c0 3f", 1.5),
        ("double", "09 00 00 00 00 00 00 f8 3f", 1.5),
        ("string", "0a 02 c3 a9", "é"),
        ("string", "0a 01 ff", (UTF8, 2)),
        ("string", "0a 03 ed a0 80", (UTF8, 2)),
        ("string", "0a 02 61", (TRUNCATED, 3)),
        ("string", "0a ff ff ff ff 0f", (TRUNCATED, 6)),
        ("string", "0a ff ff ff ff 1f", (SYNTAX, 1)),
        ("string", "0a 80 80 80 80 80 00", (SYNTAX, 1)),
        ("string", "0a 01 61 0a 00", ""),
        ("bytes", "0a 01 ff", b"\xff"),
        ("int32", "8a", (TRUNCATED, 1)),
        ("int32", "88 80 80 80 00 07", 7),
        ("int32", "88 80 80 80 80 00 07", (SYNTAX, 0)),
        ("int32", "88 80 80 80 10 07", (SYNTAX, 0)),
        ("int32", "00 01", (SYNTAX, 0)),
        ("int32", "08 01 07", (SYNTAX, 2)),
        ("int32", "0e", (SYNTAX, 0)),
        ("int32", "0f", (SYNTAX, 0)),
        ("int32", "16", (SYNTAX, 0)),
        ("int32", "0c", (SYNTAX, 0)),
        ("int32", "0a 01 01", (TYPE, 0)),
        ("int32", "18 00 09 00 00 00 00 00 00 00 00", (TYPE, 2)),
        ("string", "08 01", (TYPE, 0)),
        ("string", "0b 0c", (TYPE, 0)),
        ("int32", "", 0),
    ],
)
def test_bytes_of_a_value(kind: str, value: str, result: Any) -> None:
    """TC-88, TC-92, TC-93, TC-94."""
    raw = bytes.fromhex(value)
    found = one(f"{kind} a = 1;", raw)
    assert found == (result if isinstance(result, tuple) else {"a": result})
    if not isinstance(result, tuple) or result[0] != TRUNCATED:
        # The same with more behind it, where more bytes can be loaded at once.
        plan = plan_of(f"message M {{ {kind} a = 1; bytes b = 2; }}")
        found = one(plan, raw + text_field(2, bytes(20)))
        expected = result if isinstance(result, tuple) else {"a": result, "b": bytes(20)}
        assert found == expected


def test_zero_bytes_are_a_message_and_null_is_null() -> None:
    """TC-91: a row of defaults, not a null row."""
    plan = plan_of(
        "enum E { Z = 0; A = 1; } message S { int32 x = 1; }"
        "message M { int32 a = 1; string b = 2; E c = 3; S d = 4; optional int32 e = 5;"
        " repeated int32 f = 6; map<string, S> g = 7; oneof o { int32 h = 8; } bytes i = 9; }"
    )
    rows, errors = decode(plan, [b"", None])
    assert not errors
    assert rows == [
        {
            "a": 0, "b": "", "c": "Z", "d": None, "e": None, "f": [], "g": {}, "h": None, "i": b"",
        },
        None,
    ]  # fmt: skip


def test_declared_defaults() -> None:
    """TC-91: of proto2, of all kinds."""
    text = (
        'syntax = "proto2"; enum E { A = 1; B = 2; }'
        'message M { optional int32 a = 1 [default = -7]; optional string b = 2 [default = "x"];'
        " optional E c = 3 [default = B]; optional double d = 4 [default = -0.0];"
        " optional bool e = 5 [default = true]; optional int32 f = 6; optional bytes g = 7"
        ' [default = "\\377"]; optional E h = 8 [default = A]; }'
    )
    ((row,), _) = decode(plan_of(text), [b""])
    assert repr(row) == repr(
        {"a": -7, "b": "x", "c": "B", "d": -0.0, "e": True, "f": None, "g": b"\xff", "h": "A"}
    )
    ((row,), _) = decode(plan_of(text, absent="null"), [b""])
    assert set(row.values()) == {None}
    assert one(plan_of(text, absent="null"), "08 00")["a"] == 0
    assert "absent: CONSTANT      a" in repr(plan_of(text))


def test_the_default_of_an_enum_is_the_first_name_of_its_number() -> None:
    """TC-91, TC-95: as on the wire."""
    text = (
        'syntax = "proto2"; enum E { option allow_alias = true; A = 0; ONE = 1; UNO = 1; }'
        " message M { optional E a = 1 [default = UNO]; }"
    )
    assert one(plan_of(text), "") == one(plan_of(text), "08 01") == {"a": "ONE"}


def test_required_fields() -> None:
    """TC-91: a message without one is bad, unless the message itself is not there."""
    text = (
        'syntax = "proto2"; message S { required int32 x = 1; optional int32 y = 2; }'
        "message M { optional S s = 1; repeated S r = 2; optional int32 z = 3; }"
    )
    plan = plan_of(text)
    assert one(plan, b"") == {"s": None, "r": [], "z": None}
    assert one(plan, "0a 02 08 01 12 02 08 02")["r"] == [{"x": 2, "y": None}]
    assert one(plan, "0a 00") == (MISSING, 2)
    assert one(plan, "0a 00 0a 02 08 05")["s"] == {"x": 5, "y": None}
    _, errors = decode(plan, [bytes.fromhex("12 02 08 02 12 02 10 01")])
    paths = [path for path, _ in plan.column.nodes()]
    assert [(e[2], paths[e[3]], e[4:]) for e in errors] == [(MISSING, "r[].x", (1,))]


def test_packed_and_not_packed_are_mixed() -> None:
    """TC-89: whatever was declared."""
    for option in ("", " [packed = false]"):
        plan = plan_of(
            f"enum E {{ Z = 0; A = 1; }} message M {{ repeated sint32 a = 1{option};"
            f" repeated E b = 2{option}; repeated double c = 3{option}; repeated bool d = 4; }}"
        )
        value = bytes.fromhex("08 02 12 02 01 05 0a 03 04 80 01 10 00 22 02 00 02 08 01 0a 00")
        value += text_field(3, np.array([1.5, 2.5]).tobytes()) + tag(3, 1) + bytes(8)
        assert one(plan, value) == {
            "a": [1, 2, 64, -1], "b": ["A", "5", "Z"], "c": [1.5, 2.5, 0.0], "d": [False, True],
        }  # fmt: skip
        assert one(plan, text_field(3, bytes(9))) == (TRUNCATED, 11)
        assert one(plan, "0a 02 01 80") == (TRUNCATED, 4)
        assert one(plan, "0a 0c 01 80 80 80 80 80 80 80 80 80 80 00") == (SYNTAX, 3)
        assert one(plan, "0d 00 00 00 00") == (TYPE, 0)
    many = np.arange(5000, dtype=np.float32)
    assert one("repeated float a = 1;", text_field(1, many.tobytes())) == {"a": many.tolist()}


def test_parts_of_a_message_are_merged() -> None:
    """TC-90: at any depth, lists and maps in them too; repeated messages are not."""
    plan = plan_of(
        "message T { repeated int32 l = 1; map<int32, int32> m = 2; int32 n = 3; }"
        "message S { T t = 1; int32 x = 2; string y = 3; }"
        "message M { S s = 1; repeated S r = 2; int32 z = 3; }"
    )
    first = text_field(1, tag(1, 0) + b"\1" + text_field(2, b"\x08\1\x10\1") + tag(3, 0) + b"\5")
    second = text_field(1, tag(1, 0) + b"\2" + text_field(2, b"\x08\1\x10\2"))
    value = (
        text_field(1, first + tag(2, 0) + b"\1")
        + text_field(2, tag(2, 0) + b"\7")
        + tag(3, 0) + b"\1"
        + text_field(1, second + text_field(3, b"y"))
        + text_field(2, first)
        + text_field(1, b"")
    )  # fmt: skip
    assert one(plan, value) == {
        "s": {"t": {"l": [1, 2], "m": {1: 2}, "n": 5}, "x": 1, "y": "y"},
        "r": [
            {"t": None, "x": 7, "y": ""},
            {"t": {"l": [1], "m": {1: 1}, "n": 5}, "x": 0, "y": ""},
        ],
        "z": 1,
    }


def test_the_last_member_of_a_oneof_wins() -> None:
    """TC-90: it ends the others, also a message, and one that is not wanted."""
    text = (
        "message S { int32 x = 1; repeated int32 y = 2; }"
        "message M { oneof o { int32 a = 1; string b = 2; S c = 3; int32 d = 4; }"
        " oneof p { int32 e = 5; } optional int32 f = 6; }"
    )
    plan = plan_of(text)
    none = dict.fromkeys("abcdef")
    assert one(plan, "08 01 12 01 78") == none | {"b": "x"}
    assert one(plan, "12 01 78 08 00 28 07") == none | {"a": 0, "e": 7}
    # Parts of one message are merged, unless another member was between them.
    assert one(plan, "1a 02 08 01 1a 02 10 02") == none | {"c": {"x": 1, "y": [2]}}
    assert one(plan, "1a 02 08 01 20 01 1a 02 10 02") == none | {"c": {"x": 0, "y": [2]}}
    some = plan_of(text, ["a", "c.y"])
    assert one(some, "1a 02 10 01 20 01") == {"a": None, "c": None}
    assert one(some, "08 01 12 01 78 30 01") == {"a": None, "c": None}
    assert one(some, "12 01 78 08 01") == {"a": 1, "c": None}


def test_the_last_entry_of_a_key_wins() -> None:
    """TC-89: an absent key or value is its default; parts are unknown fields or in any order."""
    plan = plan_of(
        "message S { int32 x = 1; repeated string y = 2; }"
        "message M { map<string, S> a = 1; map<int64, string> b = 2; map<bool, double> c = 3; }"
    )

    def entry(key: str, *texts: str) -> bytes:
        inner = b"".join(text_field(2, text.encode()) for text in texts)
        return text_field(1, text_field(1, key.encode()) + text_field(2, inner))

    value = entry("k", "1", "2") + entry("l", "3") + entry("k", "4") + text_field(1, b"")
    value += text_field(2, text_field(2, b"v") + b"\x08\7") + text_field(2, text_field(2, b"w"))
    value += text_field(3, b"\x08\1") + text_field(3, b"\x08\2\x18\5\x11" + bytes(8))
    assert one(plan, value) == {
        "a": {"l": {"x": 0, "y": ["3"]}, "k": {"x": 0, "y": ["4"]}, "": {"x": 0, "y": []}},
        "b": {7: "v", 0: "w"},
        "c": {True: 0.0},
    }
    # Many of them, each several times.
    many = b"".join(entry(f"key {n % 700}", *[str(n)] * (n % 4)) for n in range(3000))
    row = one(plan, many)["a"]
    last = {n % 700: n for n in range(3000)}
    assert row == {f"key {k}": {"x": 0, "y": [str(n)] * (n % 4)} for k, n in last.items()}
    assert next(iter(row)) == "key 200"  # the order of the entries that stay


def test_keys_that_are_there_again_take_no_longer_than_others() -> None:
    """TC-98: time is linear in the bytes."""
    plan = plan_of("message M { map<int32, M2> a = 1; } message M2 { map<int32, bytes> b = 1; }")
    times = []
    for count in (4_000, 64_000):
        value = b"".join(
            text_field(1, tag(1, 0) + varint(n if n % 2 else 0) + text_field(2, b""))
            for n in range(count)
        )
        begin = time.process_time()
        assert len(one(plan, value)["a"]) == count // 2 + 1
        times.append(time.process_time() - begin)
    assert times[1] < 100 * times[0]  # 16 times the bytes


def test_unknown_fields_and_groups_are_skipped() -> None:
    """TC-93: with everything in them, no deeper than max_depth."""
    plan = plan_of("message M { int32 a = 1; string b = 300; }")
    skipped = "10 80 01 19 00 00 00 00 00 00 00 00 22 01 ff 2d 00 00 00 00 33 3b 08 01 3c 34"
    value = bytes.fromhex(f"08 05 {skipped} fa ff ff ff 0f 00") + text_field(300, b"x")
    assert one(plan, value) == {"a": 5, "b": "x"}
    nested = b"\x13" * 64 + b"\x14" * 64
    assert one(plan, nested) == {"a": 0, "b": ""}
    assert one(plan, b"\x13" + nested + b"\x14") == (DEPTH, 64)
    assert one(plan, nested, max_depth=10) == (DEPTH, 10)
    assert one(plan, "13 1c") == (SYNTAX, 1)
    assert one(plan, "13 08 01") == (TRUNCATED, 3)
    assert one(plan, "13 00 14") == (SYNTAX, 1)
    assert one(plan, "12 05 00") == (TRUNCATED, 3)
    assert one(plan, b"\x13" * 100_000) == (DEPTH, 64)
    # Not past the end of the message that they are in.
    inner = plan_of("message S { int32 x = 1; } message M { S s = 1; int32 a = 2; }")
    assert one(inner, "0a 01 13 10 01 14") == (TRUNCATED, 3)
    assert one(inner, "0a 01 10 10 01") == (TRUNCATED, 3)
    assert one(inner, "0a 02 12 05 10 01 10 01 10 01") == (TRUNCATED, 4)


def test_enums() -> None:
    """TC-95: numbers without a name, several names, numbers far apart."""
    names = "A = 0; ONE = 1; UNO = 1; FAR = 2000000000; NEG = -2000000000;"
    for syntax, other in (("proto3", "77"), ("proto2", None)):
        text = (
            f'syntax = "{syntax}"; enum E {{ option allow_alias = true; {names} }}'
            "message M { optional E a = 1; repeated E b = 2; map<int32, E> c = 3;"
            " oneof o { E d = 4; } }"
        )
        plan = plan_of(text)
        value = b"\x08\x4d\x10\1" + tag(2, 0) + varint(2_000_000_000)
        value += tag(2, 0) + varint(2**64 - 2_000_000_000) + b"\x10\x4d\x1a\4\x08\1\x10\x4d\x20\0"
        assert one(plan, value) == {
            "a": other,
            "b": ["ONE", "FAR", "NEG", other],
            "c": {1: other},
            "d": "A",
        }
        assert one(plan, b"\x08\x4d\x08\1")["a"] == "ONE"
        assert one(plan, tag(1, 0) + varint(2**64 - 1))["a"] == (other and "-1")
        numbers = plan_of(text, enums="number")
        assert one(numbers, value)["b"] == [1, 2_000_000_000, -2_000_000_000, 77]
    assert plan.names[1] == ("A", "ONE", "UNO", "FAR", "NEG")


TIMES = (
    'import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";'
    "message M { google.protobuf.Timestamp t = 1; google.protobuf.Duration d = 2;"
    " repeated google.protobuf.Timestamp r = 3; }"
)


def moment(number: int, seconds: int | None, nanos: int | None = None) -> bytes:
    parts = [
        tag(at, 0) + varint(part % (1 << 64))
        for at, part in ((1, seconds), (2, nanos))
        if part is not None
    ]
    return text_field(number, b"".join(parts))


def test_timestamps_and_durations() -> None:
    """TC-96: in nanoseconds, exactly, or out of range; parts are merged."""
    plan = plan_of(TIMES)
    assert one(plan, moment(1, 5, 7) + moment(2, -5, -7))["t"] == 5_000_000_007
    assert one(plan, moment(1, 5, 7) + moment(2, -5, -7))["d"] == -5_000_000_007
    assert one(plan, moment(1, -5, 7))["t"] == -4_999_999_993
    assert one(plan, moment(1, None))["t"] == 0
    assert one(plan, moment(1, -3) + moment(1, None, 9))["t"] == -2_999_999_991
    assert one(plan, moment(1, -3, 9) + moment(1, 4))["t"] == 4_000_000_009
    assert one(plan, moment(2, -3, -9) + moment(2, -4))["d"] == -4_000_000_009
    assert one(plan, moment(3, 1) + moment(3, None, 2))["r"] == [1_000_000_000, 2]
    assert one(plan, text_field(1, b"\x18\1\x08\1\x1b\x1c"))["t"] == 1_000_000_000
    # The number below is NumPy's "not a time".
    most, least = divmod(2**63 - 1, 10**9), divmod(1 - 2**63, 10**9)
    assert one(plan, moment(1, *most))["t"] == 2**63 - 1
    assert one(plan, moment(1, *least))["t"] == 1 - 2**63
    assert one(plan, moment(2, -(2**63 // 10**9), -(2**63 % 10**9) + 1))["d"] == 1 - 2**63
    assert one(plan, moment(2, -(2**63 // 10**9), -(2**63 % 10**9))) == (RANGE, 2)
    for bad in (
        moment(1, most[0], most[1] + 1),
        moment(1, most[0] + 1),
        moment(1, least[0], least[1] - 1),
        moment(1, 2**63 - 1),
        moment(1, -(2**63)),
        moment(1, 1, 10**9),
        moment(1, 1, -1),
        moment(2, 1, -1),
        moment(2, -1, 1),
        moment(2, 0, -(10**9)),
        moment(1, 0, 2**31 - 1),
    ):
        assert one(plan, bad) == (RANGE, 2)
    assert one(plan, text_field(1, b"\x0a\0")) == (TYPE, 2)
    for wrong in (b"\x0c", b"\x16\0", b"\x17", b"\0\0"):
        assert one(plan, text_field(1, wrong)) == (SYNTAX, 2)
    assert one(plan, text_field(1, b"\x08")) == (TRUNCATED, 3)


def test_wrappers_are_nullable_scalars() -> None:
    """TC-96: an empty one is zero; parts are merged."""
    plan = plan_of(
        'import "google/protobuf/wrappers.proto"; message M { google.protobuf.Int32Value a = 1;'
        " google.protobuf.StringValue b = 2; repeated google.protobuf.BoolValue c = 3;"
        " map<int32, google.protobuf.DoubleValue> d = 4;"
        " oneof o { google.protobuf.Int64Value e = 5; int32 f = 6; } }"
    )
    none: dict[str, Any] = {"a": None, "b": None, "c": [], "d": {}, "e": None, "f": None}
    assert one(plan, b"") == none
    value = "0a 00 12 03 0a 01 78 1a 02 08 01 1a 00 22 02 08 07"
    assert one(plan, value) == none | {"a": 0, "b": "x", "c": [True, False], "d": {7: 0.0}}
    assert one(plan, "0a 02 08 05 0a 00")["a"] == 5
    assert one(plan, "0a 04 08 05 08 06 12 00")["a"] == 6
    assert one(plan, "2a 02 08 01 30 02") == none | {"f": 2}
    assert one(plan, "30 02 2a 00") == none | {"e": 0}
    assert one(plan, "0a 02 0a 00") == (TYPE, 2)
    _, errors = decode(plan, [bytes.fromhex("1a 02 08 01 1a 01 08")])
    assert errors == [(0, 7, TRUNCATED, 4, 1)]


def test_messages_without_columns_are_raw() -> None:
    """TC-96: Struct and recursion; checked, and parts follow each other."""
    plan = plan_of(
        'import "google/protobuf/struct.proto"; message M { google.protobuf.Struct a = 1;'
        " M m = 2; repeated M r = 3; oneof o { google.protobuf.Value v = 4; int32 i = 5; } }"
    )
    none: dict[str, Any] = {"a": None, "m": None, "r": [], "v": None, "i": None}
    assert one(plan, "0a 02 0a 00 12 02 28 01 1a 00 1a 02 28 02 12 02 28 07") == none | {
        "a": b"\x0a\0", "m": b"\x28\1\x28\7", "r": [b"", b"\x28\2"],
    }  # fmt: skip
    assert one(plan, "22 02 08 00 28 03 22 00") == none | {"v": b""}
    assert one(plan, "0a 01 0a") == (TRUNCATED, 3)
    assert one(plan, "12 02 0e 00") == (SYNTAX, 2)
    assert one(plan_of("message M { M m = 1; int32 i = 2; }", ["m.i"]), "0a 02 10 05") == {
        "m": {"i": 5}
    }


def test_a_bad_row_leaves_nothing_anywhere() -> None:
    """TC-97: it is rolled back whole, and named by node, items and byte."""
    plan = plan_of(
        "message S { string x = 1; repeated string y = 2; map<string, int32> z = 3; }"
        "message M { repeated S s = 1; int32 a = 2; }"
    )
    good = text_field(
        1, text_field(1, b"g") + text_field(2, b"h") + text_field(3, b"\x0a\1k\x10\1")
    )
    bad = text_field(1, text_field(2, b"ok") + text_field(2, b"\xff"))
    rows, errors = decode(plan, [good, good + bad, good, good + b"\x10", good])
    paths = [path for path, _ in plan.column.nodes()]
    expected = {"s": [{"x": "g", "y": ["h"], "z": {"k": 1}}], "a": 0}
    assert rows == [expected, None, expected, None, expected]
    assert [(e[0], e[1], e[2], paths[e[3]], e[4:]) for e in errors] == [
        (1, len(good) + 8, UTF8, "s[].y[]", (1, 1)),
        (3, len(good) + 1, TRUNCATED, "a", ()),
    ]
    some, errors = decode(plan, [good, bad, good], RAISE)
    assert (some, [e[0] for e in errors]) == ([expected], [1])


def test_rows_over_the_limit_of_memory() -> None:
    """TC-36"""
    value = text_field(1, b"x" * (65 << 20))
    rows, errors = decode(plan_of("message M { bytes a = 1; }"), [b"", value, b""])
    assert [row and row["a"] for row in rows] == [b"", None, b""]
    assert [(e[0], e[2]) for e in errors] == [(1, TOO_LARGE)]


def test_a_value_at_the_end_of_a_buffer() -> None:
    """TC-88: nothing is read behind it; every cut of a value is an error or a shorter message."""
    plan = plan_of(
        "message S { double d = 1; } message M { int64 a = 1; string b = 2; S s = 3; fixed32 f = 4;"
        " repeated int32 r = 5; }"
    )
    value = bytes.fromhex("08 ff ff ff ff ff ff ff ff ff 01") + text_field(2, b"x" * 17)
    value += text_field(3, tag(1, 1) + bytes(8)) + tag(4, 5) + bytes(4) + text_field(5, b"\1\x80\1")
    whole = one(plan, value)
    for size in range(len(value)):
        rows, errors = decode(plan, [value, value[:size]])
        assert rows[0] == whole
        assert [e[2] for e in errors] in ([], [TRUNCATED])
        if errors:
            assert errors[0][1] <= size


def test_prefixes_and_rows_that_are_errors_already() -> None:
    plan = plan_of("message M { int32 a = 1; }")
    prefixes = np.array([0, 2, 3, 0], np.int32)
    row_plans = np.array([0, 0, 0, -SCHEMA], np.int32)
    values = [b"\x08\1", b"..\x08\2", b"..", b"\x08\3"]
    rows, errors = decode(plan, values, prefixes=prefixes, row_plans=row_plans)
    assert rows == [{"a": 1}, {"a": 2}, None, None]
    assert [(e[0], e[1], e[2]) for e in errors] == [(2, 2, TRUNCATED), (3, 0, SCHEMA)]
    spans = (b"\x08\1", np.array([0]), np.array([2], np.int32))
    cases: list[tuple[Any, str]] = [
        ((plan.layout, {}, None, *spans, NULL), "there is no plan"),
        ((plan.layout, {}, plan.parts, *spans, NULL, row_plans), "one plan per row"),
        ((plan.layout, {}, plan.parts, *spans, NULL, None, prefixes), "one prefix per row"),
        ((plan.layout, {}, (*[plan.layout[:0]] * 4, b""), *spans, NULL), "a plan has"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            protobuf_decode.decode(*arguments)


def test_field_numbers_with_long_tags() -> None:
    """TC-88: in any order, at either end of the range."""
    numbers = [1, 15, 16, 17, 2047, 2048, 18_999, (1 << 29) - 1]
    members = "".join(f"int32 f{at} = {number};" for at, number in enumerate(numbers))
    plan = plan_of(f"message M {{ {members} }}")
    expected = {f"f{at}": at + 1 for at in range(len(numbers))}
    for order in (1, -1):
        parts = [tag(number, 0) + varint(at + 1) for at, number in enumerate(numbers)]
        assert one(plan, b"".join(parts[::order])) == expected
    assert one(plan, tag(2046, 0) + b"\1" + tag(18, 2) + sized(b"abc")) == dict.fromkeys(
        expected, 0
    )
