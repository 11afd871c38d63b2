"""kfast's message definitions against the schemas in Kafka's Java client, field by field."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfast.protocol.consumer_protocol import MAX_VERSION, WireAssignment, WireSubscription
from kfast.protocol.encoders import message_encoder
from kfast.protocol.message import Message
from kfast.protocol.schema import ArrayOf, Scalar, Sized, WireField, WireType, wire_fields
from tests.conformance.json_codec import encode
from tests.conformance.json_schema import Field, Schemas, Struct
from tests.property.protocol_messages import (
    EVERY_MESSAGE,
    EVERY_VERSION,
    EVERY_VERSION_IDS,
    messages,
)

SAFER_DEFAULTS = {
    # A consumer must send -1; 0 would claim to be broker 0, -2 to be a debugging tool.
    ("ListOffsetsRequest", "replica_id"): (0, -1),
    ("OffsetForLeaderEpochRequest", "replica_id"): (-2, -1),
}
"""Where kfast's default differs on purpose: (Kafka's, kfast's)."""

every_message = pytest.mark.parametrize("cls", EVERY_MESSAGE, ids=lambda cls: cls.__name__)
every_message_and_version = pytest.mark.parametrize(
    ("cls", "version"), EVERY_VERSION, ids=EVERY_VERSION_IDS
)


def plain(value: object) -> object:
    """Return structs as dicts, everything else as it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


# --- the same description of both sides -----------------------------------------------------------


def described(cls: type, version: int) -> list[dict[str, Any]]:
    """Return what kfast declares of a struct in one version, positional fields first."""
    return [
        {
            "name": name,
            **described_type(spec.kind, version),
            "nullable": spec.is_nullable(version),
            "tag": spec.tag,
            "ignorable": spec.ignorable,
            "default": described_default(cls, name, spec),
        }
        for name, spec in wire_fields(cls).items()
        if version in spec.versions
    ]


def described_type(kind: WireType, version: int) -> dict[str, Any]:
    if isinstance(kind, ArrayOf):
        element = described_type(kind.element, version)
        return {"type": "[]" + element["type"], "fields": element["fields"]}
    if isinstance(kind, Scalar | Sized):
        return {"type": kind.name, "fields": None}
    return {"type": kind.__name__, "fields": described(kind, version)}


def described_default(cls: type, name: str, spec: WireField) -> object:
    found = plain(spec.make_default())
    kafkas, ours = SAFER_DEFAULTS.get((cls.__name__, name), (found, found))
    assert found == ours
    return kafkas


def expected(struct: Struct, version: int) -> list[dict[str, Any]]:
    """Return the same of Kafka's schema."""
    present = [field for field in struct.fields if version in field.versions]
    positional = [field for field in present if version not in field.tagged]
    tagged = [field for field in present if version in field.tagged]
    return [
        {
            "name": field.name,
            "type": field.type,
            "fields": expected(field.struct, version) if field.struct else None,
            "nullable": version in field.nullable,
            "tag": field.tag if version in field.tagged else None,
            "ignorable": field.ignorable,
            "default": field.default,
        }
        for field in [*positional, *sorted(tagged, key=tag_of)]
    ]


def tag_of(field: Field) -> int:
    assert field.tag is not None
    return field.tag


# --- tests ----------------------------------------------------------------------------------------


@every_message
def test_versions(schemas: Schemas, cls: type[Message]) -> None:
    """D-23: the range kfast speaks is within Kafka's, and flexible from the same version on."""
    schema = schemas.load(cls.__name__)
    assert schema.api_key == cls.API_KEY
    assert schema.valid.first <= cls.MIN_VERSION
    assert schema.valid.last >= cls.MAX_VERSION
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        assert (version in schema.flexible) == (version >= cls.FLEXIBLE_FROM)


@every_message_and_version
def test_fields(schemas: Schemas, cls: type[Message], version: int) -> None:
    """D-23: the same fields in the same order, with types, nullability, tags and defaults."""
    assert described(cls, version) == expected(schemas.load(cls.__name__).body, version)


@every_message_and_version
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_bytes(schemas: Schemas, cls: type[Message], version: int, data: st.DataObject) -> None:
    """D-23: encoders and decoders agree with an encoder driven by Kafka's schema."""
    message: Any = data.draw(messages(cls, version))
    reference = encode(schemas.load(cls.__name__), dataclasses.asdict(message), version)
    assert message.encode(version) == reference
    assert cls.decode(reference, version) == message


@pytest.mark.parametrize("version", range(MAX_VERSION + 1))
@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (WireSubscription, "ConsumerProtocolSubscription"),
        (WireAssignment, "ConsumerProtocolAssignment"),
    ],
)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_embedded_data(
    schemas: Schemas, cls: type, name: str, version: int, data: st.DataObject
) -> None:
    """D-23: what group members exchange; Kafka calls the struct in it after the partition."""
    schema = schemas.load(name)
    assert version in schema.valid
    assert version not in schema.flexible
    ours = described(cls, version)
    theirs = expected(schema.body, version)
    for field in theirs:
        field["type"] = str(field["type"]).replace("TopicPartition", "WireTopic")
    assert ours == theirs
    wired: Any = data.draw(messages(cls, version))
    out = bytearray()
    message_encoder(cls, version, False)(out, wired)
    assert out == encode(schema, dataclasses.asdict(wired), version)
    assert schema.valid.last == MAX_VERSION


def test_every_difference_is_still_one(schemas: Schemas) -> None:
    for (message, name), (kafkas, ours) in SAFER_DEFAULTS.items():
        fields = {field.name: field for field in schemas.load(message).body.fields}
        assert fields[name].default == kafkas != ours
