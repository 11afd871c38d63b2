"""ConsumerHeartbeatRequest: which fields a heartbeat holds."""

from __future__ import annotations

from kfast.consumer.group.kip848.heartbeat_request import (
    ConsumerHeartbeatRequest,
    MemberFields,
    by_topic,
    new_member_id,
)
from kfast.consumer.group.kip848.reconciliation import TopicIdPartition
from kfast.protocol.messages.consumer_group_heartbeat import TopicPartitions
from tests.unit.configs import config

A, B = bytes([1] * 16), bytes([2] * 16)
FIELDS = MemberFields(frozenset({"t"}), None, frozenset({TopicIdPartition(A, 3)}))


def request() -> ConsumerHeartbeatRequest:
    return ConsumerHeartbeatRequest(config(group_id="g", group_protocol="consumer"))


def test_a_join_owns_nothing_whatever_it_had() -> None:
    """K-02: a broker refuses anything else (42)."""
    assert request().build("m", 0, FIELDS, version=1).topic_partitions == []


def test_what_was_sent_is_not_sent_again_without_a_reset() -> None:
    """K-02: forgetting makes the next request a full one."""
    made = request()
    assert made.has_changes(FIELDS)
    assert made.build("m", 3, FIELDS, version=1).topic_partitions == [TopicPartitions(A, [3])]
    changed: bool = made.has_changes(FIELDS)
    assert not changed
    again = made.build("m", 3, FIELDS, version=1)
    assert (again.topic_partitions, again.subscribed_topic_names) == (None, None)
    assert made.build("m", 3, FIELDS, version=1, acknowledges=True).topic_partitions
    made.reset()
    assert made.has_changes(FIELDS)
    assert made.build("m", 3, FIELDS, version=1).rebalance_timeout_ms == 300_000
    assert "sent=" in repr(made)


def test_partitions_are_grouped_by_topic_in_order() -> None:
    tips = [TopicIdPartition(B, 1), TopicIdPartition(A, 2), TopicIdPartition(A, 0)]
    assert by_topic(tips) == [TopicPartitions(A, [0, 2]), TopicPartitions(B, [1])]


def test_member_ids_never_look_like_an_option() -> None:
    """K-01: one of 64 random ids would begin with a dash."""
    ids = {new_member_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert not any(made.startswith("-") for made in ids)
