"""FetchCollector: what one poll hands out, and in which order records and errors come."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.error_mailbox import ErrorMailbox
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.fetch.collector import OWN_DECODE_BYTES, FetchCollector
from kfast.consumer.fetch.completed_fetch import Stage
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.subscription_state import Delivery, SubscriptionState
from kfast.errors import CorruptRecordError, DeserializationError, KafkaError
from kfast.settings.offset_reset import RESET_EARLIEST
from tests.unit.consumer.fakes import (
    T0,
    T1,
    T2,
    FakeBuild,
    FakeChunk,
    FakeDecoder,
    FakeRows,
    build,
    chunk,
    failed_fetch,
    fetch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfast._native.record_index import RecordIndex
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.consumer.subscription_state import Fetched
    from kfast.types import TopicPartition

MIB = 1 << 20


class Poller:
    """A collector over partitions that all stand at offset 0."""

    def __init__(
        self,
        *partitions: TopicPartition,
        convert: Callable[[CompletedFetch, RecordIndex], FakeBuild] = build,
        memory: int = 64 * MIB,
    ) -> None:
        self.subscriptions = SubscriptionState(RESET_EARLIEST)
        self.subscriptions.assign_from_user(partitions or (T0, T1, T2))
        for tp in self.subscriptions.assigned_partitions():
            self.subscriptions.seek(tp, FetchPosition(0))
        self.wakeup = ApplicationWakeup()
        self.errors = ErrorMailbox(self.wakeup)
        self.buffer = FetchBuffer(memory, self.wakeup)
        self.collector = FetchCollector(self.subscriptions, self.buffer, self.errors, convert)

    def version(self, tp: TopicPartition = T0) -> int:
        return self.subscriptions.assigned(tp).version

    def put(
        self,
        tp: TopicPartition,
        *chunks: FakeChunk | KafkaError,
        offset: int = 0,
        raw_bytes: int = 100,
    ) -> CompletedFetch:
        completed = fetch(tp, *chunks, version=self.version(tp), offset=offset, raw_bytes=raw_bytes)
        self.add(completed)
        return completed

    def add(self, *fetches: CompletedFetch) -> None:
        self.buffer.fetch_answered(self.buffer.memory.fetch_sent(0), 1000, fetches)

    def collect(self, max_records: int | None = None) -> dict[TopicPartition, list[int]]:
        records = self.collector.collect(max_records) or {}
        return {tp: rows.offsets for tp, rows in records.items() if rows.offsets}

    def position(self, tp: TopicPartition = T0) -> int:
        position = self.subscriptions.position(tp)
        assert position is not None
        return position.offset

    def outcome(self, max_records: int | None = None) -> object:
        try:
            return self.collect(max_records)
        except KafkaError as error:
            return type(error).__name__


def test_one_poll_takes_a_chunk_of_every_ready_partition() -> None:
    poller = Poller()
    poller.put(T0, chunk(0, 3), chunk(3, 3))
    poller.put(T1, chunk(0, 2))
    assert poller.collect() == {T0: [0, 1, 2], T1: [0, 1]}
    assert poller.collect() == {T0: [3, 4, 5]}
    assert poller.collect() == {}


def test_the_position_moves_with_the_hand_over() -> None:
    """P-06: the position is the last returned offset + 1, or the chunk's end."""
    poller = Poller()
    poller.put(T0, FakeChunk([0, 1, 5], 9, leader_epoch=3))
    poller.collect(2)
    assert poller.position() == 2
    poller.collect(2)
    assert poller.position() == 9
    position = poller.subscriptions.position(T0)
    assert position is not None
    assert position.offset_epoch == 3


def test_max_records_is_exact_and_loses_nothing() -> None:
    """F-12: never more rows than asked for; the rest comes in later polls, in order."""
    for limit in (1, 2, 3, 7, 10, 11, 100):
        poller = Poller()
        poller.put(T0, chunk(0, 10), chunk(10, 3))
        poller.put(T0, chunk(13, 7), offset=13)
        poller.put(T1, chunk(0, 5))
        seen: dict[TopicPartition, list[int]] = {T0: [], T1: []}
        while got := poller.collect(limit):
            assert sum(map(len, got.values())) <= limit
            for tp, offsets in got.items():
                seen[tp] += offsets
        assert seen == {T0: list(range(20)), T1: list(range(5))}


def test_a_limited_poll_is_filled_from_several_partitions() -> None:
    """F-12: the limit counts over all partitions."""
    poller = Poller()
    for tp in (T0, T1, T2):
        poller.put(tp, chunk(0, 4))
    assert poller.collect(6) == {T0: [0, 1, 2, 3], T1: [0, 1]}
    assert poller.collect(6) == {T2: [0, 1, 2, 3], T1: [2, 3]}


