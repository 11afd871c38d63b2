"""Ends and idle times of a consumer, whatever the brokers do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from kfast.protocol.api_keys import ApiKey
from kfast.testing.fault_table import CONNECT, Fault
from kfast.testing.faults import Delay, NeverAnswer, Throttle, Trickle
from tests.end_to_end.stage import Stage, eventually, read
from tests.end_to_end.virtual import fetches, make_cluster, write

MakeStage = Callable[..., Stage]


def kfast_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("kfast-")}


SILENCE: dict[str, tuple[Fault, int]] = {
    "connections are accepted and ignored": (NeverAnswer(), CONNECT),
    "ApiVersions is never answered": (NeverAnswer(), ApiKey.API_VERSIONS),
    "Metadata is never answered": (NeverAnswer(), ApiKey.METADATA),
    "ListOffsets is never answered": (NeverAnswer(), ApiKey.LIST_OFFSETS),
    "Fetch is never answered": (NeverAnswer(), ApiKey.FETCH),
    "Fetch trickles": (Trickle(), ApiKey.FETCH),
    "Fetch is late": (Delay(60_000), ApiKey.FETCH),
}


@pytest.mark.parametrize("where", SILENCE)
def test_close_ends_in_time_whatever_the_brokers_do(make_stage: MakeStage, where: str) -> None:
    """L-01, L-07: within its timeout, and no thread is left."""
    fault, api = SILENCE[where]
    cluster = make_cluster(nodes=2)
    cluster.faults.add(fault, api=api, times=None)
    before = kfast_threads()
    consumer = make_stage(cluster).consumer("t")
    consumer.poll(timeout_ms=200)
    started = time.monotonic()
    consumer.close(timeout_ms=2_000)
    assert time.monotonic() - started < 3
    assert kfast_threads() == before


def test_close_with_all_brokers_dead(make_stage: MakeStage) -> None:
    """L-01: also when nobody is there any more."""
    cluster = make_cluster(nodes=2)
    consumer = make_stage(cluster).consumer("t")
    read(consumer, 20)
    for node in (1, 2):
        cluster.stop_node(node, fails_over=False)
    started = time.monotonic()
    consumer.close(timeout_ms=2_000)
    assert time.monotonic() - started < 3


def test_close_is_quiet(make_stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    """O-01: nothing worth a warning is logged, a Fetch under way or not."""
    cluster = make_cluster(nodes=1)
    consumer = make_stage(cluster).consumer("t")
    read(consumer, 20)
    write(cluster, 0, 5)
    consumer.close()
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [record.getMessage() for record in warnings] == []
    eventually(lambda: cluster.connections == {})


def test_a_consumer_never_used_opens_nothing(make_stage: MakeStage) -> None:
    """L-02, L-07: construction does no I/O and starts no thread."""
    cluster = make_cluster(nodes=1)
    before = kfast_threads()
    with make_stage(cluster).consumer("t"):
        assert kfast_threads() == before
    assert cluster.connections_made == 0


def test_idle_consumers_use_no_cpu(make_stage: MakeStage) -> None:
    """N-17, F-23: with all brokers gone, and with nothing to read, next to nothing runs."""
    cluster = make_cluster(nodes=2, partitions=50, records=1)
    stage = make_stage(cluster, fetch_max_wait_ms=500)
    consumer = stage.consumer("t", reconnect_backoff_max_ms=1_000, retry_backoff_max_ms=1_000)
    read(consumer, 50)
    is_over = threading.Event()
    for node in (None, 1, 2):
        if node is not None:
            cluster.stop_node(node, fails_over=False)
        before = time.process_time()
        is_over.wait(1.5)
        assert time.process_time() - before < 0.3
    assert len(fetches(cluster)) < 100


def test_throttling_for_a_quota_is_visible(
    make_stage: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    """U-13: metrics under Kafka's names, and one line in the log."""
    cluster = make_cluster(nodes=1)
    cluster.faults.add(Throttle(40), api=ApiKey.FETCH, times=5)
    consumer = make_stage(cluster).consumer("t", client_id="app-1")
    read(consumer, 20)
    eventually(
        lambda: (
            not consumer.poll(timeout_ms=10)
            and consumer.metrics()["consumer-fetch-manager-metrics"]["fetch-total"] > 2
        )
    )
    metrics = consumer.metrics()["consumer-fetch-manager-metrics"]
    assert metrics["fetch-throttle-time-max"] == 40
    assert 0 < metrics["fetch-throttle-time-avg"] <= 40
    lines = [line for line in caplog.messages if "throttles" in line]
    assert len(lines) == 1
    assert lines[0].startswith("Broker 1 throttles Fetch for 40 ms: a quota")
    assert "app-1" in lines[0]
