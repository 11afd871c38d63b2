"""Descriptors of Protobuf in their own encoding, compared with Google's runtime."""

from __future__ import annotations

from contextlib import suppress

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from kfast.errors import ConfigurationError
from kfast.schemas.descriptors import ProtoPool, ProtoType
from kfast.schemas.proto_schema import read_descriptor_set
from tests.reference import protoc
from tests.unit.schemas.proto_sources import SOURCES


def runtime_messages(data: bytes) -> dict[str, Descriptor]:
    """Return the messages of a set as the protobuf runtime knows them."""
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(data).file
    for file in files:
        pool.Add(file)
    found = {}
    waiting = [
        each
        for file in files
        for each in pool.FindFileByName(file.name).message_types_by_name.values()
    ]
    while waiting:
        each = waiting.pop()
        found[each.full_name] = each
        waiting += each.nested_types
    return found


def as_runtime(field: FieldDescriptor) -> tuple[object, ...]:
    """Return what the runtime knows of a field."""
    typed = field.message_type or field.enum_type
    oneof = field.containing_oneof
    is_synthetic = oneof is not None and len(oneof.fields) == 1 and oneof.name == f"_{field.name}"
    default = None
    if field.has_default_value:
        default = field.default_value
        if field.enum_type is not None:
            default = field.enum_type.values_by_number[default].name
    return (
        field.name,
        field.number,
        ProtoType(field.type),
        typed.full_name if typed is not None else "",
        field.is_repeated,
        field.is_required,
        field.has_presence,
        None if oneof is None or is_synthetic else oneof.name,
        str(default),
    )


@pytest.mark.parametrize("case", SOURCES)
def test_descriptors_are_what_the_runtime_makes_of_them(case: str) -> None:
    """TC-82: types, presence, closed enums, groups, defaults and the order of everything."""
    data = protoc.descriptor_set(SOURCES[case])
    assert data is not None
    pool = read_descriptor_set(data)
    theirs = runtime_messages(data)
    assert pool.messages.keys() == theirs.keys()
    for name, message in pool.messages.items():
        other = theirs[name]
        assert message.is_map_entry == other.GetOptions().map_entry
        assert pool.nested[name] == tuple(each.full_name for each in other.nested_types)
        for field, expected in zip(message.fields, map(as_runtime, other.fields), strict=True):
            found = (
                field.name, field.number, field.type, field.type_name, field.is_repeated,
                field.is_required, field.has_presence, field.oneof, str(field.default),
            )  # fmt: skip
            assert found == expected
        for enum in other.enum_types:
            made = pool.enums[enum.full_name]
            assert made.values == tuple((value.name, value.number) for value in enum.values)
            assert made.is_closed == enum.is_closed


def test_a_generated_class_s_file_is_read_with_what_it_imports() -> None:
    """TC-82: as a set or alone; the well-known types need not be given."""
    file = descriptor_pb2.FileDescriptorProto(
        name="a.proto", package="a", dependency=["google/protobuf/timestamp.proto", "b.proto"]
    )
    message = file.message_type.add(name="A")
    message.field.add(name="at", number=1, type=11, type_name=".google.protobuf.Timestamp")
    # Confluent's registry writes neither types nor full names of what is not a scalar.
    message.field.add(name="b", number=2, type_name="b.B")
    message.field.add(name="side", number=3, type_name="Side")
    message.enum_type.add(name="Side").value.add(name="BUY", number=1)
    other = descriptor_pb2.FileDescriptorProto(name="b.proto", package="b")
    other.message_type.add(name="B").field.add(name="x", number=1, type=5)
    both = descriptor_pb2.FileDescriptorSet(file=[other, file])
    pool = read_descriptor_set(both.SerializeToString())
    assert pool.main == "a.proto"
    fields = pool.message("a.A").fields
    assert [(f.type, f.type_name) for f in fields] == [
        (ProtoType.MESSAGE, "google.protobuf.Timestamp"),
        (ProtoType.MESSAGE, "b.B"),
        (ProtoType.ENUM, "a.A.Side"),
    ]
    with pytest.raises(ConfigurationError, match=r'a\.proto: field b has the unknown type "b\.B"'):
        read_descriptor_set(file.SerializeToString())
    alone = read_descriptor_set(timestamp_pb2.DESCRIPTOR.serialized_pb)
    assert alone.files == {"google/protobuf/timestamp.proto": ("google.protobuf.Timestamp",)}


def one_file(**changes: object) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a")
    message = file.message_type.add(name="A")
    field = {"name": "x", "number": 1, "type": 5, **changes}
    message.field.add(**field)
    return bytes(file.SerializeToString())