def test_partitions_are_served_in_turn() -> None:
    """F-09: what was served goes to the end of the line."""
    poller = Poller()
    for tp in (T0, T1, T2):
        poller.put(tp, chunk(0, 6))
    served = []
    for _ in range(6):
        served += list(poller.collect(3))
    assert served == [T0, T1, T2, T0, T1, T2]


def test_a_chunk_is_converted_once() -> None:
    calls: list[int] = []

    def convert(fetch: CompletedFetch, index: RecordIndex) -> FakeBuild:
        calls.append(len(index))
        return build(fetch, index)

    poller = Poller(convert=convert)
    poller.put(T0, chunk(0, 6))
    for _ in range(4):
        poller.collect(2)
    assert calls == [6]


def test_rows_left_out_by_the_converter_count_as_handed_out() -> None:
    """F-12: with skipped rows the limit counts what is returned, the position the chunk."""

    def odd(fetch: CompletedFetch, index: RecordIndex) -> FakeBuild:
        fake = cast("FakeChunk", index)
        return FakeBuild(FakeRows([n for n in fake.offsets if n % 2], fake.next_offset))

    poller = Poller(convert=odd)
    poller.put(T0, chunk(0, 7))
    assert poller.collect(2) == {T0: [1, 3]}
    assert poller.position() == 4
    assert poller.collect(2) == {T0: [5]}
    assert poller.position() == 7


def test_progress_without_records_is_reported() -> None:
    """F-07: only the position moves."""
    poller = Poller()
    poller.put(T0, FakeChunk([], 50))
    collected = poller.collector.collect()
    assert poller.collector.undelivered is not None
    assert poller.collector.undelivered.records is collected
    assert [(tp, len(rows), rows.next_offset) for tp, rows in collected.items()] == [(T0, 0, 50)]
    assert poller.position() == 50
    assert not poller.collector.collect()


def test_what_an_interceptor_polls_itself_comes_once() -> None:
    """F-11: it runs before the positions move, and polls what would come next."""
    poller = Poller()
    poller.put(T0, chunk(0, 2), chunk(2, 2))
    inner: list[dict[TopicPartition, list[int]]] = []

    def prepare(rows: dict[TopicPartition, FakeRows]) -> dict[TopicPartition, list[int]]:
        if not inner:
            inner.append({})
            inner[0] = poller.collect()
        return {tp: each.offsets for tp, each in rows.items()}

    assert poller.collector.collect(prepare=prepare) == {T0: [2, 3]}
    assert inner == [{T0: [0, 1]}]
    assert poller.position() == 4


def test_paused_partitions_are_passed_over() -> None:
    """F-21: their data stays for later."""
    poller = Poller()
    poller.put(T0, chunk(0, 2))
    poller.put(T1, chunk(0, 2))
    poller.subscriptions.pause([T0])
    assert poller.collect() == {T1: [0, 1]}
    assert poller.collect() == {}
    poller.subscriptions.resume([T0])
    assert poller.collect() == {T0: [0, 1]}


def test_stale_data_is_dropped_with_its_memory() -> None:
    """F-02, P-04: also when the network thread has not noticed the seek yet."""
    poller = Poller()
    poller.put(T0, chunk(0, 2))
    poller.put(T1, chunk(0, 2))
    poller.subscriptions.seek(T0, FetchPosition(70))
    assert poller.collect() == {T1: [0, 1]}
    assert poller.buffer.memory.bytes_used == 0
    poller.put(T2, chunk(0, 2))
    poller.subscriptions.assign_from_user([T0])
    assert poller.collect() == {}
    assert poller.buffer.memory.bytes_used == 0


class Interrupted:
    """A lock that has another thread's work done just before it is taken for the n-th time."""

    def __init__(self, lock: threading.Lock, at: int, work: Callable[[], object]) -> None:
        self._lock = lock
        self._left = at
        self._work = work

    def __enter__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._work()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("moment", range(1, 6))
def test_what_comes_while_stale_data_is_dropped_is_kept(moment: int) -> None:
    """F-02, F-10: a reset ends and its data arrives at any moment of the poll that cleans up."""
    poller = Poller(T0)
    poller.put(T0, chunk(0, 2))
    poller.subscriptions.request_offset_reset([T0])

    def reset_and_answer() -> None:
        poller.subscriptions.complete_reset(T0, poller.version(), FetchPosition(70))
        poller.put(T0, chunk(70, 2), offset=70)

    lock = Interrupted(poller.buffer._lock, moment, reset_and_answer)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(poller.buffer, "_lock", lock)
        collected = [poller.collect() for _ in range(3)]
    assert [found for found in collected if found] == [{T0: [70, 71]}]


