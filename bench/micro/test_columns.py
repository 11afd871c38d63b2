"""The cost of column operations per record: gathers, views, checks and lists.

``varied`` lengths are random up to the stated one; their gather is the reason why short values are
copied in blocks rather than by memcpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kfast._native import columns, deserialize

GAP = 20
SHAPES = [(10, False), (10, True), (100, False), (100, True), (1000, False)]

OPERATIONS: dict[str, Callable[[Any, Any, Any], object]] = {
    "gather": columns.gather,
    "binary_views": columns.binary_views,
    "pack": lambda data, starts, lengths: columns.pack([(data, starts, lengths)]),
    "utf8": lambda data, starts, lengths: deserialize.utf8_column(data, starts, lengths, True),
    "bytes_list": columns.bytes_list,
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
@pytest.mark.parametrize(("length", "varied"), SHAPES)
def test_column_operation(benchmark: Any, operation: str, length: int, varied: bool) -> None:
    count = (1 << 20) // (length + GAP)
    random = np.random.default_rng(7)
    data = random.integers(32, 127, count * (length + GAP), dtype=np.uint8)
    starts = np.arange(count, dtype=np.int32) * (length + GAP)
    lengths = np.full(count, length, np.int32)
    if varied:
        lengths = random.integers(1, length + 1, count, dtype=np.int32)
    benchmark(OPERATIONS[operation], data, starts, lengths)
    if benchmark.stats is not None:
        benchmark.extra_info["ns_per_record"] = benchmark.stats.stats.min / count * 1e9
