"""Real threads over the shared objects: network, decode and application at the same time."""

from __future__ import annotations

import random
import threading

import pytest

from kfast.consumer.fetch_position import FetchPosition
from kfast.protocol.messages.fetch import FetchRequest
from kfast.types import TopicPartition
from tests.unit.consumer.harness import Harness, Part, batch

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
RECORDS = 4_000
PER_BATCH = 20
PATIENCE_S = 60.0
MAX_WAIT_S = 0.01


class NetworkThread(threading.Thread):
    """Turns the managers and answers every Fetch at once; sleeps while there is nothing to do."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(daemon=True)
        self.harness = harness
        self.wake = threading.Event()
        self.is_closing = False
        self.error: BaseException | None = None
        self.batches = {
            first: batch(first, PER_BATCH, size=50) for first in range(0, RECORDS, PER_BATCH)
        }

    def run(self) -> None:
        try:
            while not self.is_closing:
                self.wake.clear()
                self.harness.turn()
                if not self.answer() and not self.wake.wait(MAX_WAIT_S):
                    self.end_long_polls()
        except BaseException as error:
            self.error = error
            raise

    def answer(self) -> bool:
        """Answer a Fetch that asks for anything there is."""
        for request in self.harness.waiting(FetchRequest):
            parts = {}
            for tp, offset in self.harness.offsets_of(request).items():
                start = offset - offset % PER_BATCH
                data = b"".join(self.batches.get(start + n * PER_BATCH, b"") for n in range(3))
                if data:
                    parts[tp] = Part(data, high_watermark=RECORDS)
            if parts:
                self.harness.outbox.remove(request)
                self.harness.reply(request, parts)
                return True
        return False

    def end_long_polls(self) -> None:
        """Answer what waits for data without any, as a broker does after ``fetch_max_wait_ms``."""
        for request in self.harness.waiting(FetchRequest):
            self.harness.outbox.remove(request)
            self.harness.reply(request)


@pytest.mark.parametrize("decode_threads", [0, 2])
def test_three_kinds_of_threads_deliver_exactly(decode_threads: int) -> None:
    """F-11, F-26, L-06: with seeks and pauses in between, every record once and in order."""
    rng = random.Random(decode_threads)
    harness = Harness(
        dict.fromkeys(PARTITIONS, (1, 5)),
        enable_incremental_fetch_sessions=False,
        buffer_memory_bytes=40_000,
        max_partition_fetch_bytes=4_000,
    )
    network = NetworkThread(harness)
    harness.on_room = network.wake.set
    decoders = [
        threading.Thread(
            target=lambda: all(iter(harness.buffer.decoding.decode_one, False)), daemon=True
        )
        for _ in range(decode_threads)
    ]
    harness.assign(dict.fromkeys(PARTITIONS, 0))
    for thread in (network, *decoders):
        thread.start()
    following = dict.fromkeys(PARTITIONS, 0)
    seeks = 12
    while min(following.values()) < RECORDS or seeks:
        if seeks and rng.random() < 0.05:
            seeks -= 1
            tp = rng.choice(PARTITIONS)
            following[tp] = rng.randrange(RECORDS // 2)
            harness.subscriptions.seek(tp, FetchPosition(following[tp]))
            network.wake.set()
        if rng.random() < 0.1:
            harness.subscriptions.pause([rng.choice(PARTITIONS)])
            network.wake.set()
        if rng.random() < 0.3:
            harness.subscriptions.resume(PARTITIONS)
            network.wake.set()
        got = harness.collect(rng.choice((None, 13)))
        for tp, offsets in got.items():
            assert offsets == list(range(following[tp], following[tp] + len(offsets))), tp
            following[tp] += len(offsets)
        if not got:
            if harness.subscriptions.paused_partitions():
                harness.subscriptions.resume(PARTITIONS)
                network.wake.set()
                continue  # the application resumes it itself, so nothing signals what is buffered
            if min(following.values()) < RECORDS:
                assert harness.wakeup.wait(PATIENCE_S), (network.error, harness.buffer)
    network.is_closing = True
    network.wake.set()
    harness.buffer.close()
    for thread in (network, *decoders):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert network.error is None
    assert harness.buffer.memory.bytes_used == 0