def test_a_reset_during_the_conversion_withholds_the_records() -> None:
    """F-02, F-10: records and position go together or not at all."""

    def seeking(fetch: CompletedFetch, index: RecordIndex) -> FakeBuild:
        if fetch.topic_partition == T0:
            poller.subscriptions.seek(T0, FetchPosition(99))
        return build(fetch, index)

    poller = Poller(convert=seeking)
    poller.put(T0, chunk(0, 2))
    poller.put(T1, chunk(0, 2))
    assert poller.collect() == {T1: [0, 1]}
    assert poller.position() == 99


def test_a_converter_that_raises_moves_no_position() -> None:
    """F-10: an exception of user code loses nothing of any partition."""
    is_broken = True

    def convert(fetch: CompletedFetch, index: RecordIndex) -> FakeBuild:
        if is_broken and fetch.topic_partition == T1:
            raise ZeroDivisionError
        return build(fetch, index)

    poller = Poller(convert=convert)
    poller.put(T0, chunk(0, 2))
    poller.put(T1, chunk(0, 2))
    with pytest.raises(ZeroDivisionError):
        poller.collect()
    assert (poller.position(T0), poller.position(T1)) == (0, 0)
    is_broken = False
    assert poller.collect() == {T0: [0, 1], T1: [0, 1]}


# --- work sharing ---------------------------------------------------------------------------------


def test_what_a_decode_thread_has_claimed_is_left_to_it() -> None:
    """F-26: the application decodes only what no decode thread has claimed."""
    poller = Poller()
    claimed = poller.put(T0, chunk(0, 2))
    poller.put(T1, chunk(0, 2))
    assert poller.buffer.decoding.claim(claimed)
    assert poller.collect() == {T1: [0, 1]}
    assert poller.collect() == {}
    poller.buffer.decoding.decode(claimed)
    assert poller.collect() == {T0: [0, 1]}


def test_what_arrives_during_an_empty_poll_ends_the_wait_after_it() -> None:
    """B-08: nothing that came after the look into the buffer is slept through."""
    poller = Poller()
    deliveries = poller.subscriptions.deliveries

    def meanwhile(fetched: Sequence[Fetched]) -> list[Delivery]:
        poller.put(T0, chunk(0, 2))
        return deliveries(fetched)

    poller.subscriptions.deliveries = meanwhile  # type: ignore[method-assign]
    assert poller.collect() == {}
    assert poller.wakeup.wait(0)


def test_a_fetch_in_decoding_allows_no_overdraft() -> None:
    poller = Poller(memory=1500)
    claimed = poller.put(T0, chunk(0, 2))
    poller.buffer.decoding.claim(claimed)
    poller.collect()
    assert not poller.buffer.memory.needs_data
    poller.subscriptions.pause([T0])
    poller.collect()
    assert poller.buffer.memory.needs_data


def test_one_poll_decodes_a_bounded_amount_itself() -> None:
    """B-08: with a lot to decode, what is there is returned first."""
    poller = Poller()
    for tp in (T0, T1, T2):
        poller.put(tp, chunk(0, 2), raw_bytes=OWN_DECODE_BYTES)
    assert list(poller.collect()) == [T0]
    assert list(poller.collect()) == [T1]


def test_decoding_stops_at_the_memory_cap() -> None:
    """B-05: chunks collected and not yet handed out count; one always gets through."""
    poller = Poller(memory=4000)
    for tp in (T0, T1, T2):
        poller.put(tp, chunk(0, 2, memory_bytes=3000))
    assert len(poller.collect()) == 1
    assert len(poller.collect()) == 1
    assert len(poller.collect()) == 1


def test_a_poll_decodes_no_second_batch_that_will_not_fit() -> None:
    """B-05: one that exceeds the cap is let through, not one of each partition."""
    poller = Poller(memory=64 * MIB)
    for tp in (T0, T1, T2):
        poller.put(tp, chunk(0, 2, memory_bytes=60 * MIB), raw_bytes=1 * MIB)
    assert poller.collect() == {T0: [0, 1]}
    assert poller.collect() == {T1: [0, 1]}
    assert poller.collect() == {T2: [0, 1]}


def test_without_memory_for_one_partition_the_others_go_on() -> None:
    """B-27: the MemoryError is raised when there is nothing else, and nothing is lost by it."""
    poller = Poller()
    starved = poller.put(T0, chunk(0, 3))
    decoder = starved.decoder
    assert isinstance(decoder, FakeDecoder)

    def no_memory() -> None:
        raise MemoryError("cannot allocate 10 bytes")

    decoder.during = no_memory
    poller.put(T1, chunk(0, 2))
    assert poller.collect() == {T1: [0, 1]}
    for _ in range(2):
        with pytest.raises(MemoryError, match="t-0: no memory"):
            poller.collect()
        assert poller.position() == 0
    decoder.during = None
    assert poller.collect() == {T0: [0, 1, 2]}


