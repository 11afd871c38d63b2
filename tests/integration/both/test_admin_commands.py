"""topics, groups, lag and doctor, next to Kafka's own tool."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfast import KafkaConsumer, LocalKafka, TopicPartition, cli
from kfast.types import OffsetAndMetadata
from tests.integration.both.brokers import Broker, Writer
from tests.integration.both.conftest import TopicFactory, real_only
from tests.integration.support import GROUP_COMMAND, consuming, tps, unique, until

Rows = list[dict[str, Any]]
NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
def run(kafka: Broker, capfd: pytest.CaptureFixture[str]) -> Callable[..., Rows]:
    def rows(*words: str) -> Rows:
        status = cli.main(["-b", kafka.bootstrap_servers, *words, "-f", "json"])
        printed = capfd.readouterr()
        assert (status, printed.err) == (0, "")
        found: Rows = json.loads(printed.out)
        return found

    return rows


@pytest.fixture
def groups(
    kafka: Broker, new_topic: TopicFactory, writer: Writer
) -> Iterator[tuple[str, dict[str, str], dict[str, KafkaConsumer]]]:
    """A topic of 3 partitions, read by a group of each protocol that commits two of them."""
    topic = new_topic(partitions=3)
    for tp in tps(topic, 3):
        writer.write(topic, [b"x"] * (10 + tp.partition), partition=tp.partition)
    names = {"classic": unique("classic"), "consumer": unique("consumer")}
    settings: dict[str, Any] = {"enable_auto_commit": False, "fetch_max_wait_ms": 50}
    servers = kafka.bootstrap_servers
    with (
        consuming(servers, topic, group_id=names["classic"], client_id="one", **settings) as one,
        consuming(
            *(servers, topic),
            group_id=names["consumer"],
            group_protocol="consumer",
            client_id="two",
            **settings,
        ) as two,
    ):
        members = {"classic": one, "consumer": two}
        for consumer in members.values():
            until(lambda c=consumer: c.poll(50) is not None and len(c.assignment()) == 3, "members")  # type: ignore[misc]
            consumer.commit(
                {
                    TopicPartition(topic, number): OffsetAndMetadata(number + 2, "", -1)
                    for number in (0, 1)
                }
            )
        yield topic, names, members


def tool_rows(text: str) -> list[dict[str, str]]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    found = []
    heading: list[str] = []
    for words in lines:
        if words[0] == "GROUP":
            heading = words
        elif heading:
            found.append(dict(zip(heading, words, strict=False)))
    return found


@real_only
def test_lag_and_groups_are_those_of_the_tool(
    one_node: LocalKafka,
    run: Callable[..., Rows],
    groups: tuple[str, dict[str, str], dict[str, KafkaConsumer]],
) -> None:
    """CL-62, CL-63: kafka-consumer-groups --describe, for a classic and a KIP-848 group."""
    topic, names, members = groups
    options = [word for name in names.values() for word in ("--group", name)]
    shown = tool_rows(
        one_node.run_tool(
            GROUP_COMMAND, "--bootstrap-server", one_node.bootstrap_servers, "--describe", *options
        )
    )
    lags = run("lag", *names.values())
    assert sorted((row["group"], row["topic"], row["partition"]) for row in lags) == sorted(
        (row["GROUP"], row["TOPIC"], int(row["PARTITION"])) for row in shown
    )
    by_place = {(row["GROUP"], int(row["PARTITION"])): row for row in shown}
    for row in lags:
        theirs = by_place[row["group"], row["partition"]]
        committed = row["committed"]
        assert theirs["CURRENT-OFFSET"] == ("-" if committed is None else str(committed))
        assert theirs["LOG-END-OFFSET"] == str(row["end"])
        # The tool has no lag without a committed offset.
        assert theirs["LAG"] == ("-" if committed is None else str(row["lag"]))
        assert theirs["CONSUMER-ID"] == row["member"]
        assert theirs["HOST"] == row["host"]
        assert theirs["CLIENT-ID"] == row["client"]
        assert row["start"] == 0
    assert {row["lag"] for row in lags if row["committed"] is None} == {12}
    listed = {row["group"]: row for row in run("groups", *names.values())}
    for kind, name in names.items():
        assert listed[name] == {
            "group": name,
            "state": "Stable",
            "type": kind,
            "protocol": "consumer",
            "members": 1,
            "coordinator": 1,
        }
        (described,) = run("groups", "describe", name)
        (member,) = described["members"]
        assert member["member"] == members[kind].group_metadata().member_id
        assert member["partitions"] == [str(tp) for tp in tps(topic, 3)]
    for row in run("lag", "--time", *names.values()):
        assert 0 <= row["time_lag_ms"] <= time.time_ns() // 1_000_000 - NOW_MS + 600_000


def test_reset_and_topics(
    kafka: Broker,
    run: Callable[..., Rows],
    groups: tuple[str, dict[str, str], dict[str, KafkaConsumer]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """CL-61, CL-62: refused with members, then committed, for both protocols."""
    topic, names, members = groups
    for name in names.values():
        words = ["groups", "reset", name, "--to", "-1", topic, "--execute"]
        assert cli.main(["-b", kafka.bootstrap_servers, *words]) == 1
        assert f'group "{name}" has members' in capfd.readouterr().err
    for consumer in members.values():
        consumer.close()
    for name in names.values():
        found = run("groups", "reset", name, "--to", "-1", topic, "--execute")
        assert [row["new"] for row in found] == [9, 10, 11]
        assert [row["lag"] for row in run("lag", name)] == [1, 1, 1]
    (listed,) = run("topics", topic)
    assert (listed["partitions"], listed["replication"], listed["offsets"]) == (3, 1, 33)
    assert listed["newest"] > "2026"
    described = run("topics", "describe", topic)
    assert [(row["start"], row["end"], row["replicas"]) for row in described] == [
        (0, 10 + number, [1]) for number in range(3)
    ]


def test_doctor(
    kafka: Broker,
    new_topic: TopicFactory,
    writer: Writer,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """CL-66: all checks pass on a broker that works."""
    topic = new_topic(partitions=2)
    writer.write(topic, [b"x"] * 3, partition=1)
    words = ["-b", kafka.bootstrap_servers, "doctor", topic, "-g", unique("doctor"), "-f", "json"]
    assert cli.main(words) == 0
    found = json.loads(capfd.readouterr().out)
    assert {check["ok"] for check in found["checks"]} == {True}


@real_only
def test_bench(
    kafka: Broker,
    new_topic: TopicFactory,
    writer: Writer,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """CL-69: every client that is installed reads all records."""
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        writer.write(topic, [b"x" * 100] * 5_000, partition=partition)
    assert (
        cli.main(["-b", kafka.bootstrap_servers, "bench", topic, "--rounds", "1", "-f", "json"])
        == 0
    )
    rows = {row["client"]: row for row in json.loads(capfd.readouterr().out)}
    assert {"kfast", "confluent-kafka", "kafka-python", "aiokafka"} <= {*rows}
    for row in rows.values():
        assert row["records"] == 10_000, row
        assert (
            min(row["records_per_second"], row["cpu_seconds_per_million"], row["peak_rss_mb"]) > 0
        )
