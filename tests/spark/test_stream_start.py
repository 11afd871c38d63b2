"""Where a new stream begins, when it, its source or its first batch dies before it is done."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import until
from tests.spark.conftest import TopicFactory
from tests.spark.reading import Reads
from tests.spark.streams import Sink, run, running, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytest.importorskip("pyspark")

FAR_FUTURE_MS = 4_102_444_800_000
"""2100-01-01T00:00:00Z."""

ENDS_OF_LOGS: dict[str, dict[str, Any]] = {
    "latest": {},
    "-1": {"startingOffsets": '{"TOPIC":{"0":-1}}'},
    "after the last record": {
        "startingTimestamp": FAR_FUTURE_MS,
        "startingOffsetsByTimestampStrategy": "latest",
    },
}
"""Options that mean the ends of the logs, which grow."""


def stream(reads: Reads, topic: str, options: dict[str, Any], **more: Any) -> DataFrame:
    """Return a stream of a topic, which has one partition."""
    named = {
        key: value.replace("TOPIC", topic) if isinstance(value, str) else value
        for key, value in options.items()
    }
    return reads.stream(topic, **named, **more)


@pytest.mark.parametrize("options", ENDS_OF_LOGS.values(), ids=ENDS_OF_LOGS)
def test_a_first_batch_that_failed_is_repeated_where_it_began(
    new_topic: TopicFactory,
    writer: KafkaWriter,
    reads: Reads,
    tmp_path: Path,
    options: dict[str, Any],
) -> None:
    topic = new_topic()
    writer.write(topic, [b"old"] * 5)

    def fail(_frame: DataFrame, batch_id: int) -> None:
        raise RuntimeError(f"batch {batch_id} dies")

    frame = stream(reads, topic, options)
    for count in (4, 3):
        with pytest.raises(Exception, match="batch 0 dies"):
            start(frame, tmp_path / "c", fail).awaitTermination(100)
        assert (tmp_path / "c" / "offsets" / "0").exists()
        writer.write(topic, [b"new"] * count)
    assert run(frame, tmp_path / "c").places == [(0, n) for n in range(5, 12)]


def dying_source() -> type:
    """Return a source whose process is killed between ``initialOffset`` and the first batch."""
    from kfast.spark import KafkaDataSource  # noqa: PLC0415 - needs pyspark
    from kfast.spark.source.stream_reader import KafkaStreamReader  # noqa: PLC0415 - needs pyspark

    class DyingReader(KafkaStreamReader):
        def initialOffset(self) -> dict[str, dict[str, int]]:
            super().initialOffset()
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("unreachable")

    class DyingSource(KafkaDataSource):
        @classmethod
        def name(cls) -> str:
            return "kfast_dying"

        def streamReader(self, schema: Any) -> KafkaStreamReader:
            reader = super().streamReader(schema)
            return DyingReader(reader._options, reader._projection)

    return DyingSource


STARTS = {
    "latest": ({}, 9),
    "explicit": ({"startingOffsets": '{"TOPIC":{"0":5}}'}, 5),
    "earliest": ({"startingOffsets": "earliest"}, 0),
}
"""Options, and the first offset read after a death before there was a batch and 4 records more."""


@pytest.mark.parametrize(("options", "first"), STARTS.values(), ids=STARTS)
def test_a_query_that_is_killed_before_its_first_batch_has_not_begun(
    new_topic: TopicFactory,
    writer: KafkaWriter,
    reads: Reads,
    tmp_path: Path,
    options: dict[str, Any],
    first: int,
) -> None:
    topic = new_topic()
    writer.write(topic, [b"old"] * 5)
    reads.spark.dataSource.register(dying_source())
    frame = stream(reads, topic, options, format="kfast_dying")
    with pytest.raises(Exception, match="STREAM_FAILED"):
        start(frame, tmp_path / "c", Sink()).awaitTermination(100)
    assert not (tmp_path / "c" / "offsets" / "0").exists()
    writer.write(topic, [b"between"] * 4)
    sink = Sink()
    frame = stream(reads, topic, options)
    with running(frame, tmp_path / "c", sink):
        until((tmp_path / "c" / "commits" / "0").exists, "the first batch", 100)
        writer.write(topic, [b"new"] * 3)
        sink.wait_for(12 - first)
    assert sink.places == [(0, n) for n in range(first, 12)]


@contextmanager
def writing(kafka: LocalKafka, topic: str) -> Iterator[Callable[[], int]]:
    """Write all the time; yield what stops it and returns how many there are."""
    from confluent_kafka import Producer  # noqa: PLC0415 - only here

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1})
    is_over = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not is_over.is_set():
            producer.produce(topic, b"x", partition=0)
            written += 1
            producer.poll(0.001)

    thread = threading.Thread(target=write)
    thread.start()

    def stop() -> int:
        is_over.set()
        thread.join()
        assert producer.flush(30) == 0
        return written

    try:
        yield stop
    finally:
        stop()


def test_a_stream_starts_at_the_latest_of_a_topic_that_is_written_all_the_time(
    kafka: LocalKafka, new_topic: TopicFactory, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic()
    sink = Sink()
    with writing(kafka, topic) as stop, running(reads.stream(topic), tmp_path / "c", sink):
        until(lambda: len(sink.places) > 0, "records", 100)
        total = stop()
        until(lambda: sink.places[-1] == (0, total - 1), "all records", 100)
    first = sink.places[0][1]
    assert sink.places == [(0, n) for n in range(first, total)]
    assert first > 0, "it did not start at the latest"