# --- errors ---------------------------------------------------------------------------------------


def test_an_error_comes_after_the_records_before_it_and_stays() -> None:
    """F-08: good records, then the error at every poll, position unmoved."""
    poller = Poller()
    poller.put(T0, chunk(0, 3), CorruptRecordError("bad", offset=3))
    poller.put(T0, chunk(9, 3), offset=9)
    assert poller.outcome() == {T0: [0, 1, 2]}
    for _ in range(3):
        assert poller.outcome() == "CorruptRecordError"
    assert poller.position() == 3
    poller.subscriptions.seek(T0, FetchPosition(9))
    assert poller.outcome() == {}
    assert poller.buffer.memory.bytes_used == 0


def test_an_error_met_after_records_is_raised_by_the_next_poll() -> None:
    """F-10: at once only if there is nothing to return."""
    poller = Poller()
    poller.add(failed_fetch(T0, CorruptRecordError("bad"), version=poller.version()))
    poller.put(T1, chunk(0, 2), chunk(2, 2))
    outcomes = [poller.outcome() for _ in range(5)]
    error = "CorruptRecordError"
    assert outcomes == [{T1: [0, 1]}, error, {T1: [2, 3]}, error, error]


def test_errors_of_several_partitions_alternate() -> None:
    poller = Poller()
    for tp in (T0, T1):
        error = CorruptRecordError(f"bad {tp}")
        poller.add(failed_fetch(tp, error, version=poller.version(tp)))
    messages = []
    for _ in range(4):
        with pytest.raises(CorruptRecordError) as caught:
            poller.collect()
        messages.append(caught.value.message)
    assert messages == ["bad t-0", "bad t-1", "bad t-0", "bad t-1"]


def test_a_paused_error_waits() -> None:
    poller = Poller()
    poller.add(failed_fetch(T0, CorruptRecordError("bad"), version=poller.version()))
    poller.subscriptions.pause([T0])
    assert poller.outcome() == {}
    poller.subscriptions.resume([T0])
    assert poller.outcome() == "CorruptRecordError"


def test_an_undecodable_row_comes_after_the_rows_before_it() -> None:
    """E-08: the position stays at the row, every poll raises, seek past it works."""

    def convert(fetch: CompletedFetch, index: RecordIndex) -> FakeBuild:
        fake = cast("FakeChunk", index)
        good = [offset for offset in fake.offsets if offset < 13]
        if len(good) == len(fake.offsets):
            return build(fetch, index)
        error = DeserializationError("not UTF-8", topic="t", partition=0, offset=13)
        return FakeBuild(FakeRows(good, 13), error)

    poller = Poller(convert=convert)
    poller.put(T0, chunk(10, 6))
    assert poller.outcome(2) == {T0: [10, 11]}
    assert poller.outcome(2) == {T0: [12]}
    assert poller.position() == 13
    for _ in range(2):
        assert poller.outcome() == "DeserializationError"
    assert poller.position() == 13
    poller.subscriptions.seek(T0, FetchPosition(14))
    assert poller.outcome() == {}


def test_an_undecodable_first_row_moves_nothing() -> None:
    """E-08: nothing before it to return."""

    def convert(fetch: CompletedFetch, index: RecordIndex) -> FakeBuild:
        error = DeserializationError("no", topic="t", partition=0, offset=0)
        return FakeBuild(FakeRows([], 0), error)

    poller = Poller(convert=convert)
    completed = poller.put(T0, chunk(0, 6))
    assert poller.outcome() == "DeserializationError"
    assert completed.stage is Stage.FAILED
    assert poller.position() == 0


def test_network_errors_are_raised_between_records() -> None:
    """P-17: an error moves no position, and does not hold back records."""
    poller = Poller()
    poller.put(T0, chunk(0, 2), chunk(2, 2))
    poller.errors.put(KafkaError("broker"), is_sticky=True, key="k")
    assert poller.outcome() == {T0: [0, 1]}
    assert poller.outcome() == "KafkaError"
    assert poller.outcome() == {T0: [2, 3]}
    assert poller.outcome() == "KafkaError"
    poller.errors.clear("k")
    assert poller.outcome() == {}


def test_waiting_calls_can_ask_for_errors_alone() -> None:
    poller = Poller()
    poller.put(T0, chunk(0, 2))
    poller.collector.raise_errors()
    poller.errors.put(KafkaError("no"))
    with pytest.raises(KafkaError):
        poller.collector.raise_errors()
    assert poller.collect() == {T0: [0, 1]}


def test_repr() -> None:
    assert "FetchCollector" in repr(Poller().collector)
