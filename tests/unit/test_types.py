"""kfast.types: tuples and topic ids."""

from __future__ import annotations

import base64
import dataclasses
import pickle

import pytest

from kfast.types import (
    ZERO_UUID,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
    TopicPartition,
    format_uuid,
)


def test_tuples_have_the_fields_of_kafka_python() -> None:
    assert TopicPartition._fields == ("topic", "partition")
    assert OffsetAndMetadata._fields == ("offset", "metadata", "leader_epoch")
    assert OffsetAndTimestamp._fields == ("offset", "timestamp", "leader_epoch")


def test_group_metadata_has_the_fields_a_producer_needs() -> None:
    fields = [field.name for field in dataclasses.fields(ConsumerGroupMetadata) if field.compare]
    assert fields == ["group_id", "generation_id", "member_id", "group_instance_id"]
    assert ConsumerGroupMetadata("g") == ConsumerGroupMetadata("g", -1, "", None)


def test_tuples_compare_hash_print_and_pickle() -> None:
    tp = TopicPartition("orders", 3)
    assert tp == ("orders", 3)
    assert str(tp) == "orders-3"
    assert {tp: 1}[TopicPartition("orders", 3)] == 1
    assert OffsetAndMetadata(5) == (5, "", -1)
    metadata = ConsumerGroupMetadata("g", 4, "m")
    for value in (tp, OffsetAndMetadata(5, "x", 2), OffsetAndTimestamp(1, 2), metadata):
        assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize(
    "uuid", [ZERO_UUID, bytes(range(16)), b"\xff" * 16, b"\xfb\xef\xbe" * 5 + b"z"]
)
def test_topic_ids_round_trip_as_text(uuid: bytes) -> None:
    text = format_uuid(uuid)
    assert len(text) == 22
    assert base64.urlsafe_b64decode(text + "==") == uuid


def test_topic_ids_print_as_kafka_prints_them() -> None:
    assert format_uuid(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert format_uuid(b"\xff" * 16) == "_____________________w"


def test_a_topic_id_has_16_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes, got 3"):
        format_uuid(b"abc")


def test_a_broker_side_pattern_is_a_value() -> None:
    pattern = SubscriptionPattern("orders-.*")
    assert pattern == SubscriptionPattern("orders-.*")
    assert len({pattern, SubscriptionPattern("orders-.*")}) == 1
    assert str(pattern) == pattern.pattern == "orders-.*"
    assert pickle.loads(pickle.dumps(pattern)) == pattern
    with pytest.raises(ValueError, match="non-empty"):
        SubscriptionPattern("")
