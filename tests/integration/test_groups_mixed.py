"""Classic groups with members of other clients: Java's console consumer, librdkafka, kafka-python.

Each side leads in turn: the member that was there first assigns for both. What Kafka's own
``kafka-consumer-groups`` says of such a group is compared with what the members say.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from kfast import LocalKafka, TopicPartition
from kfast.local.java import find_java
from kfast.local.local_kafka import resolve_jars
from kfast.local.node import TOOL_FLAGS, Runtime
from tests.integration.conftest import TopicFactory
from tests.integration.group_members import Member, Members, feeding
from tests.integration.support import CONSOLE_CONSUMER, GROUP_COMMAND, admin, tps, until

pytestmark = pytest.mark.integration

PARTITIONS: Final = 6
COOPERATIVE: Final[dict[str, Any]] = {"partition_assignment_strategy": ["cooperative-sticky"]}
JAVA_ASSIGNORS: Final = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


def start_foreign(group: Members, client: str, topic: str, strategy: str) -> Member:
    """Start a member of another Python client."""
    settings = {
        "servers": group.servers,
        "group_id": group.group_id,
        "name": client,
        "topic": topic,
        "strategy": strategy,
        "session_timeout_ms": 10_000,
    }
    return group.add(client, "tests.integration.foreign_member", client, json.dumps(settings))


# --- other Python clients -------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["kfast", "other"])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_with_another_client(
    kafka: LocalKafka, new_topic: TopicFactory, client: str, strategy: str, first: str
) -> None:
    """G-18, G-16: complete and sticky assignments, whoever leads; none lost, none twice."""
    topic = new_topic(PARTITIONS)
    partitions = tps(topic, PARTITIONS)
    settings = {"partition_assignment_strategy": [strategy], "session_timeout_ms": 10_000}
    with (
        Members(kafka.bootstrap_servers, topic, **settings) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        if first == "other":
            start_foreign(group, client, topic, strategy).until_event("delivered")
        ours = group.start("ours", commit="revoked")
        if first == "kfast":
            ours.until_event("delivered")
            start_foreign(group, client, topic, strategy)
        other = group.members[client]
        shares = group.until_shared(partitions)
        assert ours.is_leader is (first == "kfast")

        third = group.start("third", commit="revoked")
        now = group.until_shared(partitions)
        if strategy == "cooperative-sticky":
            assert now["ours"] <= shares["ours"]
            assert now[client] <= shares[client]
        third.close()
        group.until_shared(partitions)
        if strategy == "cooperative-sticky":
            assert ours.owned >= now["ours"]
            assert other.owned >= now[client]
        (other if first == "other" else ours).close()  # the leader goes, the other one leads
        group.until_shared(partitions)
        ends = feed.stop()
        ledger = group.until_read(ends)
        ledger.check(ends)
        assert not any(map(ledger.duplicates, partitions))


# --- Java -----------------------------------------------------------------------------------------


class JavaMember:
    """Kafka's console consumer as a member of a group, telling partition and offset per record."""

    def __init__(self, group: Members, topic: str, strategy: str) -> None:
        properties = {
            "group.id": group.group_id,
            "client.id": "java",
            "partition.assignment.strategy": JAVA_ASSIGNORS[strategy],
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 300,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 10_000,
        }
        formatter = {"print.partition": True, "print.offset": True, "print.value": False}
        command = Runtime(find_java(), tuple(resolve_jars()), 0).command(
            TOOL_FLAGS,
            CONSOLE_CONSUMER,
            *("--bootstrap-server", group.servers, "--topic", topic),
            *(w for k, v in properties.items() for w in ("--command-property", f"{k}={v}")),
            *(
                w
                for k, v in formatter.items()
                for w in ("--formatter-property", f"{k}={str(v).lower()}")
            ),
        )
        self.topic = topic
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def read(self) -> None:
        """Read its output to the end; run in a thread."""
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    def offsets(self) -> dict[TopicPartition, list[int]]:
        """Return what it read, by partition and in its order."""
        found: dict[TopicPartition, list[int]] = {}
        for line in list(self.lines):
            match = re.match(r"Partition:(\d+)\tOffset:(\d+)$", line.strip())
            if match is not None:
                tp = TopicPartition(self.topic, int(match[1]))
                found.setdefault(tp, []).append(int(match[2]))
        return found

    def leave(self) -> None:
        """Have it end in good order (SIGTERM)."""
        self.process.terminate()
        self.process.wait(30)


@contextmanager
def java_member(group: Members, topic: str, strategy: str) -> Iterator[JavaMember]:
    """Give a console consumer that has ended at the end."""
    member = JavaMember(group, topic, strategy)
    thread = threading.Thread(target=member.read)
    thread.start()
    try:
        yield member
    finally:
        member.process.kill()
        thread.join()
        assert member.process.stdout is not None
        member.process.stdout.close()
        member.process.wait()


