"""What a user does between polls, in random but repeatable order, while the cluster is unquiet.

A model of a few lines knows what must come next in each partition: the first visible offset at or
behind the position. Seeks, pauses, resets, changed assignments and small polls are applied to the
consumer and to the model; the log has aborted transactions, holes and emptied batches in it.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kfast.protocol.api_keys import ApiKey
from kfast.settings.offset_reset import OffsetResetStrategy
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import Delay, Drop, PartitionError, TopLevelError
from kfast.types import TopicPartition
from tests.reference.compression import Codec
from tests.simulation.loopback_consumer import LoopbackConsumer
from tests.simulation.old_formats import append_batch

SEEDS = 60
STEPS = 150
PARTITIONS = [TopicPartition("t", number) for number in range(3)]


class Model:
    """What is visible, what comes next, what is paused."""

    def __init__(self) -> None:
        self.visible: dict[TopicPartition, list[int]] = {tp: [] for tp in PARTITIONS}
        self.position: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()

    def expect(self, partition: TopicPartition, offset: int) -> None:
        """Check one delivered offset and move on behind it."""
        assert partition in self.position, "a partition that is not assigned"
        assert partition not in self.paused, "a paused partition"
        following = self.visible[partition]
        index = bisect_left(following, self.position[partition])
        assert index < len(following), f"{partition} {offset} is behind the end"
        assert offset == following[index], f"{partition} wants {following[index]}, not {offset}"
        self.position[partition] = offset + 1

    def has_all(self, partition: TopicPartition) -> bool:
        visible = self.visible[partition]
        return not visible or self.position[partition] > visible[-1]


def produce(rng: random.Random, cluster: FakeCluster, model: Model) -> None:
    """Append something to a partition: records, a transaction, a hole, an emptied batch."""
    tp = rng.choice(PARTITIONS)
    count = 1 + rng.randrange(12)
    kind = rng.randrange(6)
    with cluster.writing(*tp) as writer:
        if kind == 0:
            writer.append_emptied(count)
            return
        if kind == 1:
            writer.log.skip_to(writer.log.log_end_offset + count)
            return
        settings: dict[str, Any] = {"codec": rng.choice(list(Codec))}
        if kind <= 3:
            settings |= {"producer_id": kind, "is_transactional": True}
        gaps = [1 + (rng.random() < 0.2) for _ in range(count)]
        deltas = [sum(gaps[:n]) for n in range(count)]
        records = [Record(value=b"v", offset_delta=delta) for delta in deltas]
        base_offset = append_batch(writer, records, **settings).start
        if kind <= 3:
            writer.end_transaction(kind, committed=kind == 2)
        if kind != 3:
            model.visible[tp].extend(base_offset + delta for delta in deltas)


def disturb(rng: random.Random, cluster: FakeCluster) -> None:
    """Let something go wrong in the cluster."""
    tp = rng.choice(PARTITIONS)
    node = rng.choice(list(cluster.nodes))
    steps: list[Callable[[], Any]] = [
        partial(cluster.move_leader, tp.topic, tp.partition, node),
        partial(cluster.close_connections, node),
        partial(cluster.sessions(node).evict),
        partial(cluster.faults.add, Drop(rng.randrange(300)), api=ApiKey.FETCH),
        partial(cluster.faults.add, Delay(rng.randrange(400)), api=ApiKey.FETCH),
        partial(cluster.faults.add, Delay(rng.randrange(400)), api=ApiKey.LIST_OFFSETS),
        partial(cluster.faults.add, PartitionError(6), api=ApiKey.FETCH),
        partial(cluster.faults.add, TopLevelError(71), api=ApiKey.FETCH),
    ]
    rng.choice(steps)()


def act(rng: random.Random, consumer: LoopbackConsumer, model: Model) -> None:
    """Do what users do, to the consumer and to the model."""
    subscriptions = consumer.subscriptions
    assigned = sorted(model.position)
    action = rng.randrange(5)
    if action == 0:
        wanted = rng.sample(PARTITIONS, 1 + rng.randrange(len(PARTITIONS)))
        consumer.assign(*wanted)
        model.position = {tp: model.position.get(tp, 0) for tp in wanted}
        model.paused &= set(wanted)
        return
    tp = rng.choice(assigned)
    if action == 1:
        end = consumer.cluster.log(*tp).log_end_offset
        offset = rng.randrange(end + 1)
        consumer.seek(tp, offset)
        model.position[tp] = offset
    elif action == 2:
        subscriptions.pause([tp])
        model.paused.add(tp)
    elif action == 3:
        subscriptions.resume([tp])
        model.paused.discard(tp)
    else:
        subscriptions.request_offset_reset([tp], OffsetResetStrategy.parse("earliest"))
        model.position[tp] = 0


def take(rng: random.Random, consumer: LoopbackConsumer, model: Model, timeout_ms: int) -> None:
    records = consumer.poll(timeout_ms, max_records=rng.choice([None, None, 1, 5]))
    for tp, rows in records.items():
        for offset in rows.offsets.tolist():
            model.expect(tp, offset)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_next_record_is_always_the_right_one(seed: int) -> None:
    """F-02, F-03, F-05, F-11, F-21, P-03, P-04, P-11, P-17: after whatever came before."""
    rng = random.Random(seed)
    cluster = FakeCluster(2, racks=rng.choice([None, ["a", "b"]]))
    cluster.create_topic("t", len(PARTITIONS))
    model = Model()
    for _ in range(20):
        produce(rng, cluster, model)
    consumer = LoopbackConsumer(
        cluster,
        isolation_level="read_committed",
        client_rack="b",
        fetch_max_wait_ms=100,
        max_partition_fetch_bytes=rng.choice([1, 500, 1 << 20]),
        buffer_memory_bytes=rng.choice([1, 3_000, 64 << 20]),
    )
    consumer.assign(*PARTITIONS)
    model.position = dict.fromkeys(PARTITIONS, 0)
    for _ in range(STEPS):
        step = rng.randrange(10)
        if step < 3:
            produce(rng, cluster, model)
        elif step < 5:
            act(rng, consumer, model)
        elif step < 6:
            disturb(rng, cluster)
        else:
            take(rng, consumer, model, rng.choice([0, 1, 50, 500]))
    cluster.faults.clear()
    consumer.subscriptions.resume(model.position)
    model.paused.clear()
    deadline_ms = consumer.clock.now + 60_000
    while not all(map(model.has_all, model.position)):
        assert consumer.clock.now < deadline_ms, f"stuck at {model.position}"
        take(rng, consumer, model, 500)
    consumer.run(500)
    take(rng, consumer, model, 0)
