"""Protobuf messages as trees of columns, and which of them are wanted."""

from __future__ import annotations

from typing import Any

import pytest

from kfast.errors import ConfigurationError
from kfast.schemas.descriptors import ProtoType
from kfast.schemas.layout import constant_bytes
from kfast.schemas.proto_schema import parse_proto
from kfast.schemas.protobuf_columns import MAX_COLUMNS, ProtoColumn, Role, message_columns
from kfast.schemas.selection import select

PROTO3 = """
syntax = "proto3";
package p;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
import "google/protobuf/empty.proto";
"""
ORDER = (
    PROTO3
    + """
message Order {
  int64 id = 1;
  optional double price = 2;
  Side side = 3;
  Inner inner = 4;
  repeated Line lines = 5;
  map<string, Line> tags = 6;
  map<int32, Side> sides = 7;
  oneof kind { string text = 8; Inner other = 9; }
  google.protobuf.Timestamp at = 10;
  google.protobuf.Duration took = 11;
  google.protobuf.Int32Value count = 12;
  repeated google.protobuf.StringValue names = 13;
  google.protobuf.Struct free = 14;
  google.protobuf.Any any = 15;
  google.protobuf.Empty nothing = 16;
  Order parent = 17;
  repeated Order children = 18;
  repeated sint32 numbers = 19;
}
message Inner { string note = 1; Order order = 2; }
message Line { string sku = 1; int32 qty = 2; }
enum Side { BUY = 0; SELL = 1; }
"""
)


def columns(text: str, wanted: list[str] | None = None, **options: Any) -> str:
    found = message_columns(parse_proto(text), "p.Order", columns=select(wanted), **options)
    assert found.root.is_nullable
    assert tuple(each.column for each in found.children) == found.root.type.fields
    return str(found.root.type)


def one(field: str, more: str = "", **options: Any) -> ProtoColumn:
    """Return the column of the one field of a message."""
    syntax = "" if "syntax" in field else PROTO3
    pool = parse_proto(f"{syntax}{field if not syntax else f'message Order {{ {field} }}'} {more}")
    name = next(name for name in pool.files[""] if name.endswith("Order"))
    (found,) = message_columns(pool, name, **options).children
    return found


@pytest.mark.parametrize(
    ("kind", "column", "zero"),
    [
        ("double", "float64", 0.0), ("float", "float32", 0.0), ("int64", "int64", 0),
        ("uint64", "uint64", 0), ("int32", "int32", 0), ("fixed64", "uint64", 0),
        ("fixed32", "uint32", 0), ("bool", "bool", False), ("string", "string", ""),
        ("bytes", "binary", b""), ("uint32", "uint32", 0), ("sfixed32", "int32", 0),
        ("sfixed64", "int64", 0), ("sint32", "int32", 0), ("sint64", "int64", 0),
        ("Side", "dictionary", "BUY"),
    ],
)  # fmt: skip
def test_columns_of_scalars(kind: str, column: str, zero: object) -> None:
    """TC-83: a field without presence has the default of its type."""
    side = "enum Side { BUY = 0; SELL = 1; }"
    plain = one(f"{kind} x = 1;", side)
    assert (plain.column.type_text, plain.default) == (f"{column} not null", zero)
    assert plain.role is (Role.ENUM if kind == "Side" else Role.SCALAR)
    assert plain.scalar is (None if kind == "Side" else ProtoType[kind.upper()])
    assert constant_bytes(plain.column, plain.default)
    optional = one(f"optional {kind} x = 1;", side)
    assert (optional.column.type_text, optional.default) == (column, None)
    absent = one(f"{kind} x = 1;", side, absent="null")
    assert (absent.column.type_text, absent.default) == (column, None)
    repeated = one(f"repeated {kind} x = 1;", side)
    assert repeated.column.type_text == f"list<{column} not null> not null"
    assert repeated.value.type_text == f"{column} not null"
    assert repeated.default is None


