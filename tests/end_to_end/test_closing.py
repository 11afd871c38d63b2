"""How a consumer ends: close, whatever the brokers do, and being forgotten.

Through the public API over real sockets.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import socket
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest

import kfast
from kfast.errors import IllegalStateError, KafkaConnectionError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.fetch import FetchRequest
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import Delay, NeverAnswer, Trickle
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import (
    T0,
    T1,
    cluster_of,
    consumer,
    dead_port,
    raised,
    raw_server,
    read_until,
)

pytestmark = pytest.mark.usefixtures("nothing_is_printed")

CLOSE_MS = 500


def own_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("kfast-")}


def check_close(reader: kfast.KafkaConsumer) -> None:
    """Close a consumer and check that it took no longer than it said, plus a second."""
    started = time.monotonic()
    reader.close(timeout_ms=CLOSE_MS)
    assert time.monotonic() - started < CLOSE_MS / 1000 + 1
    raised(IllegalStateError, reader.poll)
    reader.close()


@pytest.mark.parametrize("polls", [False, True], ids=["unused", "polled"])
def test_close_with_nothing_listening(polls: bool) -> None:
    """L-01, L-02: in time, and a second close does nothing."""
    reader = consumer(f"127.0.0.1:{dead_port()}")
    reader.subscribe(["t"])
    if polls:
        reader.poll(timeout_ms=50)
    check_close(reader)


def test_close_while_a_server_does_not_answer() -> None:
    """L-01: blackholed during the set-up."""
    with raw_server(None) as address:
        reader = consumer(address)
        reader.subscribe(["t"])
        reader.poll(timeout_ms=50)
        check_close(reader)


@pytest.mark.parametrize(
    "fault", [NeverAnswer(), Trickle(), Delay(60_000)], ids=["blackholed", "trickling", "slow"]
)
@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH])
def test_close_while_a_request_is_out(fault: NeverAnswer | Trickle | Delay, api: ApiKey) -> None:
    """L-01, N-17: dead brokers do not hold up close."""
    cluster = cluster_of(1)
    rule = cluster.faults.add(fault, api=api, times=None)
    with BrokerServer(cluster) as server:
        reader = consumer(server.bootstrap_servers)
        reader.assign([T0])
        deadline = time.monotonic() + 10
        while not rule.hits:
            assert time.monotonic() < deadline
            assert not reader.poll(timeout_ms=20)
        check_close(reader)


def test_close_of_a_stopped_broker_and_of_a_healthy_one() -> None:
    """L-01, L-07: the threads are gone afterwards; what was handed out stays readable."""
    before = own_threads()
    cluster = cluster_of(1)
    with BrokerServer(cluster) as server:
        readers = [consumer(server.bootstrap_servers) for _ in range(2)]
        batches = []
        for reader in readers:
            reader.subscribe(["t"])
            batches.append(reader.poll(timeout_ms=10_000)[T0])
        assert own_threads() > before
        check_close(readers[0])
        cluster.stop_node(1)
        check_close(readers[1])
        assert own_threads() == before
    for batch in batches:
        assert batch.offsets.tolist() == list(range(10))
        assert [record.value for record in batch] == [b"0-%d" % n for n in range(10)]


def test_close_ends_the_connections() -> None:
    """L-02: the broker keeps none of them, also with a long poll out."""
    cluster = cluster_of(1)
    with BrokerServer(cluster) as server:
        with consumer(server.bootstrap_servers) as reader:
            reader.subscribe(["t"])
            read_until(reader, {T0: 10})
            assert cluster.connections
        deadline = time.monotonic() + 10
        while cluster.connections and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        assert not cluster.connections


@pytest.mark.parametrize("max_in_flight", [1, 5])
def test_close_ends_the_fetch_session_behind_a_long_poll(max_in_flight: int) -> None:
    """L-02: the end of the session is written at once and served when the long poll is over."""
    cluster = cluster_of(1)
    with BrokerServer(cluster) as server:
        reader = consumer(
            server.bootstrap_servers,
            fetch_max_wait_ms=1_000,
            max_in_flight_requests_per_connection=max_in_flight,
        )
        reader.subscribe(["t"])
        read_until(reader, {T0: 10})
        fetches = len(cluster.requests.messages(FetchRequest))
        assert cluster.requests.wait_for(lambda log: len(log.messages(FetchRequest)) > fetches)
        assert cluster.sessions(1).sessions
        started = time.monotonic()
        reader.close()
        took = time.monotonic() - started
        assert cluster.requests.wait_for(
            lambda log: log.messages(FetchRequest)[-1].session_epoch == -1
        )
        assert not cluster.sessions(1).sessions
        assert took < 0.7, "the answer of the long poll was waited for"


def test_close_ends_the_fetch_session_behind_unread_data() -> None:
    """L-02, B-06: a connection that is not read for want of memory is not reset by close."""
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    for _ in range(40):
        cluster.append("t", 0, [bytes(250_000)] * 2)
    with BrokerServer(cluster) as server:
        reader = consumer(
            server.bootstrap_servers,
            buffer_memory_bytes=1 << 20,
            max_partition_fetch_bytes=4 << 20,
            receive_buffer_bytes=65_536,
        )
        reader.subscribe(["t"])
        assert reader.poll(timeout_ms=10_000)
        fetches = len(cluster.requests.messages(FetchRequest))
        cluster.requests.wait_for(lambda log: len(log.messages(FetchRequest)) > fetches, 0.5)
        reader.close()
        assert cluster.requests.wait_for(
            lambda log: log.messages(FetchRequest)[-1].session_epoch == -1
        )
        assert not cluster.sessions(1).sessions


@contextlib.contextmanager
def hanging_name(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[threading.Event]:
    """Let ``getaddrinfo`` not answer for one name; the event is set when it was asked."""
    asked, may_answer = threading.Event(), threading.Event()
    system = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
        if host in {name, name.encode()}:
            asked.set()
            may_answer.wait(60)
        return system(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        yield asked
    finally:
        may_answer.set()


def test_a_name_server_that_hangs_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """F-22, L-01, N-17: other brokers are read meanwhile, and close does not wait for it."""
    cluster = cluster_of(2, nodes=2)
    cluster.move_leader("t", 0, 1)
    cluster.move_leader("t", 1, 2)
    with (
        BrokerServer(cluster) as server,
        hanging_name(monkeypatch, "hangs.invalid") as asked,
    ):
        cluster.advertise(2, "hangs.invalid", 9092)
        reader = consumer(server.bootstrap_server(1))
        reader.assign([T0, T1])
        assert read_until(reader, {T0: 10}) == {T0: list(range(10))}
        assert asked.wait(10)
        cluster.append("t", 0, [b"more"])
        assert read_until(reader, {T0: 1}) == {T0: [10]}
        check_close(reader)


def test_a_name_server_that_hangs_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """E-04, L-01: the error names the name; close is in time."""
    with hanging_name(monkeypatch, "hangs.invalid"):
        reader = consumer("hangs.invalid:9092")
        error, lines = raised(KafkaConnectionError, lambda: reader.topics(timeout_ms=1_500), 1_500)
        assert lines[0] == 'cannot resolve "hangs.invalid" (from bootstrap_servers)'
        assert "the name server did not answer within" in (error.cause or "")
        check_close(reader)


def test_a_forgotten_consumer_is_collected() -> None:
    """L-07: one warning, threads and connections go."""
    before = own_threads()
    cluster = cluster_of(1)
    with BrokerServer(cluster) as server:
        reader = consumer(server.bootstrap_servers)
        reader.subscribe(["t"])
        reader.poll(timeout_ms=10_000)
        holder = [reader]
        del reader
        with pytest.warns(ResourceWarning, match="was not closed") as warned:
            holder.clear()
        assert len(warned) == 1
        warned.clear()  # it holds the consumer
        gc.collect()
        deadline = time.monotonic() + 10
        while own_threads() - before and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        assert own_threads() <= before
        unused = consumer(server.bootstrap_servers)
        del unused  # never started anything: nothing to warn about
        gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("thread", ["network", "decode"])
def test_a_consumer_in_a_cycle_is_collected_on_any_thread(thread: str) -> None:
    """L-07: such as one that its listener knows; also by its own threads, holding their locks."""
    before = own_threads()
    with BrokerServer(cluster_of(1)) as server:
        reader: Any = consumer(server.bootstrap_servers)
        reader.subscribe(["t"])
        read_until(reader, {T0: 10})
        reader.itself = reader
        runtime = reader._runtime
        collected = weakref.ref(reader)
        gc.disable()
        try:
            del reader
            if thread == "network":

                def collect(_: int) -> None:
                    with runtime.fetch_buffer._lock:
                        gc.collect()

                runtime.submit("collecting garbage", collect)
            else:

                class Empty(OrderedDict[Any, Any]):
                    def __iter__(self) -> Iterator[Any]:
                        gc.collect()
                        return iter(())

                with runtime.fetch_buffer._lock:
                    runtime.fetch_buffer._decode_queue._fetches = Empty()
                    runtime.fetch_buffer._decode_queue._notify(1)
            deadline = time.monotonic() + 10
            while own_threads() - before and time.monotonic() < deadline:
                threading.Event().wait(0.01)
        finally:
            gc.enable()
        assert collected() is None
        assert own_threads() <= before


def test_who_iterates_keeps_the_consumer() -> None:
    """L-07: nobody else needs to."""
    with BrokerServer(cluster_of(1)) as server:
        batches = kfast.KafkaConsumer(
            "t", bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest"
        ).batches(timeout_ms=10_000)
        gc.collect()
        assert sum(len(batch) for batch in itertools.islice(batches, 1)) == 10
        with pytest.warns(ResourceWarning, match="was not closed"):
            del batches
