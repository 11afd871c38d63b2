"""Protobuf: which message is wanted, which one a value has; errors; pickling."""

from __future__ import annotations

import base64
import logging
import pickle
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import kfast
from kfast.deserializers.protobuf import Protobuf
from kfast.errors import ConfigurationError, DeserializationError
from kfast.records import build_partition_records
from kfast.registry.registered_schema import PROTOBUF, SchemaKey
from tests.fake_registry.server import fake_registry
from tests.property.protobuf_schemas import sized as sized_by_varint
from tests.property.protobuf_schemas import text_field
from tests.unit.deserializers.schema_source import Source, column, headers_of
from tests.unit.records.sample_index import Sample, sample_index

SHOP = """syntax = "proto3"; package shop;
message First { int64 id = 1; }
message Order {
    message Line { string sku = 1; int32 qty = 2; }
    message Empty {}
    int64 id = 1; string user = 2; repeated Line lines = 3; map<string, int32> tags = 4;
}
"""
OTHER = SHOP.replace("message First", "message Zeroth { int32 x = 1; } message First")
GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
ORDER = b"\x08\7" + text_field(2, b"ann")
ROW: dict[str, Any] = {"id": 7, "user": "ann", "lines": [], "tags": {}}


@pytest.fixture
def source() -> Source:
    made = Source(PROTOBUF)
    made.add(SchemaKey.of_id(1), SHOP)
    made.add(SchemaKey.of_id(2), OTHER)
    made.add(SchemaKey.of_guid(GUID), SHOP)
    made.add(SchemaKey.of_global_id(1 << 40), SHOP)
    return made


