"""What a consumer answers from a snapshot: by any thread, whatever the other threads are doing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from kfast import ConsumerGroupMetadata, KafkaConsumer, TopicPartition
from kfast.errors import IllegalStateError, KafkaConnectionError
from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import Delay
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import (
    HOST,
    T0,
    T1,
    cluster_of,
    consumer,
    dead_port,
    raised,
    read_until,
)

SNAPSHOTS: dict[str, Callable[[KafkaConsumer], object]] = {
    "assignment": lambda reader: reader.assignment(),
    "subscription": lambda reader: reader.subscription(),
    "group_metadata": lambda reader: reader.group_metadata(),
    "bootstrap_connected": lambda reader: reader.bootstrap_connected(),
    "metrics": lambda reader: reader.metrics(),
    "health": lambda reader: reader.health(),
    "repr": repr,
}


@contextmanager
def locked(*locks: threading.RLock | threading.Lock | threading.Condition) -> Iterator[None]:
    """Hold locks on another thread."""
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        is_held.set()
        is_over.wait(60)
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert is_held.wait(10)
        yield
    finally:
        is_over.set()
        thread.join()


def answers(reader: KafkaConsumer) -> dict[str, object]:
    """Return what every snapshot answers, each on a thread of its own."""
    with ThreadPoolExecutor(len(SNAPSHOTS)) as pool:
        futures = {name: pool.submit(call, reader) for name, call in SNAPSHOTS.items()}
        return {name: future.result(timeout=10) for name, future in futures.items()}


def test_any_thread_reads_them_while_another_one_is_inside_of_a_poll() -> None:
    """L-12: also while the locks between the threads of a consumer are taken."""
    cluster = cluster_of(1)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, group_id="g") as reader,
    ):
        reader.assign([T0])
        read_until(reader, {T0: 10})
        thread = threading.Thread(target=lambda: reader.poll(timeout_ms=60_000))
        thread.start()
        while not reader._parts.shared.guard.is_closed:
            try:
                reader.paused()
            except IllegalStateError:
                break  # the other thread is inside
        runtime = reader._runtime
        with locked(
            runtime.subscriptions.lock,
            runtime.fetch_buffer._lock,
            runtime._errors._lock,
            runtime.steps._lock,
        ):
            found = answers(reader)
        cluster.append("t", 0, [b"x"])
        thread.join(20)
        assert not thread.is_alive()
    assert found["assignment"] == {T0}
    assert found["subscription"] is None
    assert found["group_metadata"] == ConsumerGroupMetadata("g")
    assert found["bootstrap_connected"] is True
    assert found["repr"] == (
        f"<KafkaConsumer {reader._config.client_id}: {server.bootstrap_servers}; "
        "group g (assigned, 1 partition); topics t; lag 0>"
    )


def test_a_closed_consumer_has_metrics_and_health_only() -> None:
    """L-12, L-02: a probe goes on; what belongs to a live consumer is an error."""
    reader = consumer(f"{HOST}:9", group_id="g")
    reader.subscribe(["t"])
    reader.close()
    for call in (reader.assignment, reader.subscription, reader.group_metadata):
        raised(IllegalStateError, call)
    assert reader.metrics()
    assert reader.health().connections == 0
    assert "group g (closed)" in repr(reader)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_line_of_a_member(protocol: str) -> None:
    """L-12: state, share of the partitions, topics and lag."""
    cluster = FakeCluster()
    cluster.features["group.version"] = 1
    cluster.create_topic("t", 2)
    cluster.create_topic("u", 1)
    cluster.append("t", 0, [b"x"] * 1204)
    cluster.faults.add(Delay(300), api=ApiKey.FIND_COORDINATOR, times=1)
    with BrokerServer(cluster) as server:
        address = server.bootstrap_servers
        with consumer(
            address,
            group_id="billing",
            group_protocol=protocol,
            client_id="billing-1",
            max_poll_records=4,
        ) as reader:
            assert repr(reader) == f"<KafkaConsumer billing-1: {address}; group billing (new)>"
            reader.subscribe(["u", "t"])
            reader.poll(timeout_ms=0)
            assert "group billing (joining, " in repr(reader)
            seen: set[TopicPartition] = set()
            while T0 not in seen:
                seen |= set(reader.poll(timeout_ms=1_000))
            assert reader.assignment() == {T0, T1, TopicPartition("u", 0)}
            assert repr(reader).startswith(
                f"<KafkaConsumer billing-1: {address}; "
                "group billing (stable, 3 of 3 partitions); topics t, u; lag 1 2"
            )


def test_the_line_of_a_consumer_that_reaches_no_broker() -> None:
    """L-12: the reason is part of it."""
    address = f"{HOST}:{dead_port()}"
    with consumer(address, client_id="c") as reader:
        reader.assign([T0])
        raised(KafkaConnectionError, lambda: reader.position(T0, timeout_ms=200))
        assert repr(reader) == (
            f"<KafkaConsumer c: {address}; failed: cannot connect to {address}: connection "
            "refused, 1 partition; topics t>"
        )
