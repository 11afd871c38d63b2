"""What decoding, polling and measuring may cost: processor time as a share of other work's.

Every bound is a ratio of two things measured in turns in one process, on the processor clock of the
threads that do them, so that a slow or busy machine changes little. aiokafka's compiled decoder is
the yardstick. Bounds are about half of what was measured: what grows to twice its cost fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from bench.micro.slices import make_slice
from bench.micro.test_decode import decode, gather, peer
from kfast import KafkaConsumer
from kfast.application.metrics import ConsumerMetrics
from kfast.client.request_metrics import RequestMetrics
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import T0, consumer
from tests.reference.peers import AiokafkaRecords

ROUNDS = 9
RECORDS = 40_000


def fastest(*works: Callable[[], object]) -> list[int]:
    """Return each work's shortest time in ns, all done in turns."""
    times: list[list[int]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, taken in zip(works, times, strict=True):
            began = time.thread_time_ns()
            work()
            taken.append(time.thread_time_ns() - began)
    return [min(taken) for taken in times]


@pytest.mark.parametrize(
    ("value_bytes", "per_batch", "index_factor", "gather_factor"),
    [(100, 1_000, 6, 2.5), (100, 10, 4.5, 2.5), (1_000, 1_000, 5, 1.8)],
)
def test_decoding_is_several_times_as_fast_as_the_yardstick(
    value_bytes: int, per_batch: int, index_factor: float, gather_factor: float
) -> None:
    """O-04, B-10: index, and index with every key and value gathered; large and small batches."""
    made = make_slice(value_bytes, per_batch, "none", 5_000)
    index, gathered, yardstick = fastest(
        lambda: decode(made), lambda: gather(made), lambda: peer(AiokafkaRecords, made)
    )
    assert index * index_factor < yardstick, f"{yardstick / index:.1f} times as fast"
    assert gathered * gather_factor < yardstick, f"{yardstick / gathered:.1f} times as fast"


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    for _ in range(RECORDS // 1_000):
        cluster.append("t", 0, [b"x" * 100] * 1_000)
    return cluster


def read_all(reader: KafkaConsumer) -> list[int]:
    """Read the topic once; return the time of every poll that had records, in ns."""
    reader.seek_to_beginning(T0)
    times: list[int] = []
    found = 0
    while found < RECORDS:
        began = time.thread_time_ns()
        count = reader.poll(timeout_ms=10_000).count()
        if count:
            times.append(time.thread_time_ns() - began)
        found += count
    return times


def test_a_poll_costs_less_than_six_hundred_records_of_the_yardstick(cluster: FakeCluster) -> None:
    """O-04: what it costs to hand out a few rows that are there."""
    made = make_slice(100, 600, "none", 600)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, max_poll_records=50) as reader,
    ):
        reader.assign([T0])
        times = sorted(read_all(reader))
    (yardstick,) = fastest(lambda: peer(AiokafkaRecords, made))
    # Most polls hand out rows of a chunk that another one has decoded.
    typical = times[len(times) // 4]
    assert typical < yardstick, f"{typical / yardstick:.2f} of it"


def test_measuring_costs_less_than_two_percent(cluster: FakeCluster) -> None:
    """O-04: of all that polling, decoding and receiving cost, at the default sizes."""
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        read_all(reader)
        metrics, requests = reader._parts.shared.metrics, reader._runtime.requests
        answers = requests.of(1).latency_ms.count
        before = clocks()
        polls = sum(len(read_all(reader)) for _ in range(5))
        spent = sum(now - before.get(ident, 0) for ident, now in clocks().items())
        answers = requests.of(1).latency_ms.count - answers
        reader.seek_to_beginning(T0)
        measuring = polls * cost_of_a_poll(metrics, reader) + answers * cost_of_an_answer(requests)
    assert polls >= 5
    assert 0 < measuring < 0.02 * spent, f"{measuring / spent:.2%}"


def clocks() -> dict[int, int]:
    """Return the processor time of the client's threads, this one included, in ns."""
    ours = [
        thread
        for thread in threading.enumerate()
        if thread is threading.current_thread() or thread.name.startswith("kfast-")
    ]
    return {
        thread.ident: time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
        for thread in ours
        if thread.ident is not None
    }


def cost_of_a_poll(metrics: ConsumerMetrics, reader: KafkaConsumer) -> float:
    records = reader.poll(timeout_ms=10_000)
    assert records

    def measure() -> None:
        for _ in range(200):
            metrics.poll_begins(metrics._clock.now_ms())
            metrics.poll_ends(records)

    return fastest(measure)[0] / 200


def cost_of_an_answer(requests: RequestMetrics) -> float:
    def measure() -> None:
        for now_ms in range(200):
            requests.answered(1, 5, 1_000_000, 0, now_ms)

    return fastest(measure)[0] / 200
