"""A group that Java's consumer began, and leads, when members with kfast join it."""

from __future__ import annotations

import struct
import warnings
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException

from kfast import LocalKafka, TopicPartition
from kfast.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tests.integration.conftest import TopicFactory
from tests.integration.console_member import console_member
from tests.integration.group_members import Members, feeding
from tests.integration.support import PATIENCE_SECONDS, admin, tps, until

pytestmark = pytest.mark.integration

PARTITIONS: Final = 6
SETTINGS: Final[dict[str, Any]] = {
    "partition_assignment_strategy": ["cooperative-sticky"],
    "session_timeout_ms": 10_000,
}
JAVA: Final = {
    "client.id": "java",
    "partition.assignment.strategy": (
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    ),
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": 300,
    "heartbeat.interval.ms": 200,
    "session.timeout.ms": 10_000,
}

NOT_YET: Final = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)

Described = dict[str, tuple[bytes, set[TopicPartition]]]


def described(servers: str, group_id: str) -> Described:
    """Return what the coordinator keeps of every member: its subscription, its partitions."""
    client = admin(servers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the newer call drops the bytes
        try:
            groups = client.list_groups(group_id, PATIENCE_SECONDS)
        except KafkaException as error:
            if error.args[0].code() in NOT_YET:
                return {}
            raise
    return {
        member.client_id: (
            member.metadata,
            set(ConsumerProtocolAssignment.decode(member.assignment).partitions),
        )
        for group in groups
        if group.state == "Stable"
        for member in group.members
    }


def test_java_first(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-18, G-10: Java leads; only what moves is revoked; both write the same user data."""
    topic = new_topic(PARTITIONS)
    partitions = tps(topic, PARTITIONS)
    servers = kafka.bootstrap_servers
    with (
        Members(servers, topic, **SETTINGS) as group,
        feeding(servers, partitions, per_second=200) as feed,
        console_member(servers, topic, {**JAVA, "group.id": group.group_id}) as java,
    ):

        def until_settled(*sizes: int) -> Described:
            """Wait until the shares have these sizes, Java's first, and everybody knows."""

            def look() -> Described | None:
                found = described(servers, group.group_id)
                shares = [found.get(name, (b"", set()))[1] for name in ("java", "ours", "third")]
                is_settled = [len(share) for share in shares] == list(sizes) and all(
                    member.owned == found[member.name][1] for member in group.running
                )
                return found if is_settled else None

            return until(lambda: look() or {}, f"shares of {sizes}")

        until_settled(6, 0, 0)
        until(java.offsets, "records read by Java")
        ours = group.start("ours", commit="revoked")
        first = until_settled(3, 3, 0)
        third = group.start("third", commit="revoked")
        second = until_settled(2, 2, 2)
        assert [member.is_leader for member in (ours, third)] == [False, False]
        for name in ("java", "ours"):
            assert second[name][1] < first[name][1]
        moved = first["ours"][1] - second["ours"][1]
        assert [set(map(tuple, e["partitions"])) for e in ours.all("revoked")] == [moved]
        for name, (metadata, _) in second.items():
            told = ConsumerProtocolSubscription.decode(metadata)
            assert metadata[:2] == b"\0\3", name
            assert told.generation_id >= 0, name
            assert told.user_data == struct.pack(">i", told.generation_id), name
            assert told.topics == [topic], name

        third.close()
        third_gone = until_settled(3, 3, 0)
        for name in ("java", "ours"):
            assert third_gone[name][1] > second[name][1]
        assert ours.count("revoked") == 1
        java.leave()
        ours.until(lambda: ours.owned == set(partitions), "everything")
        assert ours.is_leader, "which reads what Java left it"
        assert ours.count("revoked") == 1
        ends = feed.stop()
        by_java = java.offsets()

        def is_all_read() -> bool:
            done = group.ledger().processed
            return all(
                done[tp] | set(by_java.get(tp, ())) == set(range(end)) for tp, end in ends.items()
            )

        ours.until(is_all_read, "everything is read by somebody")
        delivered = group.ledger().delivered
        for tp in ends:
            ours_and_third = delivered[tp]
            assert len(set(ours_and_third)) == len(ours_and_third), f"{tp}: nothing twice by kfast"
            # Java commits before it joins a rebalance and reads on until it has to let go: what it
            # read meanwhile its successor reads again, from the position it starts at.
            twice = set(ours_and_third) & set(by_java.get(tp, ()))
            starts = {
                offset
                for member in (ours, third)
                for event in member.all("assigned")
                for name, partition, offset in event["positions"]
                if TopicPartition(name, partition) == tp
            }
            assert all(offset in starts or offset - 1 in twice for offset in twice), tp
        assert ours.count("lost") == third.count("lost") == 0
        assert ours.count("error") == 0
