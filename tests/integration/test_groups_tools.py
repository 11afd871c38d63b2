"""Kafka's own ``kafka-consumer-groups`` and groups of kfast: what it shows, and what it deletes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pytest

from kfast import KafkaConsumer, LocalKafka, TopicPartition
from kfast.errors import LocalKafkaError, NoOffsetForPartitionError
from tests.integration.conftest import TopicFactory
from tests.integration.group_requests import commit_for
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import (
    GROUP_COMMAND,
    Reading,
    assigned,
    consuming,
    tps,
    unique,
    until,
)

pytestmark = pytest.mark.integration

NOTHING: Final = "-"
CLASSIC: Final[dict[str, Any]] = {"partition_assignment_strategy": ["cooperative-sticky"]}
CONSUMER: Final[dict[str, Any]] = {"group_protocol": "consumer"}
PROTOCOLS: Final = {"classic": CLASSIC, "consumer": CONSUMER}
QUIET: Final[dict[str, Any]] = {"enable_auto_commit": False, "fetch_max_wait_ms": 50}


class Shown(NamedTuple):
    """One line of the tool's description of a group."""

    current: str
    end: str
    lag: str
    consumer_id: str
    host: str
    client_id: str


def group_tool(kafka: LocalKafka, group_id: str, *options: str) -> str:
    """Run the tool for one group."""
    names = ("--bootstrap-server", kafka.bootstrap_servers, "--group", group_id)
    return kafka.run_tool(GROUP_COMMAND, *names, *options)


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a table of the tool."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    start = next(number for number, words in enumerate(lines) if words[0] == "GROUP")
    return [dict(zip(lines[start], words, strict=False)) for words in lines[start + 1 :]]


def read_a_little(consumer: KafkaConsumer) -> None:
    """Read some of every partition and no more: pause each where it is then."""

    def is_done() -> bool:
        consumer.poll(20)
        mine = consumer.assignment()
        consumer.pause(*(tp for tp in mine if consumer.position(tp) > 0))
        return consumer.paused() == mine

    until(is_done, "some of every partition")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_the_tool_shows(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, protocol: str
) -> None:
    """C-01, C-03, P-06, P-12, G-18: members, shares, commits and lag are what kfast says."""
    topic, group_id = new_topic(4), unique("shown")
    partitions = tps(topic, 4)
    ends = {tp: 100 + 10 * tp.partition for tp in partitions}
    for tp, end in ends.items():
        writer.write(topic, [b"x"] * end, partition=tp.partition)
    settings = {"group_id": group_id, "max_poll_records": 7, **QUIET, **PROTOCOLS[protocol]}
    servers = kafka.bootstrap_servers
    with (
        consuming(servers, topic, client_id="one", **settings) as one,
        consuming(servers, topic, client_id="two", **settings) as two,
    ):
        both = {"one": one, "two": two}

        def is_shared() -> bool:
            for consumer in both.values():
                consumer.poll(20)
                consumer.pause(*consumer.assignment())  # else the first one reads to the ends
            return [len(consumer.assignment()) for consumer in both.values()] == [2, 2]

        until(is_shared, "two shares")
        for consumer in both.values():
            consumer.resume(*consumer.assignment())
            read_a_little(consumer)
        one.commit()
        left_out = max(two.assignment())
        two.commit({tp: two.position(tp) - 1 for tp in two.assignment() - {left_out}})
        expected = {}
        for name, consumer in both.items():
            committed = consumer.committed(consumer.assignment())
            for tp, at in committed.items():
                assert (at is None) is (tp == left_out)
                assert consumer.current_lag(tp) == ends[tp] - consumer.position(tp) > 0
                expected[tp] = Shown(
                    NOTHING if at is None else str(at.offset),
                    str(ends[tp]),
                    NOTHING if at is None else str(ends[tp] - at.offset),
                    consumer.group_metadata().member_id,
                    "/127.0.0.1",
                    name,
                )
        assert all(row.lag == NOTHING or int(row.lag) > 0 for row in expected.values())
        shown = {
            TopicPartition(row["TOPIC"], int(row["PARTITION"])): Shown(
                row["CURRENT-OFFSET"],
                row["LOG-END-OFFSET"],
                row["LAG"],
                row["CONSUMER-ID"],
                row["HOST"],
                row["CLIENT-ID"],
            )
            for row in rows(group_tool(kafka, group_id, "--describe"))
        }
        assert shown == expected
        told = rows(group_tool(kafka, group_id, "--describe", "--members", "--verbose"))
        shares = {
            consumer.group_metadata().member_id: f"{topic}:"
            + ",".join(str(tp.partition) for tp in sorted(consumer.assignment()))
            for consumer in both.values()
        }
        assert {row["CONSUMER-ID"]: row["CURRENT-ASSIGNMENT"] for row in told} == shares
        assert {row["#PARTITIONS"] for row in told} == {"2"}
        if protocol == "consumer":
            epochs = {str(consumer.group_metadata().generation_id) for consumer in both.values()}
            assert {row["CURRENT-EPOCH"] for row in told} == epochs
            assert {row["TARGET-EPOCH"] for row in told} == epochs


