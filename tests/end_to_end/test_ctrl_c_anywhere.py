"""Ctrl-C at every instruction of a poll: records come once and in order around it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kfast
from kfast import KafkaConsumer, PartitionRecords
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import T0, T1, cluster_of, consumer
from tests.unit.threads.interruptions import run_interrupted


@pytest.fixture(autouse=True)
def pythons_own_handler() -> Iterator[None]:
    """Spark, in another test of this process, may have left its own."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, previous)


def by_poll(reader: KafkaConsumer, found: list[PartitionRecords]) -> None:
    polled = reader.poll(timeout_ms=1_000)
    # Nothing of kfast's runs from here on until the records are where nothing can touch them.
    found.extend(polled._chunks[tp][0] for tp in polled._chunks)


def by_batches(reader: KafkaConsumer, found: list[PartitionRecords]) -> None:
    for batch in reader.batches(timeout_ms=1_000):
        found.append(batch)
        break


READERS: dict[str, Callable[[KafkaConsumer, list[PartitionRecords]], None]] = {
    "poll": by_poll,
    "batches": by_batches,
}


def interrupted(reader: KafkaConsumer, read: Callable[[], None], at: int) -> bool:
    """Read with a signal at an instruction inside; whether it was raised."""
    try:
        run_interrupted(read, lambda: signal.raise_signal(signal.SIGINT), at, raises=True)
    except KeyboardInterrupt:
        return True
    finally:
        assert not reader._guard.is_inside
    return False


@pytest.mark.parametrize("deserializer", [None, bytes.decode], ids=["own code", "user's code"])
@pytest.mark.parametrize("name", READERS)
def test_nothing_is_lost_or_twice(name: str, deserializer: Callable[[bytes], str] | None) -> None:
    """L-04: interrupted between any two instructions, a consumer goes on where it was."""
    count = 900
    seen: dict[int, list[int]] = {0: [], 1: []}
    raised = 0
    with (
        BrokerServer(cluster_of(2, count, batch_records=2)) as server,
        consumer(
            server.bootstrap_servers,
            max_partition_fetch_bytes=100,
            max_poll_records=3,
            value_deserializer=deserializer,
        ) as reader,
    ):
        reader.assign([T0, T1])
        reader.poll(timeout_ms=0)
        reader.seek_to_beginning()
        found: list[PartitionRecords] = []

        def read() -> None:
            READERS[name](reader, found)

        at, last = 1, 1
        deadline = time.monotonic() + 60
        while sum(map(len, seen.values())) < 2 * count and time.monotonic() < deadline:
            found.clear()
            was_raised = interrupted(reader, read, at)
            raised += was_raised
            last = at if was_raised else last
            for batch in found:
                seen[batch.partition] += batch.offsets.tolist()
            at = at + 1 if at < last + 50 else 1
    assert seen == {0: list(range(count)), 1: list(range(count))}
    assert raised > 100


def test_a_signal_noted_in_a_poll_is_raised_by_it() -> None:
    """L-04: the poll that was about to return records raises, and the next one returns them."""
    with (
        BrokerServer(cluster_of(1)) as server,
        consumer(server.bootstrap_servers) as reader,
    ):
        reader.assign([T0])
        collector = reader._runtime.collector
        collect = collector.collect

        def pressed(*arguments: Any) -> object:
            collected = collect(*arguments)
            if collected:
                signal.raise_signal(signal.SIGINT)
            return collected

        collector.collect = pressed  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            reader.poll(timeout_ms=10_000)
        collector.collect = collect  # type: ignore[method-assign]
        assert reader.position(T0) == 0
        assert reader.poll(timeout_ms=10_000)[T0].offsets.tolist() == list(range(10))
        assert reader.position(T0) == 10


def test_a_users_own_code_is_interrupted_at_once() -> None:
    """L-04: a deserializer that takes its time does not hold Ctrl-C up; nothing has moved."""
    calls: list[bytes] = []

    def slow(raw: bytes) -> bytes:
        calls.append(raw)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return raw

    with (
        BrokerServer(cluster_of(1)) as server,
        consumer(server.bootstrap_servers, value_deserializer=slow) as reader,
    ):
        reader.assign([T0])
        with pytest.raises(KeyboardInterrupt):
            reader.poll(timeout_ms=10_000)
        assert len(calls) == 3
        assert reader.position(T0) == 0
        assert len(reader.poll(timeout_ms=10_000)[T0]) == 10


def test_another_handler_is_left_alone() -> None:
    """An application that handles SIGINT itself is asked as ever, inside of polls too."""
    pressed: list[int] = []
    own = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        with (
            BrokerServer(cluster_of(1)) as server,
            consumer(server.bootstrap_servers, value_deserializer=_press) as reader,
        ):
            reader.assign([T0])
            assert len(reader.poll(timeout_ms=10_000)[T0]) == 10
        assert pressed == [signal.SIGINT] * 10
    finally:
        signal.signal(signal.SIGINT, own)


def _press(raw: bytes) -> bytes:
    signal.raise_signal(signal.SIGINT)
    return raw


def test_other_threads_poll_without_handlers() -> None:
    """Only the main thread has signals; a poll elsewhere must not touch them."""
    with (
        BrokerServer(cluster_of(1)) as server,
        consumer(server.bootstrap_servers) as reader,
    ):
        reader.assign([T0])
        got: list[kfast.ConsumerRecords] = []
        thread = threading.Thread(target=lambda: got.append(reader.poll(timeout_ms=10_000)))
        thread.start()
        thread.join()
        assert got[0].count() == 10
