"""Q-14: a topic with a thousand partitions: what a plan costs, and each record is read once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from kfast.local.local_kafka import LocalKafka
from kfast.spark.source.options import parse_options
from kfast.spark.source.stream_offsets import StreamOffsets
from kfast.table.offset_ranges import OffsetRange, bundle_ranges
from kfast.testing.server import BrokerServer
from kfast.types import TopicPartition
from tests.end_to_end.ingests import Truth
from tests.fake_clock import FakeClock
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.spark.conftest import TopicFactory
from tests.spark.reading import Reads
from tests.spark.support import FakeLookup, options
from tests.spark.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

PARTITIONS: Final = 1_000
RECORDS: Final = 3


def test_a_plan_asks_the_broker_a_few_times_and_small_ranges_share_tasks() -> None:
    """Q-14: not once per partition."""
    from kfast.spark.source.batch_reader import (  # noqa: PLC0415 - needs pyspark
        BUNDLED_TASKS,
        KafkaBatchReader,
        ranges_of,
    )
    from kfast.spark.source.consumer_cache import CONSUMERS  # noqa: PLC0415

    truth = Truth("t", PARTITIONS)
    for number in range(PARTITIONS):
        truth.write(number, RECORDS)
    columns: Any = None  # not used by a plan
    with BrokerServer(truth.cluster) as server:
        given = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": "t"}
        try:
            tasks = KafkaBatchReader(parse_options(given, is_stream=False), columns).partitions()
            single = KafkaBatchReader(
                parse_options({**given, "minPartitions": "1000"}, is_stream=False), columns
            ).partitions()
            requests = len(truth.cluster.requests)
            connections = truth.cluster.connections_made
        finally:
            CONSUMERS.close()
    ranges = [part for task in tasks for part in ranges_of(task)]
    assert sorted(ranges) == [OffsetRange("t", n, 0, RECORDS) for n in range(PARTITIONS)]
    assert BUNDLED_TASKS <= len(tasks) <= 2 * BUNDLED_TASKS
    assert len(single) == PARTITIONS
    assert requests < 30
    assert connections < 5


def test_up_to_a_number_each_partition_has_a_task() -> None:
    """Q-14: as with the JVM's connector."""
    from kfast.spark.source.batch_reader import (  # noqa: PLC0415 - needs pyspark
        BUNDLED_TASKS,
        bundled_offsets,
    )

    few = [OffsetRange("t", number, 0, 5) for number in range(BUNDLED_TASKS)]
    assert bundled_offsets(few, options()) == 0
    many = [OffsetRange("t", number, 0, 5) for number in range(10 * BUNDLED_TASKS)]
    assert len(bundle_ranges(many, bundled_offsets(many, options()))) == BUNDLED_TASKS
    assert bundled_offsets(many, options(minPartitions="2")) == 0
    assert bundled_offsets(many, options(maxRecordsPerPartition="10")) == 10
    large = [OffsetRange("t", number, 0, 10**6) for number in range(10 * BUNDLED_TASKS)]
    assert len(bundle_ranges(large, bundled_offsets(large, options()))) == len(large)


def test_new_partitions_whose_beginning_is_lost_are_planned_at_once() -> None:
    """Q-14: each is counted by one task."""
    count = 20_000
    partitions = [TopicPartition("t", number) for number in range(count)]
    lookup = FakeLookup(dict.fromkeys(partitions, 5), dict.fromkeys(partitions, 9))
    given = options(is_stream=True, failOnDataLoss="false")
    ranges = StreamOffsets(given, lookup, FakeClock()).ranges({}, lookup.ends)
    assert ranges == [OffsetRange("t", number, 0, 9) for number in range(count)]


def test_an_idle_query_of_very_many_partitions_looks_up_their_ends_less_often() -> None:
    """Q-14: of 4,000 once a second, of 400 ten times."""
    for count, looks in ((400, 10), (4_000, 1)):
        partitions = [TopicPartition("t", number) for number in range(count)]
        lookup = FakeLookup(dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 9))
        clock = FakeClock()
        offsets = StreamOffsets(options(is_stream=True), lookup, clock)
        for _ in range(100):
            assert offsets.next_end(lookup.ends, None) == lookup.ends
            clock.advance(10)
        assert lookup.looks == looks


def test_a_batch_query_and_an_ingest_are_exact(
    spark: SparkSession,
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    reads: Reads,
    tmp_path: Path,
) -> None:
    """Q-14: on a real broker; the second ingest goes on behind the first."""
    topic = new_topic(partitions=PARTITIONS)
    numbers = range(PARTITIONS)
    writer.write(topic, [Message(b"x", partition=n) for n in numbers for _ in range(RECORDS)])
    expected = [(number, offset) for number in range(PARTITIONS) for offset in range(RECORDS)]
    frame = reads.frame(topic, schema="partition int, offset long")
    assert frame.rdd.getNumPartitions() < PARTITIONS // 5
    assert sorted(tuple(row) for row in frame.collect()) == expected
    table = Table(spark, kafka.bootstrap_servers, tmp_path)
    table.ingest(topic)
    assert table.rows() == expected
    writer.write(topic, [b"y"], partition=7)
    table.ingest(topic)
    assert table.rows() == sorted([*expected, (7, RECORDS)])
    kafka.delete_topic(topic)
