"""Every form of a schema becomes one tree of types, and what cannot be is refused with its path."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import pickle
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict
from uuid import UUID

import msgspec
import polars as pl
import pyarrow as pa
import pytest

import kfast
from kfast.errors import ConfigurationError
from kfast.schemas.ddl import ddl_of_field
from kfast.schemas.field import Field
from kfast.schemas.schema import Schema


def text(given: object) -> str:
    return Schema(given).root.type_text


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Numbered(enum.IntEnum):
    ONE = 1


UserId = NewType("UserId", int)


@dataclasses.dataclass
class Line:
    sku: str
    qty: Annotated[int, "int32"] = 1


@dataclasses.dataclass
class Order:
    id: UserId
    price: Annotated[Decimal, "decimal128(18, 4)"]
    when: datetime.datetime | None
    day: datetime.date
    at: datetime.time
    key: UUID
    side: Side
    kind: Literal["a", "b"]
    tags: dict[str, float | None]
    lines: list[Line] = dataclasses.field(default_factory=list)
    note: str | None = None
    raw: Annotated[Any, "raw"] = None
    is_new: bool = False
    blob: bytes = b""


class Keyed(TypedDict):
    a: int
    b: NotRequired[str]


class Pair(NamedTuple):
    a: int
    b: float | None = 1.5


class Renamed(msgspec.Struct, rename="camel"):
    order_id: int
    is_open: bool | msgspec.UnsetType = msgspec.UNSET
    tags: list[str] = msgspec.field(default_factory=list)
    note: str = ""


class Node(TypedDict):
    next: Node


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("float64", "float64"),
        ("FLOAT64 not null", "float64 not null"),
        (["int32"], "list<int32>"),
        (["int32 not null"], "list<int32 not null>"),
        ({"a": "utf8", "b": "double"}, "struct<a: string, b: float64>"),
        ({"a": {"b": ["date"]}}, "struct<a: struct<b: list<date32>>>"),
        ({str: "int64"}, "map<string, int64>"),
        ("map<string, list<uint8>>", "map<string, list<uint8>>"),
        ("struct<a: int8, `b c`: bool not null>", "struct<a: int8, `b c`: bool not null>"),
        ("timestamp[ms]", "timestamp[ms]"),
        ("timestamp[ns, UTC]", "timestamp[ns, UTC]"),
        ("timestamp[us, tz=+00:00]", "timestamp[us, UTC]"),
        ("decimal(40, 2)", "decimal256(40, 2)"),
        ("decimal128(5)", "decimal128(5, 0)"),
        ("fixed_size_binary[12]", "fixed_size_binary(12)"),
        ("date32[day]", "date32"),
        ("time32[ms]", "time32[ms]"),
        ("duration[ns]", "duration[ns]"),
        ("large_list<large_string>", "large_list<large_string>"),
        ("dictionary", "dictionary"),
        ("uuid", "uuid"),
        ("raw", "raw"),
        (Field("int64", required=True), "int64 not null"),
        # Spark's DDL
        (
            "id BIGINT NOT NULL, price DOUBLE, lines ARRAY<STRUCT<sku: STRING, qty: INT>>",
            "struct<id: int64 not null, price: float64, lines: list<struct<sku: string, "
            "qty: int32>>>",
        ),
        (
            "a TINYINT, b smallint, c Float, d DECIMAL, e DECIMAL(20,2), f TIMESTAMP, "
            "g TIMESTAMP_NTZ, h DATE, i BINARY, j BOOLEAN, k VARCHAR(10), l MAP<STRING, LONG>",
            "struct<a: int8, b: int16, c: float32, d: decimal128(10, 0), e: decimal128(20, 2), "
            "f: timestamp[us, UTC], g: timestamp[us], h: date32, i: binary, j: bool, k: string, "
            "l: map<string, int64>>",
        ),
        (
            "a: INT COMMENT 'x, y' NOT NULL, `b,c` STRING",
            "struct<a: int32 not null, `b,c`: string>",
        ),
        # Python classes
        (
            Order,
            "struct<id: int64 not null, price: decimal128(18, 4) not null, when: "
            "timestamp[us, UTC], day: date32 not null, at: time64[us] not null, "
            "key: uuid not null, side: dictionary not null, kind: dictionary not null, "
            "tags: map<string, float64> not null, lines: list<struct<sku: string not null, "
            "qty: int32 not null> not null> not null, note: string, raw: raw not null, "
            "is_new: bool not null, blob: binary not null>",
        ),
        (Keyed, "struct<a: int64 not null, b: string>"),
        (Pair, "struct<a: int64 not null, b: float64>"),
        (
            Renamed,
            "struct<order_id: int64 not null, is_open: bool, "
            "tags: list<string not null> not null, note: string not null>",
        ),
        ({"a": [Keyed]}, "struct<a: list<struct<a: int64 not null, b: string>>>"),
        # Arrow schemas
        (
            pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.list_(pa.utf8()))]),
            "struct<a: int64 not null, b: list<string>>",
        ),
        (pa.float64(), "float64"),
        (
            pl.Schema({"a": pl.UInt8(), "b": pl.Datetime("us", "UTC"), "c": pl.List(pl.String)}),
            "struct<a: uint8, b: timestamp[us, UTC], c: large_list<string>>",
        ),
        (
            pa.struct(
                [
                    ("a", pa.timestamp("ms", "UTC")),
                    ("b", pa.decimal256(50, 3)),
                    ("c", pa.map_(pa.string(), pa.int8())),
                    ("d", pa.dictionary(pa.int16(), pa.string())),
                    ("e", pa.uuid()),
                    ("f", pa.json_()),
                    ("g", pa.large_binary()),
                    ("h", pa.string_view()),
                    ("i", pa.time32("s")),
                    ("j", pa.duration("us")),
                    ("k", pa.binary(7)),
                    ("l", pa.large_list(pa.bool_())),
                ]
            ),
            "struct<a: timestamp[ms, UTC], b: decimal256(50, 3), c: map<string, int8>, "
            "d: dictionary, e: uuid, f: raw, g: large_binary, h: string, i: time32[s], "
            "j: duration[us], k: fixed_size_binary(7), l: large_list<bool>>",
        ),
    ],
    ids=str,
)
def test_accepted(given: object, expected: str) -> None:
    """TC-01: one schema, whatever the form it was written in."""
    made = Schema(given)
    assert made.root.type_text == expected
    assert Schema(made) == made
    assert pickle.loads(pickle.dumps(made)) == made
    exported = pa.field(made)
    assert text(exported) == str(made.root.type)
    # What repr shows gives the same schema.
    shown = eval(repr(made), {"kfast": kfast} | {"str": str})
    assert Schema(shown).root == made.root, repr(made)


@pytest.mark.parametrize(
    ("given", "path", "reason"),
    [
        ("int65", "schema", 'unknown type "int65"; did you mean "int64"'),
        ({"a": {"b": ["flota64"]}}, '"a.b[]"', 'did you mean "float64"'),
        ({"a": "struct<b: list<strng>>"}, '"a.b[]"', 'did you mean "string"'),
        ({"a": "timestamp"}, '"a"', "needs a unit"),
        ({"a": "timestamp[m]"}, '"a"', "no unit of timestamp"),
        ({"a": "timestamp[ms, Europe/Berlin]"}, '"a"', "in UTC or has no zone"),
        ({"a": "time32[us]"}, '"a"', "no unit of time32"),
        ({"a": "decimal128"}, '"a"', "needs its precision"),
        ({"a": "decimal128(39, 2)"}, '"a"', "1 to 38, not 39"),
        ({"a": "decimal256(77)"}, '"a"', "1 to 76, not 77"),
        ({"a": "decimal128(4, 5)"}, '"a"', "scale is 0 to the precision"),
        ({"a": "list"}, '"a"', "needs its types"),
        ({"a": "list<int32"}, '"a"', '">" was expected instead of the end'),
        ({"a": "int32 not"}, '"a"', '"null" after "not"'),
        ({"a": "int32 nul"}, '"a"', "list of columns"),
        ({"a": "map<int32, string>"}, '"a"', "keys of a map are strings, not int32"),
        ({"a": {}}, '"a"', "at least one field"),
        ({}, "schema", "at least one field"),
        ("struct<>", "schema", "at least one field"),
        ("a INT, b STRING, a INT", '"a"', "two fields have this name"),
        ("a STRUCT<b: INT, b: INT>", '"a.b"', "two fields have this name"),
        ("a VARIANT", '"a"', 'unknown type "VARIANT"'),
        ("a INT b", '"a"', "the end was expected"),
        ("", "schema", "empty"),
        ({"a": ["int32", "int64"]}, '"a"', "one type, not 2"),
        ({1: "int32"}, "schema", "names of fields are strings"),
        ({"a": {"\ud800": "int32"}}, '"a"', r"'\ud800' is no text that UTF-8 has"),
        ({"a": Field("int32", source=("b", "\udfff"))}, '"a"', r"'\udfff' is no text"),
        ("a INT, `\ud800` INT", "schema", r"'\ud800' is no text that UTF-8 has"),
        ({"a": int}, '"a"', "class int is no type"),
        ({"a": 5}, '"a"', "5 is no schema"),
        ({"a": Field("int32", encoding="hex")}, '"a"', "one form only"),
        ({"a": Field("binary", encoding="base46")}, '"a"', 'did you mean "base64"'),
        ({"a": Field("int32", source="b..c")}, '"a"', "path of keys"),
        ({"a": Field("int32", source=())}, '"a"', "path of keys"),
        ({"a": Field("int8", default=200)}, '"a"', "out of range"),
        ({"a": Field("int8", default="x")}, '"a"', "is no int8"),
        ({"a": Field("int8", default=True)}, '"a"', "is no int8"),
        ({"a": Field({"b": "int8"}, default={"c": 1})}, '"a"', 'unknown field of the default "c"'),
        ({"a": Field(["int8 not null"], default=[None])}, '"a[]"', "required"),
        (
            {"a": Field("timestamp[us, UTC]", default=datetime.datetime(2024, 1, 1))},
            '"a"',
            "needs a zone",
        ),
        (Field("int32", source="a"), "schema", "root of documents has no source"),
        (Node, '"next"', "contains itself"),
        (list[int], "schema", "no schema"),
        (pa.schema([("a", pa.list_(pa.float16()))]), '"a[]"', "float16"),
        (pa.schema([("a", pa.null())]), '"a"', "null"),
        (pa.schema([("a", pa.date64())]), '"a"', "date64"),
        (pa.schema([("a", pa.timestamp("us", "Asia/Tokyo"))]), '"a"', "Asia/Tokyo"),
        (pa.schema([("a", pa.list_(pa.int8(), 3))]), '"a"', "fixed size"),
        (pa.schema([("a", pa.dictionary(pa.int8(), pa.int64()))]), '"a"', "values of text"),
        (pa.schema([("a", pa.map_(pa.int8(), pa.int8()))]), '"a"', "keys of a map"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), '"a"', "two fields"),
        (pa.dense_union([pa.field("a", pa.int8())]), "schema", "union"),
        (dataclasses.make_dataclass("A", [("a", Decimal)]), '"a"', "precision and scale"),
        (dataclasses.make_dataclass("A", [("a", int | str)]), '"a"', "union of 2"),
        (dataclasses.make_dataclass("A", [("a", Numbered)]), '"a"', "no Enum of strings"),
        (dataclasses.make_dataclass("A", [("a", list[set[int]])]), '"a[]"', "no type of columns"),
        (dataclasses.make_dataclass("A", [("a", dict[int, int])]), '"a"', "keys of a map"),
        (dataclasses.make_dataclass("A", []), "schema", "at least one field"),
        (
            dataclasses.make_dataclass("A", [("a", int, dataclasses.field(default_factory=int))]),
            '"a"',
            "made by a function",
        ),
        (msgspec.defstruct("A", [("a", int)], array_like=True), "schema", "as an array"),
    ],
    ids=str,
)
def test_refused(given: object, path: str, reason: str) -> None:
    """TC-02: a schema that cannot be is refused at construction, with the path."""
    with pytest.raises(ConfigurationError) as caught:
        Schema(given)
    first = caught.value.message
    assert path in first
    assert reason in first
    assert len(str(caught.value).splitlines()) <= 6


def test_a_schema_that_contains_itself() -> None:
    endless: dict[str, object] = {}
    endless["a"] = endless
    with pytest.raises(ConfigurationError, match="more than 64 levels"):
        Schema(endless)
    with pytest.raises(ConfigurationError, match="more than 64 levels"):
        Schema("list<" * 100 + "int8" + ">" * 100)


def test_details_of_fields() -> None:
    made = Schema(
        {
            "a": Field("int64", source="order.price", default=3),
            "b": Field("binary", encoding="hex", required=True),
            "c": Field("string", source=("order.price",)),
            "d": Field([{"e": "int8"}], default=[{"e": 1}]),
        }
    )
    a, b, c, d = made.root.type.fields
    assert (a.source, a.default, a.is_nullable) == (("order", "price"), 3, True)
    assert (b.encoding, b.is_nullable) == ("hex", False)
    assert c.source == ("order.price",)
    assert d.default == ({"e": 1},)
    assert Schema(eval(repr(made), {"kfast": kfast})) != Schema({"a": "int64"})
    again = Schema(pa.schema(made))
    assert [f.source for f in again.root.type.fields] == [a.source, (), c.source, ()]
    assert again.root.type.fields[1].encoding == "hex"


def test_defaults_of_classes() -> None:
    fields = {f.name: f for f in Schema(Order).root.type.fields}
    assert fields["lines"].default == ()
    assert (fields["note"].default, fields["is_new"].default) == (None, False)
    assert fields["lines"].type.item.type.fields[1].default == 1
    renamed = Schema(Renamed).root.type.fields
    assert [f.source for f in renamed] == [("orderId",), ("isOpen",), (), ()]
    assert [f.default for f in renamed] == [None, None, (), ""]


def test_repr_is_a_dict_to_paste() -> None:
    lines = [{"sku": "string", "qty": "int8"}]
    made = Schema({"id": "int64 not null", "lines": lines, "tags": "map<string, bool>"})
    assert repr(made) == (
        "{'id': 'int64 not null', 'lines': [{'sku': 'string', 'qty': 'int8'}], "
        "'tags': 'map<string, bool>'}"
    )
    long = Schema({f"a_rather_long_name_{i}": {"b": "float64"} for i in range(3)})
    assert repr(long).splitlines()[1] == "    'a_rather_long_name_0': {'b': 'float64'},"
    assert made != long
    assert hash(made) == hash(Schema(made))
    assert made.names == ("id", "lines", "tags")
    assert Schema("int8").names == ()


@pytest.mark.parametrize(
    ("given", "ddl"),
    [
        ("a BIGINT NOT NULL, b ARRAY<STRUCT<c: INT, `d e`: STRING NOT NULL>>", None),
        ("a MAP<STRING, DECIMAL(20,2)>, b TIMESTAMP, c TIMESTAMP_NTZ, d BINARY, e DATE", None),
        ({"a": "uint64", "b": "uuid", "c": "time64[us]", "d": "dictionary", "e": "raw"}, ""),
        ("float64", "DOUBLE"),
    ],
    ids=str,
)
def test_ddl_is_written_as_spark_writes_it(given: object, ddl: str | None) -> None:
    """TC-23: a schema as DDL gives the same schema again, and what Spark lacks becomes wider."""
    written = ddl_of_field(Schema(given).root)
    if ddl is None:
        assert written == given
    elif not ddl:
        assert written == "a DECIMAL(20,0), b STRING, c BIGINT, d STRING, e STRING"
    else:
        assert written == ddl
    with pytest.raises(ConfigurationError, match="38 digits at most"):
        ddl_of_field(Schema({"a": ["decimal256(40, 2)"]}).root)