def with_message(**parts: object) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a")
    file.message_type.add(name="A", **parts)
    return bytes(file.SerializeToString())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it has no bytes"),
        (b"\x0a\x05abc", "field 1 is longer than what is left"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "a varint does not end"),
        (b"\x02\x00", "a field has the number 0"),
        (b"\x0b\x0c", "field 1 has the wire type 3"),
        (b"\x11abc", "field 2 is cut off"),
        (b"\x0a\x01a\x12\x01\xff", "a text is not UTF-8"),
        (b"\x10\x05\x20\x01", "a number is where a message or a text has to be"),
        (b"\x12\x01a\x22\x04\x12\x02\x1a\x00", "bytes are where a number has to be"),
        (b"\x12\x01a\x62\x01x", "an edition of Protobuf that is not known"),
        (b"\x12\x01a\x70\x05", "an edition of Protobuf that is not known"),
        (b"\x12\x01a\x50\x05", "a public import has the index 5"),
        (b"\x12\x01a\x22" + b"\x7f\x1a" * 0 + b"\x00", "the name of a type is none"),
        (one_file(number=0), "field x of a.A has the number 0"),
        (one_file(name="x.y"), "a field of a.A has no name"),
        (one_file(type=5, type_name=".a.A"), "field x is of two types"),
        (one_file(type=14, type_name=".a.A"), "field x: a.A is a message"),
        (one_file(type=11, type_name="..a"), "field x has no name of a type"),
        (one_file(type=5, oneof_index=3), "cannot be in a oneof"),
        (one_file(type=5, default_value="a"), "the default of field x is no int32"),
        (one_file(type=2, default_value="a"), "the default of field x is no float"),
        (one_file(type=12, default_value="\\q"), "the default of field x is no bytes"),
        (with_message(options={"map_entry": True}), "map entry A does not have key and value"),
        (with_message(oneof_decl=[{"name": "o"}]), "oneof o of a.A has no fields"),
    ],
)  # fmt: skip
def test_hostile_descriptors_end_in_an_error(data: bytes, message: str) -> None:
    """TC-82."""
    with pytest.raises(ConfigurationError) as raised:
        read_descriptor_set(data)
    assert message in str(raised.value)


def test_nesting_of_descriptors_is_bounded() -> None:
    """TC-82."""
    inner = b"\x0a\x01A"
    for _ in range(100):
        inner = b"\x0a\x01A\x1a" + bytes([len(inner) & 0x7F | 0x80, len(inner) >> 7]) + inner
    data = b"\x12\x01a\x22" + bytes([len(inner) & 0x7F | 0x80, len(inner) >> 7]) + inner
    with pytest.raises(ConfigurationError) as raised:
        read_descriptor_set(data)
    assert "nested more than 64 levels deep" in str(raised.value)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_descriptors_are_descriptors_or_an_error(data: st.DataObject) -> None:
    """TC-82."""
    case = data.draw(st.sampled_from(sorted(SETS)))
    raw = bytearray(SETS[case])
    for _ in range(data.draw(st.integers(1, 3))):
        if raw:
            at = data.draw(st.integers(0, len(raw) - 1))
            raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    with suppress(ConfigurationError):
        assert isinstance(read_descriptor_set(bytes(raw)), ProtoPool)


SETS = {
    "plain": one_file(),
    "default": one_file(type=12, default_value="\\001abc"),
    "message": one_file(type=11, type_name=".a.A", label=3),
    "timestamp": timestamp_pb2.DESCRIPTOR.serialized_pb,
    "options": descriptor_pb2.DESCRIPTOR.serialized_pb[:400],
}


def test_messages_are_found_by_indexes_by_either_way_of_counting() -> None:
    """TC-86: Kafka clients in Java do not count map entries among nested messages."""
    data = protoc.descriptor_set(
        {
            "main.proto": """
            syntax = "proto3"; package p;
            message A {
              map<int32, int32> m = 1; message B { message C {} } message D {}
            }
            message E {}"""
        }
    )
    assert data is not None
    pool = read_descriptor_set(data)
    places = {(0,): "p.A", (1,): "p.E", (0, 1): "p.A.B", (0, 2): "p.A.D", (0, 1, 0): "p.A.B.C"}
    for indexes, name in places.items():
        assert pool.at_indexes(indexes) == name
        assert pool.is_at(indexes, name)
    assert pool.at_indexes([0, 0]) == "p.A.B"  # 0 is the map entry, which no record is
    assert pool.at_indexes([0, 0, 0]) == "p.A.B.C"
    assert pool.is_at([0, 1], "p.A.D")
    assert pool.is_at([0, 0, 0], "p.A.B.C")
    assert not pool.is_at([0, 2], "p.A.B")
    for wrong in ([2], [0, 3], [1, 0], [-1], [0, 1, 1], []):
        with pytest.raises(LookupError):
            pool.at_indexes(wrong)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("p.Ordr", 'did you mean "p.Order"?'),
        ("q.Order", 'did you mean "p.Order"?'),
        ("Nothing.like", "the schema has p.Order"),
    ],
)
def test_an_unknown_message_is_named_with_the_nearest_one(name: str, hint: str) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p")
    file.message_type.add(name="Order")
    pool = read_descriptor_set(file.SerializeToString())
    with pytest.raises(ConfigurationError) as raised:
        pool.message(name)
    assert raised.value.hint == hint
    assert pool.message(".p.Order") is pool.message("p.Order")
