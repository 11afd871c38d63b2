"""read_topic and scan_topic on a real broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

import kfast
from kfast import TopicPartition
from kfast.errors import ConfigurationError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kfast.local.local_kafka import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import (
    confluent_rows,
    delete_records,
    rows_of,
    run_program,
    tps,
    until,
)

pytestmark = pytest.mark.integration

COUNT: Final = 1_000
START_MS: Final = 1_700_000_000_000
START: Final = datetime.fromtimestamp(START_MS / 1000, UTC)


@pytest.fixture
def topic(new_topic: TopicFactory, writer: KafkaWriter) -> str:
    """Two partitions of ``COUNT`` records, one a second, and an empty one."""
    name = new_topic(3)
    writer.write(
        name,
        [
            Message(
                f"{n}".encode(), b"key", [("h", b"1")], START_MS + 1_000 * n, partition=partition
            )
            for n in range(COUNT)
            for partition in (0, 1)
        ],
        batch_records=70,
        codec="lz4",
    )
    return name


def spans(records: kfast.ConsumerRecords) -> dict[int, tuple[int, int]]:
    """Return first and last offset per partition; there must be no hole between."""
    for batch in records.values():
        assert batch.offsets.tolist() == list(range(batch.offsets[0], batch.offsets[-1] + 1))
    return {tp.partition: (b.offsets[0], b.offsets[-1]) for tp, b in records.items()}


def test_all_of_it(kafka: LocalKafka, topic: str) -> None:
    """E-10, B-09: a whole topic, equal to what another client reads; a scan gives the same."""
    servers = kafka.bootstrap_servers
    records = kfast.read_topic(topic, bootstrap_servers=servers)
    assert spans(records) == {0: (0, COUNT - 1), 1: (0, COUNT - 1)}
    batches = list(kfast.scan_topic(topic, bootstrap_servers=servers, max_poll_records=64))
    for tp, batch in records.items():
        rows = rows_of([batch])
        assert rows == confluent_rows(servers, tp)
        assert rows == rows_of(b for b in batches if b.topic_partition == tp)
    table = records.to_arrow()
    assert table.num_rows == 2 * COUNT
    assert pa.table(records).num_rows == 2 * COUNT
    some = kfast.read_topic(tps(topic, 3)[1:], bootstrap_servers=servers)
    assert spans(some) == {1: (0, COUNT - 1)}
    assert spans(kfast.read_topic(tps(topic, 1)[0], bootstrap_servers=servers)).keys() == {0}


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"start": {0: 10}, "end": {0: 20}}, {0: (10, 19), 1: (0, 999)}),
        ({"start": {0: 69, 1: 71}, "end": {0: 71, 1: 72}}, {0: (69, 70), 1: (71, 71)}),
        ({"start": START_MS + 100_000, "end": START_MS + 200_000}, {0: (100, 199), 1: (100, 199)}),
        ({"start": START_MS + 99_500, "end": {1: 150}}, {0: (100, 999), 1: (100, 149)}),
        ({"end": START + timedelta(seconds=5)}, {0: (0, 4), 1: (0, 4)}),
        ({"end": START.replace(tzinfo=None) + timedelta(seconds=5)}, {0: (0, 4), 1: (0, 4)}),
        ({"start": np.datetime64(START_MS + 998_000, "ms")}, {0: (998, 999), 1: (998, 999)}),
        ({"end": {0: 10**9, 1: 0}}, {0: (0, 999)}),
        ({"start": "latest"}, {}),
        ({"end": "earliest"}, {}),
        ({"start": {0: 50, 1: 999}, "end": {0: 50, 1: 3}}, {}),
        ({"start": START_MS + 10**9}, {}),
        ({"end": 0}, {}),
    ],
)
def test_bounds(
    kafka: LocalKafka, topic: str, bounds: dict[str, Any], expected: dict[int, tuple[int, int]]
) -> None:
    """P-07, P-08: offsets, times and ends of the log as bounds, empty ranges among them."""
    calls: list[tuple[int, int]] = []
    records = kfast.read_topic(
        topic,
        **bounds,
        progress=lambda done, total: calls.append((done, total)),
        bootstrap_servers=kafka.bootstrap_servers,
    )
    assert spans(records) == expected
    total = sum(last - first + 1 for first, last in expected.values())
    assert calls[0] == (0, total)
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)


def test_columns(kafka: LocalKafka, topic: str) -> None:
    """B-09: only what is wanted is there; offsets and times always are."""
    records = kfast.read_topic(topic, columns=["value"], bootstrap_servers=kafka.bootstrap_servers)
    for batch in records.values():
        assert not {"key", "headers"} & batch.columns
        assert batch.values[5] == b"5"
        assert batch.timestamps[5] == START_MS + 5_000
        assert batch.offsets[5] == 5
    whole = kfast.read_topic(topic, bootstrap_servers=kafka.bootstrap_servers).to_arrow()
    some = records.to_arrow()
    left = [name for name in whole.column_names if name not in ("key", "headers")]
    assert some.column_names == left
    assert some.equals(whole.select(left))


def test_mistakes(kafka: LocalKafka, topic: str) -> None:
    """E-05, P-10: wrong names and bounds raise at once, with a hint."""
    servers = kafka.bootstrap_servers
    with pytest.raises(UnknownTopicOrPartitionError, match=topic):
        kfast.read_topic(topic + "x", bootstrap_servers=servers)
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0-2"):
        kfast.read_topic(TopicPartition(topic, 3), bootstrap_servers=servers)
    with pytest.raises(ConfigurationError):
        kfast.read_topic(topic, start="yesterday", bootstrap_servers=servers)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        kfast.read_topic(topic, columns=["vlaue"], bootstrap_servers=servers)
    delete_records(servers, TopicPartition(topic, 0), 100)
    with pytest.raises(OffsetOutOfRangeError) as raised:
        kfast.read_topic(topic, start={0: 50}, bootstrap_servers=servers)
    assert (raised.value.partition, raised.value.offset) == (0, 50)
    assert spans(kfast.read_topic(topic, bootstrap_servers=servers)) == {0: (100, 999), 1: (0, 999)}


def test_a_compacted_topic(kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter) -> None:
    """F-05, F-06, D-11: holes are crossed, and the end is reached although records are gone."""
    name = new_topic(cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio="0.001")
    servers = kafka.bootstrap_servers
    tp = TopicPartition(name, 0)
    written: list[tuple[bytes, bytes]] = []

    def write(keys: int) -> None:
        pairs = [(f"{n % keys}".encode(), f"{len(written) + n}".encode()) for n in range(2_000)]
        writer.write(name, [Message(value, key) for key, value in pairs], batch_records=100)
        written.extend(pairs)

    write(2_000)
    write(7)

    def is_compacted() -> bool:
        write(7)
        return len(confluent_rows(servers, tp)) < len(written) // 2

    until(is_compacted, "the cleaner to work", 60)
    newest = dict(written)
    for size in (1_000, 1_000_000):
        records = kfast.read_topic(name, bootstrap_servers=servers, max_partition_fetch_bytes=size)[
            tp
        ]
        assert dict(zip(records.keys, records.values, strict=True)) == newest
        offsets = records.offsets
        assert int(offsets[-1]) == len(written) - 1
        assert int(np.diff(offsets).max()) > 100
        for offset, value in zip(offsets.tolist(), records.values, strict=True):
            assert written[offset][1] == value
    inside = kfast.read_topic(name, start={0: 2_100}, end={0: 3_900}, bootstrap_servers=servers)
    assert all(2_100 <= offset < 3_900 for b in inside.values() for offset in b.offsets)


SCAN = """
    import json, resource, sys
    import kfast

    servers, topic = sys.argv[1:]

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    before, count, nbytes = peak(), 0, 0
    for batch in kfast.scan_topic(topic, bootstrap_servers=servers, buffer_memory_bytes=16 << 20):
        count, nbytes = count + len(batch), nbytes + batch.nbytes
    print(json.dumps([before, peak(), count, nbytes]))
"""


def test_memory_of_a_scan(kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter) -> None:
    """B-05: a scan of 200 MB stays within a few times the buffer, also when compressed."""
    name = new_topic(2)
    record = bytes(range(250)) * 40
    for partition, codec in enumerate(("none", "zstd")):
        writer.write(name, [record] * 10_000, partition=partition, codec=codec, batch_records=80)
    output, errors = run_program(SCAN, kafka.bootstrap_servers, name)
    before, peak, count, nbytes = json.loads(output)
    assert not errors
    assert count == 20_000
    assert nbytes > 20_000 * len(record)
    assert peak - before < 64 << 20