def test_columns_of_a_message() -> None:
    """TC-83."""
    line = "struct<sku: string not null, qty: int32 not null>"
    assert columns(ORDER) == (
        "struct<id: int64 not null, price: float64, side: dictionary not null, "
        "inner: struct<note: string not null, order: raw>, "
        f"lines: list<{line} not null> not null, tags: map<string, {line} not null> not null, "
        "sides: map<int32, dictionary not null> not null, text: string, "
        "other: struct<note: string not null, order: raw>, at: timestamp[ns, UTC], "
        "took: duration[ns], count: int32, names: list<string not null> not null, free: raw, "
        "any: raw, nothing: raw, parent: raw, children: list<raw not null> not null, "
        "numbers: list<int32 not null> not null>"
    )


def test_roles_tell_a_decoder_what_to_do() -> None:
    """TC-83."""
    found = message_columns(parse_proto(ORDER), "p.Order")
    by_name = {each.field.name: each for each in found.children}
    roles = {name: each.role for name, each in by_name.items()}
    assert roles["inner"] is roles["lines"] is Role.MESSAGE
    assert roles["tags"] is Role.MAP
    assert roles["at"] is Role.TIMESTAMP
    assert roles["took"] is Role.DURATION
    assert roles["count"] is roles["names"] is Role.WRAPPER
    assert by_name["names"].scalar is ProtoType.STRING
    assert roles["free"] is roles["any"] is roles["parent"] is roles["children"] is Role.RAW
    assert [child.field.name for child in by_name["lines"].children] == ["sku", "qty"]
    key, value = by_name["sides"].children
    assert (key.column.name, key.default, value.column.name, value.default) == (
        "key", 0, "value", "BUY",
    )  # fmt: skip
    assert value.enum is not None
    # A oneof needs to know its members that are not wanted too.
    assert by_name["inner"].message is not None
    assert len(found.message.fields) == 19


def test_enums_by_number() -> None:
    """TC-83."""
    side = "enum Side { BUY = 0; SELL = 1; }"
    made = one("Side x = 1;", side, enums="number")
    assert (made.column.type_text, made.default) == ("int32 not null", 0)


PROTO2 = """
syntax = "proto2";
message Order {{ {} }}
enum Side {{ BUY = 1; SELL = 2; }}
"""


@pytest.mark.parametrize(
    ("field", "options", "column", "default"),
    [
        ("required int32 x = 1;", {}, "int32 not null", None),
        ("required int32 x = 1 [default = 5];", {}, "int32 not null", None),
        ("required int32 x = 1;", {"absent": "null"}, "int32 not null", None),
        ("optional int32 x = 1;", {}, "int32", None),
        ("optional int32 x = 1 [default = 5];", {}, "int32 not null", 5),
        ("optional int32 x = 1 [default = 5];", {"absent": "null"}, "int32", None),
        # A closed enum has no names for other numbers.
        ("optional Side x = 1 [default = SELL];", {}, "dictionary", "SELL"),
        ("optional Side x = 1 [default = SELL];", {"enums": "number"}, "int32 not null", 2),
        ("required Side x = 1;", {}, "dictionary", None),
        ("repeated Side x = 1;", {}, "list<dictionary> not null", None),
        ("repeated Side x = 1;", {"enums": "number"}, "list<int32 not null> not null", None),
        ("map<int32, Side> x = 1;", {}, "map<int32, dictionary> not null", None),
        ("required Order x = 1;", {}, "raw not null", None),
    ],
)
def test_presence_in_proto2(
    field: str, options: dict[str, Any], column: str, default: object
) -> None:
    """TC-83: required, declared defaults, closed enums."""
    made = one(PROTO2.format(field), **options)
    assert (made.column.type_text, made.default) == (column, default)


def test_values_of_a_map_that_are_absent_have_defaults() -> None:
    """TC-83."""
    kinds = {
        "google.protobuf.Timestamp": 0, "google.protobuf.Duration": 0, "google.protobuf.Any": b"",
        "google.protobuf.BoolValue": False, "Order": b"", "Side": "BUY", "bytes": b"",
    }  # fmt: skip
    for kind, default in kinds.items():
        made = one(f"map<bool, {kind}> x = 1;", "enum Side { BUY = 0; }", absent="null")
        key, value = made.children
        assert (key.default, value.default) == (False, default)
        assert not value.column.is_nullable


