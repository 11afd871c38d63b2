"""Everything at once, in a random but repeatable order: F-11 must hold whatever happens.

Each seed makes a cluster, a consumer configuration, and a few virtual seconds of producers, leader
moves, restarts, lost connections, evicted sessions, damaged answers and odd limits. Afterwards the
cluster is healed, and every partition must have been delivered completely, in order, once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kfast.errors import KafkaError, ProtocolError, RecordTooLargeError
from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from kfast.testing.fault_table import CONNECT, Fault
from kfast.testing.faults import (
    Delay,
    Drop,
    DropMidRequest,
    NeverAnswer,
    PartitionError,
    Throttle,
    TopLevelError,
)
from kfast.testing.releases import RELEASE_NAMES
from kfast.types import TopicPartition
from tests.end_to_end.virtual import describe, is_at_end, make_cluster, value, write
from tests.simulation.loopback_consumer import LoopbackConsumer
from tests.simulation.partition_faults import (
    DuplicatePartition,
    EditRecords,
    OmitPartition,
    UnaskedPartition,
    UnaskedTopic,
    batch_positions,
)
from tests.simulation.wire_faults import (
    Answer,
    ClaimFrameSize,
    Split,
    TruncateBody,
    WrongCorrelationId,
)
from tests.soaking import soaking

SEEDS = soaking(50, 1_000)
PARTITIONS = 4
NODES = 3
DURATION_MS = 10_000

TOLERATED = (ProtocolError, RecordTooLargeError)
"""What answers that lie about their size or content may lead to; reading goes on behind them."""

RETRIABLE = (3, 5, 6, 9, 56, 74, 75, 78, 100)


def random_fault(rng: random.Random) -> tuple[Fault, int | None]:
    """Return a fault and the API it is for."""
    partition = rng.choice([None, *range(PARTITIONS)])
    after = rng.randrange(200)
    any_api: list[Fault] = [
        Drop(after),
        Drop(after, is_reset=True),
        DropMidRequest(12 + after),
        Delay(rng.randrange(2_000)),
        NeverAnswer(),
        Split((1 + rng.randrange(50), 1 + rng.randrange(9))),
        WrongCorrelationId(),
        ClaimFrameSize(rng.choice([-1, 0, 7, 0x7FFFFFFF])),
        TruncateBody(1 + after),
        Answer(rng.randbytes(after)),
        Throttle(rng.randrange(500)),
    ]
    fetch: list[Fault] = [
        PartitionError(rng.choice(RETRIABLE), "t", partition),
        TopLevelError(rng.choice([70, 71, 106])),
        Throttle(100, is_empty=True),
        OmitPartition("t", partition),
        DuplicatePartition("t", partition),
        UnaskedPartition(),
        UnaskedTopic(),
        EditRecords(partial(cut_last_batch, drop_bytes=1 + after)),
    ]
    lookups: list[Fault] = [PartitionError(rng.choice(RETRIABLE), "t", partition)]
    kind = rng.randrange(10)
    if kind < 4:
        apis = [None, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.LIST_OFFSETS]
        return rng.choice(any_api), rng.choice(apis)
    if kind < 8:
        return rng.choice(fetch), ApiKey.FETCH
    if kind < 9:
        return rng.choice(lookups), rng.choice(
            [ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH]
        )
    return Drop(), CONNECT


def cut_last_batch(records: bytes, drop_bytes: int) -> bytes:
    """Cut the last batch short, but never the only one: that one must come whole."""
    whole = batch_positions(records)
    if len(whole) < 2:
        return records
    return records[: max(whole[0][1], len(records) - drop_bytes)]


def restart(cluster: FakeCluster, consumer: LoopbackConsumer, node: int) -> None:
    others = [one.node_id for one in cluster.nodes.values() if one.is_running]
    if len(others) > 1 and node in others:
        cluster.stop_node(node)
        consumer.network.schedule(1_000, partial(cluster.start_node, node))


def random_step(rng: random.Random, cluster: FakeCluster, consumer: LoopbackConsumer) -> None:
    """Do one thing to the cluster."""
    partition = rng.randrange(PARTITIONS)
    running = [node.node_id for node in cluster.nodes.values() if node.is_running]
    node = rng.choice(running)
    fault, api = random_fault(rng)
    steps: list[Callable[[], Any]] = [
        partial(write, cluster, partition, 1 + rng.randrange(40), batch_records=rng.choice([1, 7])),
        partial(cluster.move_leader, "t", partition, node),
        partial(restart, cluster, consumer, node),
        partial(cluster.close_connections, rng.choice([None, node]), is_reset=rng.random() < 0.5),
        partial(cluster.sessions(node).evict),
        partial(cluster.freeze_metadata, node),
        partial(cluster.thaw_metadata),
        partial(cluster.faults.add, fault, api=api, times=1 + rng.randrange(2)),
    ]
    rng.choices(steps, weights=[10, 3, 1, 2, 2, 1, 2, 8])[0]()


def random_consumer(rng: random.Random, cluster: FakeCluster) -> LoopbackConsumer:
    partition_bytes = rng.choice([1, 300, 1 << 20])
    consumer = LoopbackConsumer(
        cluster,
        fetch_max_wait_ms=rng.choice([50, 500]),
        # More than the limits allow would make every answer wait for its whole time.
        fetch_min_bytes=rng.choice([1, min(partition_bytes, 1_000)]),
        fetch_max_bytes=rng.choice([1, 2_000, 1 << 20]),
        max_partition_fetch_bytes=partition_bytes,
        buffer_memory_bytes=rng.choice([1, 5_000, 64 << 20]),
        request_timeout_ms=rng.choice([1_000, 5_000]),
        metadata_max_age_ms=rng.choice([700, 300_000]),
        enable_incremental_fetch_sessions=rng.random() < 0.9,
        client_rack=rng.choice(["", "a", "b"]),
        isolation_level=rng.choice(["read_committed", "read_uncommitted"]),
    )
    consumer.network.max_recv_bytes = rng.choice([17, 1 << 30, 1 << 30])
    return consumer


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_record_is_delivered_once_and_in_order(seed: int) -> None:
    """F-11, N-18, D-26: whatever happens in between, nothing is lost, repeated or reordered."""
    rng = random.Random(seed)
    cluster = make_cluster(
        NODES,
        PARTITIONS,
        20,
        release=rng.choice(RELEASE_NAMES),
        racks=rng.choice([None, ["a", "b", "b"]]),
    )
    cluster.has_leader_hints = rng.random() < 0.7
    consumer = random_consumer(rng, cluster)
    consumer.subscribe("t")
    for _ in range(80):
        step = partial(random_step, rng, cluster, consumer)
        consumer.network.schedule(rng.randrange(DURATION_MS), step)
    found: dict[TopicPartition, list[tuple[int, bytes | None]]] = {}
    deadline_ms = consumer.clock.now + DURATION_MS
    is_healed = False
    while not (is_healed and is_at_end(consumer)):
        if not is_healed and consumer.clock.now >= deadline_ms:
            heal(cluster)
            is_healed = True
            deadline_ms = consumer.clock.now + 120_000
        assert consumer.clock.now < deadline_ms, f"stuck: {describe(consumer)}"
        try:
            records = consumer.poll(500, max_records=rng.choice([None, None, 1, 13]))
        except KafkaError as error:
            if not isinstance(error, TOLERATED):
                raise
            continue
        for partition, rows in records.items():
            found.setdefault(partition, []).extend((row.offset, row.value) for row in rows)
    for number in range(PARTITIONS):
        end = cluster.log("t", number).log_end_offset
        expected = [(offset, value(offset)) for offset in range(end)]
        assert found[TopicPartition("t", number)] == expected


def heal(cluster: FakeCluster) -> None:
    cluster.faults.clear()
    cluster.thaw_metadata()
    for node in cluster.nodes.values():
        if not node.is_running:
            cluster.start_node(node.node_id)
