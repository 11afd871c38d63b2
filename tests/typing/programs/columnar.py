"""A service that computes on each batch."""

# ruff: noqa: T201

from __future__ import annotations

from typing import assert_type

import numpy as np
import numpy.typing as npt

from kfast import (
    BytesColumn,
    ConsumerRecord,
    ConsumerRecords,
    Float64,
    KafkaConsumer,
    OffsetAndMetadata,
    PartitionRecords,
    Struct,
    TopicPartition,
    Utf8,
)

TICK = np.dtype([("price", ">f8"), ("size", ">i4")])


def open_consumer() -> KafkaConsumer:
    settings: dict[str, object] = {"bootstrap.servers": "localhost:9092", "fetch.min.bytes": 65536}
    return KafkaConsumer(config=settings, key_deserializer=Utf8(), value_deserializer=Struct(TICK))


def compute(batch: PartitionRecords) -> float:
    assert_type(batch.topic, str)
    assert_type(batch.partition, int)
    assert_type(batch.topic_partition, TopicPartition)
    assert_type(len(batch), int)
    assert_type(batch[0], ConsumerRecord)
    assert_type(batch[1:], PartitionRecords)
    offsets: npt.NDArray[np.int64] = batch.offsets
    timestamps: npt.NDArray[np.int64] = batch.timestamps
    late = batch.select(timestamps < 0)
    assert_type(late, PartitionRecords)
    held: PartitionRecords = late.compact()
    return float(offsets.sum()) + held.nbytes + batch.next_offset + batch.high_watermark


def raw(column: BytesColumn) -> list[bytes | None]:
    first: bytes | None = column[0]
    doubles = column.view(np.dtype("<f8"))
    print(first, doubles.dtype)
    return column.to_list()


def run() -> None:
    with open_consumer() as consumer:
        consumer.subscribe(["ticks"])
        consumer.subscribe(pattern="ticks-.*")
        for batch in consumer.batches(timeout_ms=1000):
            print(compute(batch))


def positions(consumer: KafkaConsumer) -> None:
    tp = TopicPartition("ticks", 0)
    consumer.assign([tp])
    consumer.seek(tp, 5)
    consumer.seek(tp, OffsetAndMetadata(5, "", 3))
    consumer.seek_to_beginning()
    consumer.seek_to_end(tp)
    consumer.pause(tp)
    consumer.resume(tp)
    assert_type(consumer.position(tp), int)
    assert_type(consumer.highwater(tp), int | None)
    assert_type(consumer.current_lag(tp), int | None)
    assert_type(consumer.end_offsets([tp])[tp], int)
    found = consumer.offsets_for_times({tp: 1_700_000_000_000})[tp]
    if found is not None:
        assert_type(found.offset, int)
    records = consumer.poll()
    assert_type(records, ConsumerRecords)
    assert_type(records.count(), int)
    assert_type(records[tp], PartitionRecords)
    commit: dict[TopicPartition, OffsetAndMetadata] = dict(records.next_offsets())
    print(commit, consumer.topics(), consumer.partitions_for_topic("ticks"))
    consumer.wakeup()


DESERIALIZERS = [Utf8(), Float64(), Struct([("a", "<i8")])]
