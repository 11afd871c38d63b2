"""The memory cap: what is requested when, and that no partition starves."""

from __future__ import annotations

import gc
import threading

import pytest

from kfast._native.buffers import live_bytes
from kfast.consumer.fetch.planner import PREFETCH_DEPTH
from kfast.protocol.messages.fetch import FetchRequest
from kfast.types import TopicPartition
from tests.reference.compression import Codec
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.harness import Harness, Part, batch

KIB = 1 << 10
PARTITION_BYTES = 16 * KIB


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


def reading(count: int, *, memory: int, nodes: int = 1, **configs: object) -> Harness:
    """Return a consumer of ``count`` partitions with limits small enough for tests."""
    configs.setdefault("fetch_max_bytes", memory)
    harness = Harness(
        {tp: (1 + tp.partition % nodes, 5) for tp in partitions(count)},
        buffer_memory_bytes=memory,
        max_partition_fetch_bytes=PARTITION_BYTES,
        **configs,
    )
    harness.assign(dict.fromkeys(partitions(count), 0))
    return harness


class Log:
    """Partitions that always have more: each answer brings about one full slice."""

    def __init__(self, harness: Harness, size: int = 1000, count: int = 15) -> None:
        self.harness = harness
        self.size = size
        self.count = count

    def slice_at(self, offset: int) -> bytes:
        return batch(offset, self.count, size=self.size)

    def serve(self, session_id: int = 9, node: int | None = None) -> list[TopicPartition]:
        """Answer the Fetch under way as a broker with a backlog would; return who was served."""
        harness = self.harness
        request = harness.waiting(FetchRequest, node)[0]
        harness.outbox.remove(request)
        message = request.message
        assert isinstance(message, FetchRequest)
        fetches = harness.fetcher._planner.nodes[request.node_id or 0]
        left = message.max_bytes
        parts: dict[TopicPartition, Part] = {}
        for tp, target in fetches.session._sent.values():
            data = self.slice_at(target.fetch_offset)
            if len(data) > left:
                break
            parts[tp] = Part(data)
            left -= len(data)
        harness.reply(request, parts, session_id=session_id)
        return list(parts)

    def fill(self) -> None:
        """Serve until the fetcher asks no more."""
        self.harness.turn()
        while self.harness.waiting(FetchRequest):
            self.serve()
            self.harness.turn()


def test_a_sleeping_application_stops_the_fetching_at_the_cap() -> None:
    """B-05, B-06: whatever the number of partitions, memory stays within the cap."""
    for count in (1, 6, 40):
        memory = 40 * PARTITION_BYTES
        harness = reading(count, memory=memory)
        log = Log(harness)
        log.fill()
        assert 0 < harness.buffer.memory.bytes_used <= memory
        while harness.buffer.decoding.decode_one(0):
            pass
        assert harness.buffer.memory.bytes_used <= memory


def test_fetching_goes_on_as_soon_as_room_is_made() -> None:
    """F-25: the network thread is woken by the hand-over; there is no pause to wait out."""
    harness = reading(1, memory=64 * PARTITION_BYTES)
    log = Log(harness)
    log.fill()
    assert harness.waiting(FetchRequest) == []
    assert harness.rooms == 0
    for _ in range(5):
        rooms = harness.rooms
        assert harness.collect()
        assert harness.rooms == rooms + 1
        harness.turn()
        assert len(harness.waiting(FetchRequest)) == 1
        log.fill()


def test_a_partition_is_prefetched_by_several_responses() -> None:
    """F-10: while one answer is decoded the next ones are under way, up to a depth."""
    harness = reading(1, memory=64 * PARTITION_BYTES)
    Log(harness).fill()
    buffered = harness.state(T0).fetch_offset // 15
    assert PREFETCH_DEPTH <= buffered <= PREFETCH_DEPTH + 1


def test_defaults_read_ahead_with_one_six_and_a_thousand_partitions() -> None:
    """F-10: after the first answers, the next request goes out with nothing handed out yet."""
    for count in (1, 6, 1000):
        harness = Harness(dict.fromkeys(partitions(count), (1, 5)))
        harness.assign(dict.fromkeys(partitions(count), 0))
        for number in range(2):
            harness.turn()
            request = harness.fetch()
            parts = {tp: Part(batch(number * 3, 3)) for tp in partitions(min(count, 50))}
            harness.reply(request, parts, session_id=9)
        assert harness.fetch()


def test_every_partition_gets_its_turn_when_there_is_room_for_few() -> None:
    """F-09, B-06: with room for some partitions only, the ones served longest ago are asked."""
    count = 24
    harness = reading(count, memory=12 * PARTITION_BYTES)
    log = Log(harness)
    served: list[TopicPartition] = []
    for _ in range(60):
        harness.turn()
        if harness.waiting(FetchRequest):
            served += log.serve()
        harness.collect()
        assert harness.buffer.memory.bytes_used <= 12 * PARTITION_BYTES
    counts = [served.count(tp) for tp in partitions(count)]
    assert min(counts) > 0
    assert max(counts) - min(counts) <= 2


