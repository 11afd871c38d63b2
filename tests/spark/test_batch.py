"""Batch queries on real Spark and real Kafka: against another client and ``format("kafka")``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kfast import TopicPartition
from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import CODECS, KafkaWriter, Message
from tests.integration.support import confluent_rows, delete_records, until
from tests.spark.conftest import TopicFactory
from tests.spark.reading import Reads, SparkRow, digest, truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


def messages(count: int, partition: int = 0) -> list[Message]:
    """Return records of every kind: nulls, empties, tombstones, headers, several sizes."""
    made = []
    for n in range(count):
        headers = [("h", b"%d" % n), ("h", None), ("", b"")] if n % 5 == 0 else None
        key = (None, b"", b"key-%d" % n)[n % 3]
        value = None if n % 7 == 0 else b"v" * (n % 50) + b"%d" % n
        made.append(Message(value, key, headers, 1_767_225_600_000 + n * 1000, partition))
    return made


def all_truth(kafka: LocalKafka, topic: str, partitions: int, **more: Any) -> list[SparkRow]:
    """Return every record as confluent-kafka reads it."""
    servers = kafka.bootstrap_servers
    return [
        row
        for number in range(partitions)
        for row in truth(number, confluent_rows(servers, TopicPartition(topic, number), **more))
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_every_record_of_a_topic(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, codec: str
) -> None:
    topic = new_topic(partitions=3)
    for number, count in enumerate((500, 1, 300)):
        writer.write(topic, messages(count, number), codec=codec, batch_records=70)
    expected = all_truth(kafka, topic, 3)
    found = reads.rows(topic)
    assert digest(found) == digest(expected)
    assert found == expected
    assert found == reads.rows(topic, "kafka")


def test_several_topics_and_patterns(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topics = [new_topic(partitions=count) for count in (1, 2, 5)]
    for topic in topics:
        writer.write(topic, [b"x"] * 10)
    for chosen in (
        {"subscribe": ",".join(topics)},
        {"subscribePattern": f"{topics[0].rpartition('-')[0]}-\\d+"},
        {"assign": json.dumps({topic: [0] for topic in topics})},
    ):
        ours = reads.frame("", **chosen).groupBy("topic", "partition").count().collect()
        theirs = reads.frame("", "kafka", **chosen).groupBy("topic", "partition").count().collect()
        assert sorted(ours) == sorted(theirs)
        assert {row.topic for row in ours} == set(topics)


def test_the_schema_is_the_connectors(new_topic: TopicFactory, reads: Reads) -> None:
    topic = new_topic()
    for with_headers in (False, True):
        ours = reads.frame(topic, includeHeaders=with_headers)
        assert ours.schema == reads.frame(topic, "kafka", includeHeaders=with_headers).schema
    assert reads.frame(topic).collect() == [], "an empty topic"


def test_transactions(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic()
    for number, is_committed in enumerate((True, False, True, False)):
        with writer.transaction(f"{topic}-{number}", commit=is_committed) as transaction:
            transaction.write(topic, [b"%d-%d" % (number, n) for n in range(50)])
    for level in ("read_committed", "read_uncommitted"):
        more = {"kafka__isolation__level": level}
        expected = all_truth(kafka, topic, 1, isolation_level=level)
        assert reads.rows(topic, **more) == expected
        assert reads.rows(topic, "kafka", **more) == expected
    # An open transaction: what is behind it is not read yet, nor waited for.
    with writer.transaction(f"{topic}-open") as transaction:
        transaction.write(topic, [b"open"])
        transaction.producer.flush(10)
        writer.write(topic, [b"behind"])
        before = reads.rows(topic, kafka__isolation__level="read_committed")
        assert len(before) == 100
    assert len(reads.rows(topic, kafka__isolation__level="read_committed")) == 102


def test_a_compacted_topic(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic(
        cleanup_policy="compact", segment_bytes=1_048_576, max_compaction_lag_ms=1, segment_ms=100
    )
    padding = b"x" * 2_000
    for _ in range(4):
        writer.write(topic, [Message(padding, b"%d" % (n % 7)) for n in range(300)])
    writer.write(topic, [Message(b"last", b"end")])

    def compacted() -> list[SparkRow]:
        writer.write(topic, [Message(b"roll", b"end")])
        rows = all_truth(kafka, topic, 1)
        return rows if len(rows) < 500 else []

    until(compacted, "compaction")
    found = reads.rows(topic, minPartitions=5)
    theirs = reads.rows(topic, "kafka")
    # The cleaner may run in between, but never for long: what is read twice alike is the truth.
    if found != theirs:
        found = reads.rows(topic, minPartitions=5)
        theirs = reads.rows(topic, "kafka")
    assert found == theirs


def test_splitting_reads_everything_once(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic(partitions=2)
    writer.write(topic, messages(200, 0))
    writer.write(topic, messages(100, 1))
    whole = reads.rows(topic)
    assert len(whole) == 300
    splits: list[tuple[dict[str, Any], int]] = [
        ({"minPartitions": 7}, 7),
        ({"minPartitions": 1}, 2),
        ({"maxRecordsPerPartition": 30}, 11),
    ]
    for more, tasks in splits:
        assert reads.frame(topic, **more).rdd.getNumPartitions() == tasks
        assert reads.rows(topic, **more) == whole


# --- where it starts and ends ---------------------------------------------------------------------


def test_offsets_and_times_mean_what_they_mean_to_the_connector(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic(partitions=2)
    writer.write(topic, messages(100, 0))
    writer.write(topic, messages(60, 1))
    first = 1_767_225_600_000

    def by_partition(*numbers: int) -> str:
        return json.dumps({topic: {str(n): value for n, value in enumerate(numbers)}})

    for given, count in (
        ({"startingOffsets": by_partition(90, -2)}, 70),
        ({"startingOffsets": by_partition(90, 50), "endingOffsets": by_partition(95, -1)}, 15),
        ({"endingOffsets": by_partition(0, 1)}, 1),
        ({"startingTimestamp": first + 50_000}, 60),
        ({"startingTimestamp": first + 10_500, "endingTimestamp": first + 20_000}, 18),
        ({"startingOffsetsByTimestamp": by_partition(first + 99_000, first)}, 61),
        ({"endingOffsetsByTimestamp": by_partition(first + 1_000, first + 10**9)}, 61),
        (
            {
                "startingTimestamp": first + 80_000,
                "startingOffsetsByTimestampStrategy": "latest",
            },
            20,
        ),
    ):
        found = reads.rows(topic, **given)
        assert len(found) == count, given
        assert found == reads.rows(topic, "kafka", **given), given


def failure(reads: Reads, topic: str, **more: Any) -> str:
    """Return the error of a batch query."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - pyspark has several
        reads.frame(topic, **more).collect()
    return str(raised.value)


