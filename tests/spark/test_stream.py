"""Streaming queries on real Spark and real Kafka: triggers, restarts, growth, loss, lag."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kfast import TopicPartition
from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import admin, delete_records, until
from tests.spark.conftest import TopicFactory
from tests.spark.reading import Reads
from tests.spark.streams import Place, Sink, run, running, start

if TYPE_CHECKING:
    pass

pytest.importorskip("pyspark")


def places(*counts: int) -> list[Place]:
    """Return every partition and offset of a topic with so many records."""
    return [(number, offset) for number, count in enumerate(counts) for offset in range(count)]


def last_offsets(checkpoint: Path) -> str:
    """Return what the checkpoint says about the last batch."""
    logs = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()]
    return max(logs, key=lambda path: int(path.name)).read_text().splitlines()[-1]


def test_available_now_and_restart(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    frame = reads.stream(topic, startingOffsets="earliest")
    for number in range(2):
        writer.write(topic, [b"x"] * 50, partition=number)
    sink = run(frame, tmp_path / "c")
    assert sink.places == places(50, 50)
    writer.write(topic, [b"y"] * 7, partition=1)
    assert run(frame, tmp_path / "c", Sink()).places == [(1, n) for n in range(50, 57)]
    assert run(frame, tmp_path / "c", Sink()).places == [], "nothing new"


def test_a_stream_starts_at_the_latest_and_goes_on(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic()
    writer.write(topic, [b"old"] * 5)
    sink = Sink()
    with running(reads.stream(topic), tmp_path / "c", sink) as query:
        until(lambda: (tmp_path / "c" / "offsets" / "0").exists() or query.lastProgress, "start")
        total = 0
        for count in (3, 4):
            total += count
            writer.write(topic, [b"new"] * count)
            sink.wait_for(total)
    assert sink.places == [(0, n) for n in range(5, 12)]


def test_a_limit_per_trigger(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic(partitions=3)
    for number, count in enumerate((100, 50, 4)):
        writer.write(topic, [b"x"] * count, partition=number)
    frame = reads.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=60)
    sink = run(frame, tmp_path / "c")
    assert sink.places == places(100, 50, 4)
    sizes = [len(batch) for batch in sink.batches.values()]
    assert len(sizes) == 3
    assert all(size <= 60 + 1 for size in sizes), "small partitions get one more than their share"
    assert all({number for number, _ in batch} >= {0, 1} for batch in sink.batches.values())


def test_partitions_that_are_added(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    from confluent_kafka.admin import NewPartitions  # noqa: PLC0415 - only here

    topic = new_topic()
    writer.write(topic, [b"x"] * 5)
    frame = reads.stream(topic, startingOffsets="earliest")
    sink = run(frame, tmp_path / "c")
    client = admin(kafka.bootstrap_servers)
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(30)

    def written() -> bool:
        try:
            writer.write(topic, [b"y"] * 6, partition=2)
        except Exception:  # the producer's broker may not know the partition yet
            return False
        return True

    until(written, "a third partition")
    # What the first run read is done; the rest, from the beginning of the new partitions, is due.
    run(frame, tmp_path / "c", sink_two := Sink())
    assert {place for place in sink_two.places if place[0] == 0} == set()
    assert [offset for number, offset in sink_two.places if number == 2][:6] == list(range(6))
    assert sink.places == places(5)


def test_a_query_moves_from_the_connector_and_back(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    writer.write(topic, [b"x"] * 8, partition=1)
    run(reads.stream(topic, "kafka", startingOffsets="earliest"), tmp_path / "theirs")
    handed_over = last_offsets(tmp_path / "theirs")
    writer.write(topic, [b"x"] * 3, partition=0)
    ours = run(reads.stream(topic, startingOffsets=handed_over), tmp_path / "ours")
    assert ours.places == places(3)
    handed_back = last_offsets(tmp_path / "ours")
    assert json.loads(handed_back) == {topic: {"0": 3, "1": 8}}
    writer.write(topic, [b"x"] * 2, partition=1)
    again = run(reads.stream(topic, "kafka", startingOffsets=handed_back), tmp_path / "again")
    assert again.places == [(1, 8), (1, 9)]


def test_what_was_lost_while_the_query_was_down(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic()
    writer.write(topic, [b"x"] * 10)
    run(reads.stream(topic, startingOffsets="earliest"), tmp_path / "c")
    writer.write(topic, [b"x"] * 20)
    delete_records(kafka.bootstrap_servers, TopicPartition(topic, 0), 15)
    with pytest.raises(Exception, match=r"offsets 10 to 14 of .* are gone"):
        run(reads.stream(topic), tmp_path / "c")
    found = run(reads.stream(topic, failOnDataLoss=False), tmp_path / "c")
    assert found.places == [(0, n) for n in range(15, 30)]


def test_a_topic_that_was_deleted_and_made_again(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        writer.write(topic, [b"x"] * 10, partition=number)
    run(reads.stream(topic, startingOffsets="earliest"), tmp_path / "c")
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)
    writer.write(topic, [b"y"] * 4)
    with pytest.raises(Exception, match=r"this query are gone|was read up to 10"):
        run(reads.stream(topic), tmp_path / "c")
    run(reads.stream(topic, failOnDataLoss=False), tmp_path / "c")
    writer.write(topic, [b"z"] * 3)
    found = run(reads.stream(topic, failOnDataLoss=False), tmp_path / "c")
    assert found.places == [(0, 4), (0, 5), (0, 6)]


def test_a_topic_that_was_made_again_is_read_from_its_beginning(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    """Q-02, Q-04: known by its id; an error, or with failOnDataLoss=false logged and counted."""
    from kfast.spark import LagListener  # noqa: PLC0415 - needs pyspark
    from kfast.spark.source.query_lag import QueryLag  # noqa: PLC0415 - what a callback is given

    topic, checkpoint = new_topic(), tmp_path / "c"
    writer.write(topic, [b"x"] * 10)
    given: dict[str, Any] = {"startingOffsets": "earliest", "checkpointLocation": checkpoint}
    run(reads.stream(topic, **given), checkpoint)
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)
    writer.write(topic, [b"y"] * 14)
    with pytest.raises(Exception, match=rf"the topic {topic} was deleted and created anew"):
        run(reads.stream(topic, **given), checkpoint)
    reported: list[QueryLag] = []
    listener = LagListener(reported.append)
    reads.spark.streams.addListener(listener)
    try:
        found = run(reads.stream(topic, failOnDataLoss=False, **given), checkpoint)
        assert found.places == places(14)
        until(lambda: any(lag.restarted for lag in reported), "the listener")
    finally:
        reads.spark.streams.removeListener(listener)
    (restart,) = [lag for lag in reported if lag.restarted]
    assert restart.restarted == (TopicPartition(topic, 0),)
    assert f"created anew: {topic}-0" in str(restart)
    writer.write(topic, [b"z"] * 3)
    assert run(reads.stream(topic, **given), checkpoint).places == [(0, 14), (0, 15), (0, 16)]


def test_a_projection_and_typed_values_in_a_stream(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic()
    writer.write(topic, [n.to_bytes(8, "big") for n in range(100)])
    frame = reads.stream(
        topic, schema="value long", valueFormat="int64", startingOffsets="earliest"
    )
    sums: list[int] = []
    query = start(
        frame,
        tmp_path / "c",
        lambda batch, _: sums.append(batch.groupBy().sum("value").collect()[0][0]),
        availableNow=True,
    )
    query.awaitTermination(60)
    assert sum(sums) == sum(range(100))


def test_lag_is_reported_to_a_listener(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    from kfast.spark import LagListener  # noqa: PLC0415 - needs pyspark
    from kfast.spark.source.query_lag import QueryLag  # noqa: PLC0415 - what a callback is given

    topic = new_topic()
    writer.write(topic, [b"x"] * 30)
    reported: list[QueryLag] = []
    listener = LagListener(reported.append)
    reads.spark.streams.addListener(listener)
    try:
        frame = reads.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
        run(frame, tmp_path / "c")
        until(lambda: len(reported) >= 3, "three batches")
    finally:
        reads.spark.streams.removeListener(listener)
    lags = [lag for lag in reported if TopicPartition(topic, 0) in lag.partitions]
    assert [lag.total for lag in lags[:3]] == [20, 10, 0]
    assert [lag.offsets for lag in lags[:3]] == [0, 10, 10] or [
        lag.offsets for lag in lags[:3]
    ] == [10, 10, 10]


def test_a_stream_without_its_topic(reads: Reads, tmp_path: Path) -> None:
    with pytest.raises(Exception, match='no topic "nothing-here"'):
        run(reads.stream("nothing-here", fetchOffset__numRetries=1), tmp_path / "c")
    with pytest.raises(Exception, match="a stream has no end"):
        run(reads.stream("nothing-here", endingOffsets="latest"), tmp_path / "d")
