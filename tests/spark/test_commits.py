"""``commitOffsets``: Kafka's own tools see how far a query is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition

from kfast import TopicPartition
from kfast.local.local_kafka import LocalKafka
from kfast.table.group_commits import GroupCommits
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import unique, until
from tests.spark.conftest import TopicFactory
from tests.spark.reading import Reads


def committed(kafka: LocalKafka, group: str, topic: str) -> int:
    """Return what a group has committed of partition 0, as another client sees it."""
    client = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "log_level": 0}
    )
    try:
        (found,) = client.committed([TheirPartition(topic, 0)], timeout=30)
        return int(found.offset)
    finally:
        client.close()


def test_finished_batches_are_committed(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic, group = new_topic(), unique("watched")
    writer.write(topic, [b"x"] * 30)
    query = (
        reads.stream(
            topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=10,
            commitOffsets=True,
            kafka__group__id=group,
        )
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        # Spark reports the end of a batch with the beginning of the next one.
        until(lambda: committed(kafka, group, topic) >= 20, "the second batch", 100)
        writer.write(topic, [b"x"])
        until(lambda: committed(kafka, group, topic) >= 30, "the third batch", 100)
        assert query.exception() is None
    finally:
        query.stop()


def test_commits(kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter) -> None:
    topic, group = new_topic(), unique("watched")
    writer.write(topic, [b"x"] * 5)
    commits = GroupCommits({"bootstrap.servers": kafka.bootstrap_servers}, group)
    try:
        for offset in (3, 5):
            commits.commit({TopicPartition(topic, 0): offset})
            assert committed(kafka, group, topic) == offset
        commits.commit({})
    finally:
        commits.close()


def test_a_commit_that_fails_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "bootstrap.servers": "127.0.0.1:9",
        "default.api.timeout.ms": "1000",
        "request.timeout.ms": "1000",
    }
    commits = GroupCommits(settings, "g")
    try:
        with caplog.at_level(logging.WARNING, "kfast.spark"):
            for _ in range(2):
                commits.commit({TopicPartition("t", 0): 3})
    finally:
        commits.close()
    ours = [each for each in caplog.records if each.name == "kfast.table.group_commits"]
    assert len(ours) == 1
    assert ours[0].message.startswith('cannot commit to group "g": cannot connect')
