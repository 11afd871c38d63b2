"""Three real brokers that die, restart and hand over leadership while a consumer reads."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ConfluentPartition

from kfast import TopicPartition
from kfast.local.local_kafka import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import (
    PATIENCE_SECONDS,
    Reading,
    admin,
    consuming,
    leader_of,
    tps,
    until,
)

pytestmark = pytest.mark.integration

PARTITIONS: Final = 3
COUNT: Final = 2_500
SMALL: Final = {
    "max_partition_fetch_bytes": 20_000,
    "fetch_max_bytes": 60_000,
    "buffer_memory_bytes": 200_000,
    "max_poll_records": 100,
}
"""So that much is left to read when something happens to a broker."""


def fill(writer: KafkaWriter, topic: str, count: int = COUNT) -> None:
    writer.write(
        topic,
        [Message(b"%d" % n * 20, partition=p) for n in range(count) for p in range(PARTITIONS)],
        batch_records=50,
    )


def check(reading: Reading, topic: str, count: int) -> None:
    for tp in tps(topic, PARTITIONS):
        assert reading.offsets(tp) == list(range(count)), tp
        assert reading.values(tp) == [b"%d" % (n % COUNT) * 20 for n in range(count)]


def test_a_leader_is_killed_in_the_middle(
    healed_kafka3: LocalKafka, new_topic3: TopicFactory, writer3: KafkaWriter
) -> None:
    """N-18, F-11, F-15, M-03: everything comes once, in order, from whoever leads now."""
    topic = new_topic3(PARTITIONS)
    fill(writer3, topic)
    ends = dict.fromkeys(tps(topic, PARTITIONS), COUNT)
    with consuming(healed_kafka3.bootstrap_servers, topic, **SMALL) as consumer:
        reading = Reading(consumer).until_count(300)
        leader = leader_of(healed_kafka3.bootstrap_servers, TopicPartition(topic, 0))
        healed_kafka3.kill_node(leader)
        reading.until(ends, 60)
        check(reading, topic, COUNT)
        fill(writer3, topic)
        reading.until(dict.fromkeys(ends, 2 * COUNT), 60)
        check(reading, topic, 2 * COUNT)


def test_a_leader_falls_silent(
    healed_kafka3: LocalKafka, new_topic3: TopicFactory, writer3: KafkaWriter
) -> None:
    """N-05, N-17, F-22: a held broker is left for its successor, the others deliver meanwhile."""
    topic = new_topic3(PARTITIONS)
    fill(writer3, topic)
    first = TopicPartition(topic, 0)
    ends = dict.fromkeys(tps(topic, PARTITIONS), COUNT)
    with consuming(
        healed_kafka3.bootstrap_servers, topic, request_timeout_ms=3_000, **SMALL
    ) as consumer:
        reading = Reading(consumer).until_count(300)
        leader = leader_of(healed_kafka3.bootstrap_servers, first)
        healed_kafka3.pause_node(leader)
        reading.until(ends, 60)
        check(reading, topic, COUNT)


def test_a_rolling_bounce(
    healed_kafka3: LocalKafka, new_topic3: TopicFactory, writer3: KafkaWriter
) -> None:
    """N-18, F-11, N-09: every broker is restarted in turn; nothing is lost or repeated."""
    topic = new_topic3(PARTITIONS)
    fill(writer3, topic)
    count = COUNT
    with consuming(healed_kafka3.bootstrap_servers, topic, **SMALL) as consumer:
        reading = Reading(consumer).until_count(300)
        for node_id in healed_kafka3.node_ids:
            healed_kafka3.stop_node(node_id)
            for _ in range(5):
                reading.poll()
            healed_kafka3.restart_node(node_id)
            for _ in range(5):
                reading.poll()
            fill(writer3, topic)
            count += COUNT
        reading.until(dict.fromkeys(tps(topic, PARTITIONS), count), 60)
        check(reading, topic, count)


def test_leadership_moves(
    kafka3: LocalKafka, new_topic3: TopicFactory, writer3: KafkaWriter, tmp_path: Path
) -> None:
    """M-03, P-13, F-20: replicas are reassigned, the preferred one elected; reading goes on."""
    topic = new_topic3(PARTITIONS)
    tp = TopicPartition(topic, 0)
    servers = kafka3.bootstrap_servers
    fill(writer3, topic)
    with consuming(servers, topic, **SMALL) as consumer:
        reading = Reading(consumer).until_count(300)
        old = leader_of(servers, tp)
        new = next(node for node in kafka3.node_ids if node != old)
        replicas = [new, *(node for node in kafka3.node_ids if node != new)]
        plan = tmp_path / "plan.json"
        entries = [{"topic": topic, "partition": tp.partition, "replicas": replicas}]
        plan.write_text(json.dumps({"version": 1, "partitions": entries}))
        kafka3.run_tool(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            *("--bootstrap-server", servers, "--reassignment-json-file", str(plan), "--execute"),
        )
        client = admin(servers)

        def is_moved() -> bool:
            chosen = [ConfluentPartition(*tp)]
            client.elect_leaders(ElectionType.PREFERRED, chosen).result(PATIENCE_SECONDS)
            return leader_of(servers, tp) == new

        until(is_moved, "the preferred replica to lead")
        reading.until(dict.fromkeys(tps(topic, PARTITIONS), COUNT))
        check(reading, topic, COUNT)
        # What is written now is read from the new leader, and soon: no timeout is waited for.
        writer3.write(topic, [b"0" * 20], partition=tp.partition)
        began = time.monotonic()
        reading.until({tp: COUNT + 1})
        took = time.monotonic() - began
        # What the same takes on this machine at this time when nothing has moved.
        writer3.write(topic, [b"0" * 20], partition=tp.partition)
        began = time.monotonic()
        reading.until({tp: COUNT + 2})
        usual = time.monotonic() - began
        assert took < 1 + 10 * usual
