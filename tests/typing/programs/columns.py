"""Columns used as the deserializer makes them: no cast, no ignore.

Which kind of column ``keys`` and ``values`` are is known when the program runs; who wants its use
checked says it with an annotation.
"""

# ruff: noqa: T201

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import kfast
from kfast import BytesColumn, HeadersColumn, PartitionRecords, StringColumn


def readings(batch: PartitionRecords) -> float:
    celsius: npt.NDArray[np.float64] = batch.values["celsius"]
    hottest = batch.values["sensor"][celsius.argmax()]
    print(hottest, batch.values.dtype.names, batch.values["celsius"].mean())
    return float(celsius.sum())


def numbers(batch: PartitionRecords) -> int:
    total = int(batch.keys.sum())
    valid: npt.NDArray[np.bool_] = batch.keys > 5
    return total + len(batch.select(valid))


def raw(batch: PartitionRecords) -> list[bytes | None]:
    values: BytesColumn = batch.values
    sizes = [len(value) for value in batch.values.to_list() if value is not None]
    print(sizes, batch.values[0], values[0])
    return values.to_list()


def text(batch: PartitionRecords) -> dict[str | None, int]:
    counts: dict[str | None, int] = {}
    keys: StringColumn = batch.keys
    for key in keys.to_list():
        counts[key] = counts.get(key, 0) + 1
    return counts


def anything(batch: PartitionRecords) -> None:
    assert_type(batch.keys, Any)
    assert_type(batch.values, Any)
    assert_type(batch.headers, HeadersColumn)
    whole = kfast.read_topic("readings", bootstrap_servers="localhost:9092")
    for part in whole.values():
        assert_type(part, PartitionRecords)
        print(part.values["celsius"].mean())