def test_nothing_is_lost_or_repeated_under_pressure() -> None:
    """F-11, B-05: the delivered offsets of every partition are consecutive."""
    count = 20
    harness = reading(count, memory=8 * PARTITION_BYTES)
    log = Log(harness)
    seen: dict[TopicPartition, list[int]] = {tp: [] for tp in partitions(count)}
    for _ in range(80):
        harness.turn()
        if harness.waiting(FetchRequest):
            log.serve()
        for tp, offsets in harness.collect(max_records=40).items():
            seen[tp] += offsets
    for tp, offsets in seen.items():
        assert offsets == list(range(len(offsets))), tp
    assert sum(map(len, seen.values())) > 1000


def test_idle_partitions_do_not_take_the_room_of_busy_ones() -> None:
    """F-23, B-06: a partition without news is expected to bring nothing."""
    count = 100
    harness = reading(count, memory=12 * PARTITION_BYTES)
    busy = partitions(6)
    for number in range(30):
        request = harness.fetch()
        assert len(harness.forgotten(request)) <= len(busy)
        parts = {tp: Part(batch(number * 15, 15, size=1000)) for tp in busy}
        harness.reply(request, parts, session_id=9)
        while harness.collect():
            pass
    assert harness.position(T0) == 450


def test_an_oversize_batch_gets_through() -> None:
    """B-03: one batch above every limit is received, delivered, and the next follows."""
    harness = reading(2, memory=4 * PARTITION_BYTES)
    big = batch(0, 10, size=10 * PARTITION_BYTES)
    request = harness.fetch()
    assert harness.buffer.memory.may_receive(len(big) + 100)
    harness.reply(request, {T0: Part(big)}, session_id=9)
    assert harness.turn() == []
    assert harness.collect() == {T0: list(range(10))}
    request = harness.fetch()
    assert harness.offsets_of(request) == {T0: 10}
    harness.reply(request, {T1: Part(batch(0, 2))}, session_id=9)
    assert harness.collect() == {T1: [0, 1]}


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_batches_that_expand_a_lot_stay_within_the_cap(codec: Codec) -> None:
    """B-05: whatever is decoded at the same time, only the batch handed out next may exceed it."""
    memory = 4 << 20
    tps = partitions(8)
    harness = reading(len(tps), memory=memory)
    packed = batch(0, 20, size=100_000, codec=codec)
    request = harness.fetch()
    gc.collect()
    before = live_bytes()
    harness.reply(request, {tp: Part(packed) for tp in tps}, session_id=9)

    def decode_ahead() -> None:
        while harness.buffer.decoding.decode_one(0):
            pass

    threads = [threading.Thread(target=decode_ahead) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live_bytes() - before <= memory
    assert harness.buffer.memory.bytes_used <= memory
    served: list[TopicPartition] = []
    while len(served) < len(tps):
        found = harness.collect()
        assert len(found) <= 2
        assert all(offsets == list(range(20)) for offsets in found.values())
        served += found
        decode_ahead()
        assert harness.buffer.memory.bytes_used <= memory
    assert set(served) == set(tps)


def test_paused_data_that_fills_the_buffer_does_not_stop_the_others() -> None:
    """B-06, F-21: paused partitions keep their data and the others go on."""
    harness = reading(4, memory=8 * PARTITION_BYTES)
    log = Log(harness)
    log.fill()
    kept, other = partitions(2), partitions(4)[2:]
    harness.subscriptions.pause(kept)
    for _ in range(30):
        harness.collect()
        harness.turn()
        if harness.waiting(FetchRequest):
            log.serve()
    assert all((harness.position(tp) or 0) > 100 for tp in other)
    assert all(harness.position(tp) == 0 for tp in kept)
    harness.subscriptions.resume(kept)
    assert harness.collect()[T0][0] == 0


def test_several_brokers_share_the_room() -> None:
    """F-22, B-05: a broker that does not answer leaves room for the others."""
    harness = reading(9, memory=40 * PARTITION_BYTES, nodes=3)
    log = Log(harness)
    for node in (1, 2, 3):
        harness.turn()
        log.serve(node=node)
    harness.turn()
    assert {request.node_id for request in harness.waiting(FetchRequest)} == {1, 2, 3}
    for _ in range(20):
        harness.collect()
        harness.turn()
        for node in (2, 3):
            if harness.waiting(FetchRequest, node):
                log.serve(node=node)
        assert harness.buffer.memory.bytes_used <= 40 * PARTITION_BYTES
    assert all((harness.position(tp) or 0) > 100 for tp in partitions(9) if tp.partition % 3)


def test_unassigned_data_makes_room() -> None:
    """B-07: dropping an assignment gives its memory back."""
    harness = reading(6, memory=12 * PARTITION_BYTES)
    Log(harness).fill()
    assert harness.buffer.memory.bytes_used > 0
    harness.subscriptions.unsubscribe()
    harness.turn()
    assert harness.buffer.memory.bytes_used == 0