@pytest.mark.parametrize(
    ("wanted", "column"),
    [
        (["id"], "struct<id: int64 not null>"),
        (["lines[].sku"], "struct<lines: list<struct<sku: string not null> not null> not null>"),
        (["tags{value}.qty"], "struct<tags: map<string, struct<qty: int32 not null> not null> no"),
        (["inner.note", "id"], "struct<id: int64 not null, inner: struct<note: string not null>>"),
        (["parent.id"], "struct<parent: struct<id: int64 not null>>"),
        (["parent.parent"], "struct<parent: struct<parent: raw>>"),
        (["at.seconds"], "struct<at: struct<seconds: int64 not null>>"),
        (["any.type_url"], "struct<any: struct<type_url: string not null>>"),
        (["free.fields{value}.bool_value"], "struct<free: struct<fields: map<string, struct<bool"),
        (["names[]"], "struct<names: list<string not null> not null>"),
    ],
)
def test_the_wanted_columns_keep_the_nested_shape(wanted: list[str], column: str) -> None:
    """TC-84: a path reaches into messages that are raw otherwise."""
    assert columns(ORDER, wanted).startswith(column)


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        (["idd"], 'columns has "idd", and the root is message p.Order', 'did you mean "id"?'),
        (["inner.nota"], "and inner is message p.Inner", 'did you mean "inner.note"?'),
        (["id.x"], "and id is int64", None),
        (["side.x"], "and side is p.Side", None),
        (["lines.sku"], "and lines is a list of p.Line", 'write "lines[]" and what is wanted of'),
        (["tags.sku"], "and tags is a map", 'write "tags{value}" and what is wanted of it'),
        (["numbers[].x"], "and numbers[] is sint32", None),
    ],
)
def test_a_path_that_leads_nowhere(wanted: list[str], message: str, hint: str | None) -> None:
    """TC-84."""
    with pytest.raises(ConfigurationError) as raised:
        columns(ORDER, wanted)
    assert message in raised.value.message
    assert (raised.value.hint or "").startswith(hint or "")


def test_a_group_is_refused_with_its_path_unless_it_is_left_out() -> None:
    """TC-84."""
    text = """
    package p;
    message Order { optional int32 id = 1; optional Inner inner = 2; }
    message Inner { repeated group G = 1 { optional int32 x = 1; } optional int32 y = 2; }
    """
    with pytest.raises(ConfigurationError) as raised:
        columns(text)
    assert str(raised.value) == (
        "inner.g is no column: it is a group\n"
        "try: name the columns to read without it: columns=[...]"
    )
    assert raised.value.path == "inner.g"  # type: ignore[attr-defined]
    assert columns(text, ["id", "inner.y"]) == "struct<id: int32, inner: struct<y: int32>>"


def test_what_a_message_stands_for_is_bounded() -> None:
    """TC-83: a few lines can name more columns than fit in memory."""
    messages = "".join(
        f"message M{n} {{ {' '.join(f'M{n + 1} f{i} = {i};' for i in range(1, 9))} }}"
        for n in range(12)
    )
    text = f"{PROTO3} message Order {{ M0 m = 1; }} {messages} message M12 {{ int32 x = 1; }}"
    with pytest.raises(ConfigurationError, match=f"more than {MAX_COLUMNS} columns"):
        columns(text)
    chain = "".join(f"message M{n} {{ M{n + 1} m = 1; }}" for n in range(200))
    text = f"{PROTO3} message Order {{ M0 m = 1; }} {chain} message M200 {{ int32 x = 1; }}"
    for most in (5, 100):
        with pytest.raises(ConfigurationError, match=f"nested more than {most} levels deep"):
            columns(text, max_depth=most)
    with pytest.raises(ConfigurationError, match="nested more than 100 levels deep"):
        columns(text, max_depth=1000)


def test_a_message_of_its_own_under_a_well_known_name_is_a_message() -> None:
    text = """
    syntax = "proto3"; package google.protobuf;
    message Order { Timestamp at = 1; } message Timestamp { int64 seconds = 1; string zone = 2; }
    """
    made = one(text)
    assert made.column.type_text == "struct<seconds: int64 not null, zone: string not null>"


def test_a_message_without_fields_is_no_root() -> None:
    with pytest.raises(ConfigurationError, match=r"message p\.Order has no fields"):
        columns("package p; message Order {}")
