"""Why large buffers are recycled: writing fresh blocks against writing recycled ones.

A block that the allocator gets from the kernel is mapped page by page while it is written. If all
blocks have one size, glibc keeps them, and recycling gains nothing. Frames and payloads vary in
size and several are alive at a time; then glibc returns memory to the kernel and gets it again.
Blocks are only written here, as by a receive or a decompression.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest

from kfast._native import buffers

KIB = 1 << 10
SIZES = {
    "1 MiB": (1024 * KIB,),
    "0.3 to 4 MiB": (340 * KIB, 512 * KIB, 1024 * KIB, 2048 * KIB, 4096 * KIB),
    "1 and 8 MiB": (1024 * KIB, 8192 * KIB),
}
ALIVE = 6
ROUNDS = 50


@pytest.fixture(params=["recycled", "fresh"])
def kind(request: pytest.FixtureRequest, pool: list[buffers.PoolShare]) -> str:
    if request.param == "fresh":
        pool.clear()
    return str(request.param)


def fill_in_turn(order: list[int], alive: deque[object]) -> None:
    for size in order:
        alive.append(buffers.allocate(size))


@pytest.mark.parametrize("name", SIZES)
def test_fill(benchmark: Any, name: str, kind: str) -> None:
    chooser = Random(1)
    order = [chooser.choice(SIZES[name]) for _ in range(ROUNDS)]
    alive: deque[object] = deque(maxlen=ALIVE)
    fill_in_turn(order, alive)
    benchmark(fill_in_turn, order, alive)
    total = sum(order)
    benchmark.extra_info.update(row=f"{kind} blocks, {name}", bytes=total)
    if benchmark.stats is not None:
        benchmark.extra_info["gb_per_s"] = total / benchmark.stats.stats.min / 1e9


def test_small(benchmark: Any) -> None:
    benchmark(buffers.allocate, 100)
    benchmark.extra_info["row"] = "allocate 100 bytes"
