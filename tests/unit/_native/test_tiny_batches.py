"""Cost of a record batch with hardly any data.

``bench/micro`` measures it in nanoseconds; here it is compared with a compiled peer on the same
bytes, so that a change which makes tiny batches expensive fails wherever it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kfast._native.buffers import copy_of
from kfast._native.record_batch import SliceDecoder
from kfast.testing.batches import Record
from tests.reference.batches import encode_record_batch
from tests.reference.peers import AiokafkaRecords

BATCHES = 2_000
TRIES = 7


def fastest(work: Callable[[], int]) -> tuple[float, int]:
    """Seconds of the fastest of some tries, and what the work returned."""
    times = []
    for _ in range(TRIES):
        start = time.perf_counter()
        records = work()
        times.append(time.perf_counter() - start)
    return min(times), records


@pytest.mark.parametrize("per_batch", [1, 10])
def test_tiny_batches_cost_less_than_a_compiled_peer_takes(per_batch: int) -> None:
    """B-10: batches of ten or fewer records are decoded at less than half of a peer's price."""
    records = [Record(key=b"k" * 8, value=b"v" * 100, timestamp=1_000) for _ in range(per_batch)]
    data = b"".join(
        encode_record_batch(records, base_offset=number * per_batch) for number in range(BATCHES)
    )
    frame = copy_of(data)

    def decode() -> int:
        decoder = SliceDecoder(frame, 0, len(data), topic="t", partition=0, position=0)
        return len(decoder.decode(1 << 30))

    def peer() -> int:
        found, batches = 0, AiokafkaRecords(data)
        while batches.has_next():
            batch = batches.next_batch()
            assert batch.validate_crc()
            found += sum(1 for _ in batch)
        return found

    ours, decoded = fastest(decode)
    theirs, found = fastest(peer)
    assert decoded == found == BATCHES * per_batch
    assert ours < theirs / 2, f"{ours / BATCHES * 1e9:.0f} ns against {theirs / BATCHES * 1e9:.0f}"