def framed(number: int, indexes: bytes, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big", signed=True) + indexes + payload


ONE = framed(1, b"\2\2", ORDER)  # the second message of its file
TWO = framed(2, b"\2\4", ORDER)  # the third one


def generated(text: str, name: str, pool: Any = None) -> Any:
    """The class that protoc would generate, from kfast's own reading of simple text."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name=name)
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="at", number=2, type=11, label=1, type_name=".shop.At")
    other = descriptor_pb2.FileDescriptorProto(name="at.proto", package="shop", syntax="proto3")
    other.message_type.add(name="At").field.add(name="x", number=1, type=5, label=1)
    file.dependency.append("at.proto")
    made = descriptor_pool.DescriptorPool()
    made.Add(other)
    made.Add(file)
    return message_factory.GetMessageClass(made.FindMessageTypeByName(f"shop.{name}"))


def test_values_without_framing() -> None:
    """TC-99: a name in a file's text, a generated class, its descriptor, a descriptor set."""
    order = kfast.Protobuf("shop.Order", descriptor_set=SHOP)
    value = ORDER + text_field(3, b"\x0a\1s\x10\2") + text_field(4, b"\x0a\1k\x10\3")
    decoded = order.decode([value, None, b""])
    row = ROW | {"lines": [{"sku": "s", "qty": 2}], "tags": {"k": 3}}
    assert decoded.values.to_list() == [row, None, ROW | {"id": 0, "user": ""}]
    assert not len(decoded.errors)
    batch = pa.record_batch(decoded.values[:1])
    batch.validate(full=True)
    assert batch.schema.field("id") == pa.field("id", pa.int64(), nullable=False)
    assert (order.message, order.columns) == ("shop.Order", None)
    assert repr(order.plan).splitlines()[:2] == [
        "    1:0 INT64          id",
        "    1:0 MISFIT         id",
    ]

    kind = generated(SHOP, "Paid")
    raw = kind(id=5, at={"x": 6}).SerializeToString()
    for message in (kind, kind.DESCRIPTOR, kind()):
        paid = Protobuf(message)
        assert paid.message == "shop.Paid"
        assert paid.decode([raw]).values.to_list() == [{"id": 5, "at": {"x": 6}}]
    own = kind.DESCRIPTOR.file
    files = [descriptor_pb2.FileDescriptorProto.FromString(f.serialized_pb)
             for f in (*own.dependencies, own)]  # fmt: skip
    whole = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
    assert Protobuf("shop.Paid", descriptor_set=whole).decode([raw]).values[0]["id"] == 5
    assert Protobuf(kind) == Protobuf(kind.DESCRIPTOR)


def test_the_message_of_each_value_is_that_of_its_indexes(source: Source) -> None:
    """TC-99: another one is an error of its row; ids may change within a batch."""
    order = Protobuf("shop.Order", descriptor_set=SHOP, registry=source)
    assert order.needs_headers
    first = framed(1, b"\0", b"\x08\1")
    values = [ONE, TWO, None, first, framed(1, b"\2\0", b"\x08\1"), framed(2, b"\2\2", ORDER), ONE]
    decoded = order.decode(values, on_error="null")
    assert decoded.values.to_list() == [ROW, ROW, None, None, None, None, ROW]
    assert decoded.errors.code == ["schema"] * 3
    assert decoded.errors.schema_id == [1, 1, 2]
    assert "is not that of the wanted message" in decoded.errors[0].message
    assert sorted(key.value for key in source.asked) == [1, 2]
    order.decode([TWO, ONE])
    assert len(source.asked) == 2


@pytest.mark.parametrize(
    ("indexes", "code"),
    [
        ("0202", None),
        ("820002", None),
        ("00", "schema"),
        ("0200", "schema"),
        ("0203", "schema"),
        ("01", "schema"),
        ("04020e", "schema"),
        ("040202", "schema"),
        ("42" + "00" * 33, "schema"),
        ("0214", "schema"),
        ("04 02", "schema"),
        ("", "truncated"),
        ("02", "truncated"),
        ("0280", "truncated"),
    ],
)
def test_message_indexes(source: Source, indexes: str, code: str | None) -> None:
    """TC-99: of the prefix, with and without a registry; hostile ones are errors of the row."""
    raw = bytes.fromhex(indexes)
    payload = ORDER if len(raw) > 1 and code != "truncated" else b""
    if raw == b"\4\2":
        payload = b"\x10" + ORDER  # an index that is not there
    value = framed(1, raw, payload)
    for registry in (source, None):
        order = Protobuf("shop.Order", descriptor_set=SHOP, registry=registry, framing="confluent")
        decoded = order.decode([value], on_error="null")
        assert decoded.errors.code == ([] if code is None else [code])
        assert decoded.values.to_list() == [ROW if code is None else None]
        if indexes in {"01", "42" + "00" * 33}:
            assert "has message indexes that cannot be" in decoded.errors[0].message


def test_the_first_message_gives_the_columns(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    """TC-99: of each topic and column, kept for the life of the object, and logged."""
    by_id = Protobuf(registry=source)
    assert (by_id.schema, by_id.message, by_id.plan) == (None, None, None)
    first = framed(1, b"\0", b"\x08\1")
    with caplog.at_level(logging.INFO, "kfast"):
        for values, topic, expected in (
            ([None, ONE, first], "a", [None, ROW, None]),
            ([first, TWO], "b", [{"id": 1}, None]),
        ):
            given = column(values, topic)
            by_id.wait_for_schemas(given, None)
            made = by_id.deserialize_column(given, stop_at_first=False)
            found: Any = made.values
            assert found.to_list() == expected
            assert made.errors is not None
            assert made.errors.rows["code"].tolist() == [13]
    assert "the message of values of a is shop.Order of schema id 1" in caplog.text
    assert "the message of values of b is shop.First of schema id 1" in caplog.text
    # By name alone: the first schema that has it where the indexes say.
    named = Protobuf("shop.Order", registry=source, columns=["user"])
    decoded = named.decode([first, TWO, ONE], on_error="skip")
    assert decoded.values.to_list() == [{"user": "ann"}] * 2
    assert decoded.errors.offset.tolist() == [0]


IMPORTING = """syntax = "proto3"; package shop; import "shop/money.proto";
message Paid { int64 id = 1; Money sum = 2; }
"""
MONEY = (
    'syntax = "proto3"; package shop; import "shop/code.proto"; message Money { Code code = 1; }'
)
CODE = 'syntax = "proto3"; package shop; enum Code { NONE = 0; EUR = 1; }'
IMPORTS: dict[str, str | bytes] = {"shop/money.proto": MONEY, "shop/code.proto": CODE}


def test_imports_are_given_by_name() -> None:
    """TC-190: as texts or descriptors; those that nothing imports are left out."""
    code = descriptor_pb2.FileDescriptorProto(name="c.proto", package="shop", syntax="proto3")
    code.enum_type.add(name="Code").value.add(name="NONE", number=0)
    code.enum_type[0].value.add(name="EUR", number=1)
    given = IMPORTS | {"other.proto": "no text of this kind"}
    paid = Protobuf("shop.Paid", descriptor_set=IMPORTING, imports=given)
    mixed = IMPORTS | {"shop/code.proto": code.SerializeToString()}
    for each in (
        paid,
        pickle.loads(pickle.dumps(paid)),
        Protobuf("shop.Paid", descriptor_set=IMPORTING, imports=mixed),
    ):
        found = each.decode([b"\x08\1\x12\2\x08\1"]).values.to_list()
        assert found == [{"id": 1, "sum": {"code": "EUR"}}]
    assert paid == Protobuf("shop.Paid", descriptor_set=IMPORTING, imports=IMPORTS)
    assert paid != Protobuf("shop.Paid", descriptor_set=IMPORTING, imports=mixed)
    assert repr(paid).endswith("imports=['shop/money.proto', 'shop/code.proto'])")
    with pytest.raises(ConfigurationError) as raised:
        Protobuf("shop.Paid", descriptor_set=IMPORTING)
    assert "found: imported and not given: shop/money.proto" in str(raised.value)
    assert "by imports= (--value-imports DIR)" in str(raised.value)


def test_a_version_of_a_subject_gives_the_columns(source: Source) -> None:
    """TC-191: before there are values; its first message, or the one that is named."""
    subject = SchemaKey.of_version("orders-value")
    source.add(subject, SHOP)
    source.add(SchemaKey.of_version("orders-value", 1), OTHER)
    first = framed(1, b"\0", b"\x08\1")
    for each, expected in (
        ({"reader": "latest"}, [{"id": 1}, None, None]),
        ({"reader": "orders-value:1"}, [None, None, None]),
        ({"reader": "orders-value:latest", "message": "shop.Order"}, [None, ROW, None]),
    ):
        arguments: dict[str, Any] = each
        made = Protobuf(registry=source, **arguments)
        empty = column([])
        assert not len(made.deserialize_column(empty, stop_at_first=False).values)
        made.wait_for_schemas(empty, None)
        made.deserialize_column(empty, stop_at_first=False)
        assert made.schema is not None
        given = column([first, ONE, None])
        made.wait_for_schemas(given, None)
        found: Any = made.deserialize_column(given, stop_at_first=False).values
        assert found.to_list() == expected
    # Values without a framing are of that message.
    plain = Protobuf("shop.Order", registry=source, reader="orders-value:latest", framing="none")
    assert plain.decode([ORDER]).values.to_list() == [ROW]
    for key, match in (("none:2", "has no Protobuf schema for reader='none:2'"),
                       ("enum:1", "version 1 of subject \"enum\" has no message")):  # fmt: skip
        source.add(SchemaKey.of_version("enum", 1), CODE)
        with pytest.raises(ConfigurationError, match=match):
            Protobuf(registry=source, reader=key).decode([first])


def test_framings(source: Source) -> None:
    """TC-99: id and indexes in a header before the prefix, Apicurio's global ids."""
    order = Protobuf("shop.Order", descriptor_set=SHOP, registry=source)
    name = b"__value_schema_id"
    headers = headers_of(
        [(name, b"\1" + GUID.bytes + b"\2\2")],
        [(name, b"\0\0\0\0\1\2\2")],
        [],
        [(name, b"\1" + GUID.bytes + b"\0")],
        [(name, b"\1" + GUID.bytes + b"\2\2")],
    )
    decoded = order.decode([ORDER, ORDER, ONE, ORDER, ONE], headers=headers, on_error="null")
    assert decoded.values.to_list() == [ROW, ROW, ROW, None, None]
    # A prefix left over behind a header is a decoding error like any other.
    assert decoded.errors.code == ["schema", "syntax"]
    assert decoded.errors.schema_id == [str(GUID)] * 2

    apicurio = Protobuf(registry=source, framing="apicurio")
    value = b"\0" + (1 << 40).to_bytes(8, "big") + b"\2\2" + ORDER
    assert apicurio.decode([value]).values.to_list() == [ROW]
    assert not apicurio.needs_headers
    with pytest.raises(DeserializationError, match=r"Confluent wire format, schema id 1\ntry:"):
        Protobuf("shop.Order", descriptor_set=SHOP).decode([ONE])


def test_what_the_registry_does_not_have(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    """TC-99"""
    source.add(SchemaKey.of_id(3), "nonsense")
    source.add(SchemaKey.of_id(4), '"int"', "AVRO")
    order = Protobuf("shop.Order", descriptor_set=SHOP, registry=source)
    values = [ONE, framed(3, b"\0", b""), framed(4, b"\0", b""), framed(9, b"\0", b""), b"{}", b""]
    decoded = order.decode(values, on_error="skip")
    assert decoded.values.to_list() == [ROW]
    assert decoded.errors.code == ["schema", "schema", "unknown_schema", "magic", "empty"]
    assert "schema id 4 is a schema of AVRO, not of Protobuf" in caplog.text
    assert "schema id 3 cannot be used" in caplog.text
    unknown = Protobuf(registry=source)
    decoded = unknown.decode([None, framed(9, b"\0", b"")], on_error="null")
    assert decoded.values.to_list() == [None, None]
    assert decoded.errors.code == ["unknown_schema"]
    assert unknown.decode([]).values.to_list() == []


def test_errors_say_what_was_found() -> None:
    """TC-94: path, byte, wire type and the wanted type."""
    order = Protobuf("shop.Order", descriptor_set=SHOP)
    with pytest.raises(DeserializationError) as caught:
        order.decode([ORDER, b"\x0d\0\0\0\0"])
    assert "row 1: value.id is a 32-bit number, not int64 (byte 0: 0x0d" in str(caught.value)
    assert (caught.value.code, caught.value.path, caught.value.byte_position) == ("type", "id", 0)
    line = text_field(3, b"\x0a\1s") + text_field(3, b"\x0a\1\xff")
    ((error,),) = (order.decode([line], on_error="null").errors,)
    assert (error.code, error.path, error.byte_position) == ("utf8", "lines[1].sku", 9)
    with pytest.raises(DeserializationError, match="value is not Protobuf"):
        order.decode([b"\0"])


def test_references_and_descriptors_of_a_registry(source: Source) -> None:
    """TC-99: text with imports, and base64 of a descriptor as confluent-kafka registers it."""
    source.add(
        SchemaKey.of_id(5),
        'syntax = "proto3"; import "line.proto"; message Cart { Line line = 1; }',
        **{"line.proto": 'syntax = "proto3"; message Line { int32 qty = 1; }'},
    )
    cart = Protobuf(registry=source)
    value = framed(5, b"\0", text_field(1, b"\x08\3"))
    assert cart.decode([value]).values.to_list() == [{"line": {"qty": 3}}]
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    file.message_type.add(name="A").field.add(name="x", number=1, type=5, label=1)
    source.add(SchemaKey.of_id(6), base64.b64encode(file.SerializeToString()).decode())
    assert Protobuf(registry=source).decode([framed(6, b"\0", b"\x08\1")]).values.to_list() == [
        {"x": 1}
    ]


def test_objects_are_equal_by_their_arguments_and_pickle() -> None:
    """TC-99"""
    order = Protobuf("shop.Order", descriptor_set=SHOP, columns=["id"], enums="number", max_depth=5)
    again = pickle.loads(pickle.dumps(order))
    assert again == order
    assert hash(again) == hash(order)
    assert again.decode([ORDER]).values.to_list() == [{"id": 7}]
    assert order != Protobuf("shop.Order", descriptor_set=SHOP)
    assert (order.columns, Protobuf(".shop.First", descriptor_set=SHOP).message) == (
        ("id",),
        "shop.First",
    )
    assert repr(order) == (
        f"Protobuf('shop.Order', descriptor_set=<{len(SHOP)} characters>, columns=('id',), "
        "enums='number', max_depth=5)"
    )
    kind = generated(SHOP, "Paid")
    paid = pickle.loads(pickle.dumps(Protobuf(kind, absent="null")))
    assert paid.decode([b""]).values.to_list() == [{"id": None, "at": None}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs the descriptor of a message"),
        ({"message": "shop.Order"}, "found: the name 'shop.Order' alone"),
        ({"descriptor_set": SHOP}, "needs the name of a message"),
        ({"message": "shop.Oder", "descriptor_set": SHOP}, 'did you mean "shop.Order"'),
        ({"message": "shop.Order", "descriptor_set": b"\xff"}, "descriptor"),
        ({"message": "shop.Order", "descriptor_set": 3}, "descriptor_set is the bytes"),
        ({"message": 3}, "message is a generated class, a descriptor or a name, not int"),
        ({"message": int}, "message is a generated class"),
        ({"registry": Source(PROTOBUF), "framing": "none"}, "needs the descriptor"),
        ({"registry": "http://x"}, "registry is a SchemaRegistry, not str"),
        ({"registry": Source(PROTOBUF), "framing": "confluant"}, 'try: framing="confluent"'),
        ({"registry": Source(PROTOBUF), "framing": "avro-single-object"}, "there is no framing"),
        ({"registry": Source(PROTOBUF), "framing": "glue"}, "is known and not supported"),
        ({"reader": "latest"}, "reader='latest' needs a registry"),
        (
            {"registry": Source(PROTOBUF), "reader": "orders"},
            "no schema and no version of a subject",
        ),
        (
            {"registry": Source(PROTOBUF), "reader": "a:1", "message": "A", "descriptor_set": SHOP},
            "both say which columns there are",
        ),
        ({"registry": Source(PROTOBUF), "imports": IMPORTS}, "imports are the files that the text"),
        (
            {"message": "A", "descriptor_set": SHOP, "imports": [SHOP]},
            "imports is a mapping of names to texts, not list",
        ),
        (
            {"message": "A", "descriptor_set": SHOP, "imports": {"a.proto": 3}},
            "imports has names and texts, not str and int",
        ),
        ({"registry": Source(PROTOBUF), "enums": "names"}, 'try: enums="name"|try: enums=.?name'),
        ({"registry": Source(PROTOBUF), "absent": 3}, "absent is 'default' or 'null', not 3"),
        ({"registry": Source(PROTOBUF), "max_depth": 0}, "max_depth is 1 to 256"),
        (
            {"message": "shop.Order", "descriptor_set": SHOP, "columns": ["lines[].sk"]},
            'did you mean "lines\\[\\].sku"',
        ),
        ({"message": "shop.Order.Empty", "descriptor_set": SHOP}, "has no fields"),
        ({"message": "shop.Order", "descriptor_set": SHOP, "max_depth": 1}, "more than 1 levels"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: dict[str, Any], message: str) -> None:
    """TC-99: at construction, which does no I/O."""
    with pytest.raises(ConfigurationError, match=message):
        Protobuf(**arguments)


def test_a_descriptor_set_besides_a_class_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="for a message that is given by name"):
        Protobuf(generated(SHOP, "Paid"), descriptor_set=b"")


def test_columns_export_to_arrow() -> None:
    """TC-96: times, wrappers, enums, maps and lists, valid and nullable as the schema says."""
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto"; enum Side { BUY = 0; SELL = 1; }
    message T { google.protobuf.Timestamp at = 1; Side side = 2; map<string, int64> m = 3;
                repeated double d = 4; google.protobuf.StringValue note = 5; T inner = 6; }"""
    value = text_field(1, b"\x08\1") + b"\x10\1" + text_field(3, b"\x0a\1k\x10\2")
    value += text_field(4, bytes(16)) + text_field(6, b"\x10\1")
    made = Protobuf("T", descriptor_set=text).decode([value, b"", None]).values
    batch = pa.record_batch(made[:2])
    batch.validate(full=True)
    assert batch.schema.field("at").type == pa.timestamp("ns", "UTC")
    assert batch.schema.field("side").type == pa.dictionary(pa.int32(), pa.string())
    assert [f.nullable for f in batch.schema] == [True, False, False, False, True, True]
    assert made["side"].to_list() == ["SELL", "BUY", None]
    assert made["m"].to_list() == [{"k": 2}, {}, None]
    assert made["inner"].to_list() == [b"\x10\1", None, None]
    assert str(made["at"][0]) == "1970-01-01T00:00:01.000000000"


def test_schemas_come_from_a_registry() -> None:
    """TC-99: over HTTP, as text and as a descriptor, each id once."""
    with fake_registry() as server, kfast.SchemaRegistry(server.url) as registry:
        number = server.register("orders-value", SHOP, "PROTOBUF")
        values = [framed(number, b"\2\2", ORDER), framed(77, b"\2\2", ORDER)]
        order = kfast.Protobuf(registry=registry, columns=["id", "user"])
        raw = build_partition_records("orders", 3, sample_index([Sample(value=v) for v in values]))
        batch = raw.records.decode(values=order, on_error="null")
        assert batch.values.to_list() == [{"id": 7, "user": "ann"}, None]
        ((error),) = batch.errors
        assert (error.topic, error.partition, error.code) == ("orders", 3, "unknown_schema")
        assert len([path for path in server.paths if "/schemas/ids/1" in path]) <= 2
        again = pickle.loads(pickle.dumps(order))
        assert again == order


def test_a_long_message_and_a_short_one() -> None:
    """TC-88: sizes of several bytes."""
    text = 'syntax = "proto3"; message B { bytes data = 1; string s = 2; }'
    value = b"\x0a" + sized_by_varint(b"\xff" * 300) + text_field(2, b"y" * 20_000)
    made = Protobuf("B", descriptor_set=text).decode([value, b"\x12\0"])
    assert [len(row["s"]) for row in made.values.to_list()] == [20_000, 0]