# --- offsets that are gone ------------------------------------------------------------------------


def check_resets(
    kafka: LocalKafka,
    topic: str,
    group_id: str,
    caplog: pytest.LogCaptureFixture,
    **settings: Any,
) -> None:
    """Check where members begin when partition 0 of two, 20 records each, lost its commit."""
    gone, kept = tps(topic, 2)
    for policy, start in (("earliest", 0), ("latest", 20)):
        caplog.clear()
        with consuming(
            kafka.bootstrap_servers,
            topic,
            **{**settings, "group_id": group_id, "auto_offset_reset": policy},
        ) as consumer:
            reading = Reading(consumer).until({gone: 20, kept: 20})
            assert reading.offsets(gone) == list(range(start, 20))
            assert reading.offsets(kept) == list(range(7, 20))
        warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert any(f"{gone}" in text and "no committed offset" in text for text in warnings)
        assert not any(f"{kept}" in text for text in warnings)
    with consuming(
        kafka.bootstrap_servers,
        topic,
        **{**settings, "group_id": group_id, "auto_offset_reset": "none"},
    ) as consumer:
        reading = Reading(consumer)
        with pytest.raises(NoOffsetForPartitionError) as caught:
            until(lambda: reading.poll() < 0, "an error")
        assert (caught.value.topic, caught.value.partition) == gone
        consumer.seek(gone, 15)
        reading.until({gone: 20, kept: 20})
        assert reading.offsets(gone) == list(range(15, 20))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_deleted_offsets(
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    caplog: pytest.LogCaptureFixture,
    protocol: str,
) -> None:
    """P-01, P-02, C-09, O-02: refused while members are there; then the reset policy decides."""
    topic, group_id = new_topic(2), unique("deleted")
    gone, kept = tps(topic, 2)
    for tp in (gone, kept):
        writer.write(topic, [b"x"] * 20, partition=tp.partition)
    settings = {**QUIET, **PROTOCOLS[protocol]}
    asked = ("--delete-offsets", "--topic", f"{topic}:0")
    with consuming(kafka.bootstrap_servers, topic, group_id=group_id, **settings) as consumer:
        Reading(consumer).until({gone: 20, kept: 20})
        consumer.commit({gone: 5, kept: 7})
        refused = ""
        try:
            refused = group_tool(kafka, group_id, *asked)
        except LocalKafkaError as error:
            refused = str(error)
        assert "subscribed" in refused.lower(), refused
        assert consumer.committed(gone) == 5
    group_tool(kafka, group_id, *asked)
    check_resets(kafka, topic, group_id, caplog, **settings)


def test_expired_offsets(
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P-01, P-02, C-09, O-02: who reads is not disturbed; who comes later begins by policy."""
    topic, group_id = new_topic(2), unique("expired")
    gone, kept = tps(topic, 2)
    for tp in (gone, kept):
        writer.write(topic, [b"x"] * 20, partition=tp.partition)
    servers = kafka.bootstrap_servers
    with assigned(servers, [gone, kept], group_id=group_id, **QUIET) as consumer:
        reading = Reading(consumer).until({gone: 20, kept: 20})
        consumer.commit({kept: 7})
        commit_for(servers, group_id, gone, 5, retention_ms=2_000)
        assert consumer.committed(gone) == 5
        until(lambda: consumer.committed(gone) is None, "the commit expires")
        assert consumer.committed(kept) == 7
        assert reading.poll() == 0
        assert consumer.position(gone) == 20
    check_resets(kafka, topic, group_id, caplog, **QUIET)