@pytest.mark.parametrize(
    ("strategy", "first"),
    [("range", "kfast"), ("range", "java"), ("cooperative-sticky", "kfast")],
)
def test_with_java(kafka: LocalKafka, new_topic: TopicFactory, strategy: str, first: str) -> None:
    """G-18: with Java's consumer, each side as leader; together they read everything, once."""
    topic = new_topic(PARTITIONS)
    partitions = tps(topic, PARTITIONS)
    half = PARTITIONS // 2
    settings = {"partition_assignment_strategy": [strategy], "session_timeout_ms": 10_000}
    with (
        Members(kafka.bootstrap_servers, topic, **settings) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        ours = None
        if first == "kfast":
            ours = group.start("ours", commit="revoked")
            ours.until_event("delivered")
        with java_member(group, topic, strategy) as java:
            until(java.offsets, "records read by Java")
            if ours is None:
                ours = group.start("ours", commit="revoked")
            ours.until(lambda: len(ours.owned) == half, "half of the partitions")
            assert ours.is_leader is (first == "kfast")
            mine = ours.owned
            theirs = set(partitions) - mine
            before = {tp: len(found) for tp, found in java.offsets().items()}
            until(
                lambda: all(len(java.offsets().get(tp, ())) > before.get(tp, 0) for tp in theirs),
                "Java reads the other half",
            )
            ours.until(lambda: all(ours.delivered(tp) for tp in mine), "we read ours")
            java.leave()
            ours.until(lambda: ours.owned == set(partitions), "all partitions after Java left")
            if strategy == "cooperative-sticky":
                assert all(
                    mine.isdisjoint(map(tuple, e["partitions"])) for e in ours.all("revoked")[1:]
                )
            ends = feed.stop()
            read_by_java = java.offsets()

        def all_read() -> bool:
            ledger = group.ledger()
            return all(
                set(read_by_java.get(tp, ())) | ledger.processed[tp] == set(range(end))
                for tp, end in ends.items()
            )

        ours.until(all_read, "everything is read by one or the other")
        ours.close()
        ledger = group.ledger()
        for tp in partitions:
            theirs_read = read_by_java.get(tp, [])
            assert theirs_read == sorted(set(theirs_read))
            assert len(theirs_read) + len(ledger.delivered[tp]) == ends[tp], tp  # nothing twice


# --- kafka-consumer-groups ------------------------------------------------------------------------


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of a table as Kafka's tools print it."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    start = next(n for n, words in enumerate(lines) if words[0] == "GROUP")
    return [dict(zip(lines[start], words, strict=False)) for words in lines[start + 1 :]]


def test_what_kafka_says_of_a_group(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-18, C-01: kafka-consumer-groups shows members, assignment, committed offsets and lag."""
    topic = new_topic(4)
    partitions = tps(topic, 4)
    with Members(kafka.bootstrap_servers, topic, **COOPERATIVE) as group:
        with feeding(kafka.bootstrap_servers, partitions) as feed:
            group.start("m1")
            group.start("m2", group_instance_id="two")
            shares = group.until_shared(partitions)
            until(lambda: all(m.count("committed") for m in group.running), "commits")
            ends = feed.stop()
        ledger = group.until_read(ends)
        ledger.check(ends)
        client = admin(kafka.bootstrap_servers)

        def has_committed_all() -> bool:
            found = group.ledger().stints
            return all(found[tp][-1].committed == ends[tp] for tp in partitions)

        until(has_committed_all, "auto-commit of everything")
        names = ("--bootstrap-server", kafka.bootstrap_servers, "--group", group.group_id)
        rows = table(kafka.run_tool(GROUP_COMMAND, *names, "--describe"))
        assert {TopicPartition(row["TOPIC"], int(row["PARTITION"])) for row in rows} == set(
            partitions
        )
        for row in rows:
            tp = TopicPartition(row["TOPIC"], int(row["PARTITION"]))
            assert tp in shares[row["CLIENT-ID"]]
            assert int(row["CURRENT-OFFSET"]) == int(row["LOG-END-OFFSET"]) == ends[tp]
            assert row["LAG"] == "0"
        found = client.describe_consumer_groups([group.group_id])[group.group_id].result(20)
        assert found.partition_assignor == "cooperative-sticky"
        assert {
            member.client_id: (
                {TopicPartition(p.topic, p.partition) for p in member.assignment.topic_partitions},
                member.group_instance_id,
            )
            for member in found.members
        } == {"m1": (shares["m1"], None), "m2": (shares["m2"], "two")}
