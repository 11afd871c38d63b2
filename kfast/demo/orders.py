"""The broker of ``kfast demo``: FakeKafka with a topic of orders and a group that reads it.

The topic ``orders`` has `PARTITIONS` partitions and `RECORDS` records, one per millisecond and
partition, the last one of now. They are made of a few thousand different ones: batches share their
records, and only the headers are their own. The group ``billing`` has committed offsets and has no
members. Nothing can be written.
"""

from __future__ import annotations

import json
import random
import time
from typing import Final

from kfast.testing import FakeCluster, FakeKafka, Record
from kfast.testing.batches import encode_batch_header, encode_records
from kfast.testing.log import read_batch
from kfast.types import TopicPartition

TOPIC: Final = "orders"
GROUP: Final = "billing"
PARTITIONS: Final = 4
RECORDS: Final = 1_000_000

_END: Final = RECORDS // PARTITIONS
_BATCH_RECORDS: Final = 1_000
_DIFFERENT_BATCHES: Final = 6
_COMMITTED: Final = (_END, _END, _END - 70_000, _END - 1_000)
"""Committed offsets of ``GROUP`` by partition."""


def orders_kafka() -> FakeKafka:
    """Return the broker of the demo, not started."""
    kafka = FakeKafka()
    kafka.create_topic(TOPIC, PARTITIONS)
    kafka.cluster.groups.settings.group_min_session_timeout_ms = 1_000
    _append_orders(kafka.cluster, time.time_ns() // 1_000_000 - _END)
    committed = kafka.cluster.groups.offsets(GROUP)
    for number, offset in enumerate(_COMMITTED):
        committed.commit(TopicPartition(TOPIC, number), offset)
    return kafka


def _append_orders(cluster: FakeCluster, start_ms: int) -> None:
    chooser = random.Random(7)
    sections = [_encoded_orders(chooser) for _ in range(_DIFFERENT_BATCHES)]
    for partition in range(PARTITIONS):
        log = cluster.log(TOPIC, partition)
        for base_offset in range(0, _END, _BATCH_RECORDS):
            records = sections[(base_offset // _BATCH_RECORDS + partition) % _DIFFERENT_BATCHES]
            first_ms = start_ms + base_offset
            header = encode_batch_header(
                records,
                base_offset=base_offset,
                last_offset_delta=_BATCH_RECORDS - 1,
                count=_BATCH_RECORDS,
                leader_epoch=0,
                base_timestamp=first_ms,
                max_timestamp=first_ms + _BATCH_RECORDS - 1,
            )
            batch = read_batch(
                header,
                records,
                offsets=range(base_offset, base_offset + _BATCH_RECORDS),
                timestamps=range(first_ms, first_ms + _BATCH_RECORDS),
            )
            log.append(batch)


def _encoded_orders(chooser: random.Random) -> bytes:
    """The records section of a batch; timestamps count from that of the batch."""
    records = []
    for number in range(_BATCH_RECORDS):
        key = b"user-%05d" % chooser.randrange(10_000)
        order = {
            "order": chooser.randrange(10**9),
            "product": chooser.choice(("lamp", "chair", "kettle", "bicycle", "backpack")),
            "quantity": chooser.choice((1, 1, 1, 2, 3)),
            "price": chooser.randrange(100, 40_000) / 100,
            "country": chooser.choice(("DE", "FR", "US", "JP", "BR", "IN")),
        }
        value = json.dumps(order, separators=(",", ":")).encode()
        records.append(Record(key, value, timestamp=number))
    return encode_records(records, 0)
