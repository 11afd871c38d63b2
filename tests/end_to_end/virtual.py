"""Short ways to say what the virtual-time tests need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kfast.protocol.messages.fetch import FetchRequest
from kfast.testing.cluster import FakeCluster
from kfast.types import TopicPartition
from tests.simulation.loopback_consumer import LoopbackConsumer

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)

Rows = dict[TopicPartition, list[Any]]


def make_cluster(
    nodes: int = 3,
    partitions: int = 1,
    records: int = 20,
    *,
    batch_records: int = 5,
    leaders: Sequence[int] | None = None,
    **settings: Any,
) -> FakeCluster:
    """Return a cluster with a topic "t" whose value at each offset is ``value(offset)``."""
    cluster = FakeCluster(nodes, **settings)
    cluster.create_topic("t", partitions, leaders=leaders)
    for partition in range(partitions):
        write(cluster, partition, records, batch_records=batch_records)
    return cluster


def write(
    cluster: FakeCluster, partition: int, records: int, *, batch_records: int | None = None
) -> None:
    """Append records to a partition of "t"."""
    start = cluster.log("t", partition).log_end_offset
    values = [value(offset) for offset in range(start, start + records)]
    cluster.append("t", partition, values, batch_records=batch_records)


def value(offset: int) -> bytes:
    return b"value-%d" % offset


def offsets(rows: Rows, partition: TopicPartition = T0) -> list[int]:
    return [row.offset for row in rows.get(partition, [])]


def read_all(consumer: LoopbackConsumer, timeout_ms: int = 60_000) -> Rows:
    """Read until every assigned partition stands at its high watermark; check the values."""
    deadline_ms = consumer.clock.now + timeout_ms
    found: Rows = {}
    while not is_at_end(consumer):
        assert consumer.clock.now < deadline_ms, f"not at the end: {describe(consumer)}"
        for partition, rows in consumer.poll(deadline_ms - consumer.clock.now).items():
            found.setdefault(partition, []).extend(rows)
    for partition in found:
        numbers = offsets(found, partition)
        assert numbers == sorted(set(numbers)), "an offset came twice or too late"
    return found


def is_at_end(consumer: LoopbackConsumer) -> bool:
    assigned = consumer.subscriptions.assigned_partitions()
    return bool(assigned) and all(consumer.position(tp) == end_of(consumer, tp) for tp in assigned)


def end_of(consumer: LoopbackConsumer, partition: TopicPartition) -> int:
    log = consumer.cluster.log(*partition)
    return log.limit(read_committed=consumer.config.isolation_level == "read_committed")


def describe(consumer: LoopbackConsumer) -> str:
    return ", ".join(
        f"{tp} {consumer.position(tp)}/{end_of(consumer, tp)}"
        for tp in consumer.subscriptions.assigned_partitions()
    )


def fetches(cluster: FakeCluster, node: int | None = None) -> list[FetchRequest]:
    return cluster.requests.messages(FetchRequest, node=node)


def listed(request: FetchRequest) -> list[int]:
    """Return the partitions a Fetch lists."""
    return [entry.partition for topic in request.topics for entry in topic.partitions]


def forgotten(request: FetchRequest) -> list[int]:
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]