def test_errors_say_what_is_wrong_in_the_users_words(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic(partitions=2)
    writer.write(topic, [b"x"])
    assert f'no topic "{topic}x" on this cluster' in failure(reads, f"{topic}x")
    assert f'did you mean "{topic}"?' in failure(reads, f"{topic}x")
    beyond = json.dumps({topic: [0, 7]})
    assert "there is no partition 7" in failure(reads, "", assign=beyond)
    assert reads.frame("", subscribePattern=r"zzz\p{Alpha}").count() == 0, "as the connector"
    one = json.dumps({topic: {"0": 0}})
    assert f"{topic}-1 not named" in failure(reads, topic, startingOffsets=one)
    past = json.dumps({topic: {"0": 500, "1": 0}})
    ended = failure(reads, topic, startingOffsets=past)
    assert f"{topic}-0 would be read from 500, but its log ends at 1" in ended
    late = 10**14
    assert "has no record at or after" in failure(reads, topic, startingTimestamp=late)
    assert "cannot start at the latest" in failure(reads, topic, startingOffsets="latest")
    assert "did you mean offset?" in failure(reads, topic, schema="ofset long")
    with pytest.raises(Exception, match=r'format\("kfast"\) only reads'):
        reads.frame(topic).write.format("kfast").mode("append").save()


def test_a_broker_that_is_not_there(reads: Reads) -> None:
    message = failure(
        reads,
        "t",
        kafka__bootstrap__servers="127.0.0.1:9",
        fetchOffset__numRetries=1,
        kafka__default__api__timeout__ms=1500,
        kafka__request__timeout__ms=1500,
    )
    assert "cannot connect to 127.0.0.1:9: connection refused" in message


# --- data that is gone ----------------------------------------------------------------------------


def test_retention_past_the_start(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic()
    writer.write(topic, [b"%d" % n for n in range(100)])
    delete_records(kafka.bootstrap_servers, TopicPartition(topic, 0), 40)
    start = json.dumps({topic: {"0": 10}})
    message = failure(reads, topic, startingOffsets=start)
    assert f"offsets 10 to 39 of {topic}-0 are gone: the log now starts at 40" in message
    assert "failOnDataLoss=false" in message
    found = reads.rows(topic, startingOffsets=start, failOnDataLoss=False)
    assert [row[1] for row in found] == list(range(40, 100))
    inside = json.dumps({topic: {"0": 60}})
    found = reads.rows(topic, startingOffsets=start, endingOffsets=inside, failOnDataLoss=False)
    assert [row[1] for row in found] == list(range(40, 60))
    before = json.dumps({topic: {"0": 30}})
    gone = reads.rows(topic, startingOffsets=start, endingOffsets=before, failOnDataLoss=False)
    assert gone == [], "never outside of what was asked for"


def test_an_end_the_log_has_not_reached(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic()
    writer.write(topic, [b"%d" % n for n in range(5)])
    end = json.dumps({topic: {"0": 9}})
    assert f"offsets 5 to 8 of {topic}-0 are not there" in failure(reads, topic, endingOffsets=end)
    assert len(reads.rows(topic, endingOffsets=end, failOnDataLoss=False)) == 5
    start = json.dumps({topic: {"0": 7}})
    lost = {"startingOffsets": start, "endingOffsets": end}
    ended = failure(reads, topic, **lost)
    assert f"{topic}-0 would be read from 7, but its log ends at 5" in ended
    assert reads.rows(topic, **lost, failOnDataLoss=False) == []


# --- projection, values, filters ------------------------------------------------------------------


def test_the_users_schema_is_the_projection(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic()
    writer.write(topic, messages(30))
    frame = reads.frame(topic, schema="value binary, offset long NOT NULL")
    assert frame.columns == ["value", "offset"]
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    full = reads.rows(topic)
    assert [(row.offset, None if row.value is None else bytes(row.value)) for row in rows] == [
        (row[1], row[3]) for row in full
    ]


def test_typed_values(new_topic: TopicFactory, writer: KafkaWriter, reads: Reads) -> None:
    topic = new_topic()
    struct = [n.to_bytes(4, "big") + (n % 2).to_bytes(1, "big") for n in range(20)]
    writer.write(topic, [*struct[:10], b"bad", None, *struct[10:]])
    layout = "value struct<id: int, odd: boolean>"
    frame = reads.frame(
        topic, schema=f"offset long, {layout}, _corrupt_record binary", valueFormat="struct"
    )
    rows = sorted(frame.select("offset", "value.*", "_corrupt_record").collect())
    assert [row.id for row in rows] == [*range(10), None, None, *range(10, 20)]
    assert [row.odd for row in rows[:4]] == [False, True, False, True]
    assert [row._corrupt_record for row in rows[9:13]] == [None, bytearray(b"bad"), None, None]
    dropped = reads.frame(
        topic, schema=f"offset long, {layout}", valueFormat="struct", mode="DROPMALFORMED"
    )
    assert dropped.count() == 21
    message = failure(reads, topic, schema=layout, valueFormat="struct", mode="FAILFAST")
    assert f"{topic}-0 offset 10: value is not a Struct (3 bytes, needs 5)" in message


def test_text_values(new_topic: TopicFactory, writer: KafkaWriter, reads: Reads) -> None:
    topic = new_topic()
    writer.write(topic, ["größer".encode(), b"\xff", None, b""])
    frame = reads.frame(topic, valueFormat="utf8")
    assert dict(frame.dtypes)["value"] == "string"
    assert [row.value for row in frame.orderBy("offset").collect()] == ["größer", None, None, ""]


def test_pushed_filters_give_the_same_rows_and_read_less(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    topic = new_topic(partitions=3)
    for number in range(3):
        writer.write(topic, messages(100, number))
    conf = "spark.sql.python.filterPushdown.enabled"
    reads.spark.conf.set(conf, "true")
    try:
        for condition, tasks in (
            ("partition = 1", 1),
            ("partition IN (0, 2) AND offset >= 50", 2),
            ("offset > 10 AND offset < 20 AND key IS NOT NULL", 3),
            ("offset = 17", 3),
            ("timestamp >= timestamp_millis(1767225690000)", 3),
            ("topic = 'other'", 1),  # nothing is read by one task that has nothing to do
            ("partition = 0 OR offset = 3", 3),
        ):
            plain = reads.frame(topic, includeHeaders=True).where(condition)
            pushed = reads.frame(topic, includeHeaders=True, pushdown=True).where(condition)
            assert pushed.rdd.getNumPartitions() == tasks, condition
            columns = ["partition", "offset", "key", "value"]
            expected = sorted(plain.select(*columns).collect(), key=lambda row: row[:2])
            found = sorted(pushed.select(*columns).collect(), key=lambda row: row[:2])
            assert found == expected, condition
    finally:
        reads.spark.conf.unset(conf)
    assert "filterPushdown" in failure(reads, topic, pushdown=True)


# --- other ways in --------------------------------------------------------------------------------


def test_sql(new_topic: TopicFactory, writer: KafkaWriter, reads: Reads) -> None:
    topic = new_topic()
    writer.write(topic, [b"x"] * 4)
    pairs = ", ".join(f"'{name}' '{value}'" for name, value in reads.options(topic).items())
    reads.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING kfast OPTIONS ({pairs})")
    assert reads.spark.sql("SELECT count(*), max(offset) FROM v").collect() == [(4, 3)]


def test_registration_by_hand(new_topic: TopicFactory, writer: KafkaWriter, reads: Reads) -> None:
    import kfast.spark  # noqa: PLC0415 - what a user would write

    topic = new_topic()
    writer.write(topic, [b"x"] * 4)
    kfast.spark.register(reads.spark)
    assert reads.frame(topic).count() == 4


def test_workers_validate_what_they_give_spark(spark: SparkSession) -> None:
    """B-18: every batch of these tests is a valid Arrow array when Spark receives it."""

    def is_validating(_: int) -> bool:
        from kfast.table.arrow_batches import ArrowBatches as InWorker  # noqa: PLC0415

        return getattr(InWorker.batches, "is_validating", False)

    found = spark.sparkContext.parallelize(range(2), 2).map(is_validating).collect()
    assert found == [True, True]
