"""What records allocate is given back, however they were used."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from kfast._native.buffers import live_bytes, live_count
from kfast.deserializers import Int64, Struct, Utf8, Uuid
from kfast.errors import DeserializationError
from kfast.records import (
    BytesColumn,
    ConsumerRecords,
    PartitionRecords,
    build_partition_records,
)
from tests.unit.records.sample_index import Sample, sample_index

BUILDS = 1_000
ROWS = [
    Sample(b"12345678", b"key", [("h", b"x"), ("n", None)]),
    Sample(None, None),
    Sample(b"87654321", b"", [("h", b"")]),
]


@pytest.fixture(autouse=True)
def _balance() -> Iterator[None]:
    """B-07: buffers and their bytes are back at the baseline after every test."""
    gc.collect()
    before = live_count(), live_bytes()
    yield
    gc.collect()
    assert (live_count(), live_bytes()) == before


def build(**options: Any) -> PartitionRecords:
    return build_partition_records("t", 0, sample_index(ROWS), **options).records


def take_views(records: PartitionRecords) -> object:
    assert isinstance(records.values, BytesColumn)
    return records.offsets, records.values.data, records.values[1:], records[::2].compact()


def import_half_a_stream(records: PartitionRecords) -> object:
    stream = ConsumerRecords([records, records, records])
    return pa.RecordBatchReader.from_stream(stream).read_next_batch()


USES: dict[str, Callable[[PartitionRecords], object]] = {
    "views": take_views,
    "objects": list,
    "first object": lambda records: records[0],
    "headers": lambda records: records.headers.to_list(),
    "select": lambda records: records.select([2, 0]).select(np.array([True, False])),
    "concat": lambda records: PartitionRecords.concat([records, records[1:]]),
    "mapping": lambda records: ConsumerRecords([records, records])[records.topic_partition],
    "numpy": lambda records: records.to_numpy(),
    "arrow": lambda records: records.to_arrow(),
    "arrow views": lambda records: records.to_arrow(view=True).column("value"),
    "arrow stream": lambda records: pa.table(ConsumerRecords([records, records])),
    "half a stream": import_half_a_stream,
    "capsules": lambda records: (records.__arrow_c_array__(), records.__arrow_c_stream__()),
    "schema": lambda records: records.__arrow_c_schema__(),
    "polars": pl.DataFrame,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_every_use_gives_its_memory_back(use: Callable[[PartitionRecords], object]) -> None:
    """B-07: builds and uses leave nothing behind, round after round."""
    for _ in range(BUILDS // 10):
        use(build())


def test_a_thousand_builds() -> None:
    """B-07: the plain path, without the garbage collector's help."""
    baseline = live_count()
    gc.disable()
    try:
        for _ in range(BUILDS):
            records = build()
            records.to_arrow()
            assert len(records.headers[0]) == 2
            del records
        assert live_count() == baseline
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "deserializer",
    [Utf8(), Int64(), Struct([("a", ">i8")]), Uuid(), len],
    ids=["utf8", "int64", "struct", "uuid", "callable"],
)
@pytest.mark.parametrize("on_error", ["raise", "null", "skip"])
def test_deserializers_give_their_memory_back(deserializer: Any, on_error: Any) -> None:
    for _ in range(BUILDS // 10):
        records = build(value_deserializer=deserializer, on_error=on_error)
        list(records)
        records.to_arrow()


def test_errors_hold_no_buffer() -> None:
    """B-07, E-08: an error keeps the record's bytes, not the frame they came in."""
    errors: list[DeserializationError] = []
    gc.collect()
    before = live_count()
    for _ in range(BUILDS // 10):
        result = build_partition_records("t", 0, sample_index(ROWS), value_deserializer=Uuid())
        assert result.error is not None
        errors.append(result.error)
        del result
    gc.collect()
    assert live_count() == before
    assert errors[0].value_bytes == b"12345678"


def test_kept_arrays_hold_exactly_what_they_show() -> None:
    """D-25: an array holds its own buffer as long as it is needed, and no other."""
    gc.collect()
    before = live_count()
    offsets = [build().offsets for _ in range(10)]
    gc.collect()
    assert live_count() == before + 10
    assert offsets[9].tolist() == [100, 101, 102]
    values = [build().values for _ in range(10)]
    gc.collect()
    # Payload, starts, lengths and the offsets that errors would name.
    assert live_count() == before + 10 + 40
    assert len(values) == 10
