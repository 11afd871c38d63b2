"""Records over what the real decoder makes of real batches."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kfast._native.buffers import OwnedBuffer, copy_of, live_count, trim_pool
from kfast._native.record_batch import SliceDecoder
from kfast.deserializers import Utf8
from kfast.records import (
    BytesColumn,
    ConsumerRecords,
    PartitionRecords,
    build_partition_records,
)
from kfast.testing.batches import Record
from tests.reference.batches import encode_record_batch
from tests.reference.compression import Codec
from tests.reference.golden import V2

EVERYTHING = 1 << 30
RECORDS = [
    Record(
        b"k%d" % i, None if i % 7 == 3 else b"value %d " % i * 10, (("h", b"%d" % i),), 1_000 + i
    )
    for i in range(200)
]


def decoder(raw: bytes | OwnedBuffer, position: int = 0) -> SliceDecoder:
    frame = copy_of(raw) if isinstance(raw, bytes) else raw
    return SliceDecoder(frame, 0, len(frame), topic="orders", partition=3, position=position)


def build(raw: bytes, **options: Any) -> PartitionRecords:
    index = decoder(raw).decode(EVERYTHING)
    return build_partition_records("orders", 3, index, **options).records


@pytest.mark.parametrize("codec", V2)
def test_golden_batches(codec: str) -> None:
    """D-01, D-02: the golden batches end to end, as objects and as Arrow."""
    records = build(V2[codec])
    first, second = records
    assert (first.offset, first.timestamp, first.key, first.value) == (0, 1000, b"k", b"v")
    assert first.headers == [("h", b"x")]
    assert (second.offset, second.timestamp, second.key, second.value) == (1, 1005, None, b"")
    assert second.headers == [("n", None)]
    assert records.next_offset == 2
    batch = records.to_arrow()
    batch.validate(full=True)
    assert batch.column("key").to_pylist() == [b"k", None]
    assert batch.column("headers").to_pylist() == [
        [{"key": "h", "value": b"x"}],
        [{"key": "n", "value": None}],
    ]


def test_all_codecs_give_the_same_columns() -> None:
    """D-13: columns do not depend on the codec, copied or viewed."""
    parts = [build(encode_record_batch(RECORDS, codec=codec)) for codec in Codec]
    expected = parts[0].to_arrow()
    assert expected.column("value").to_pylist() == [record.value for record in RECORDS]
    for part in parts:
        assert part.to_arrow().equals(expected)
        assert (
            part.to_arrow(view=True).column("value").to_pylist()
            == expected.column("value").to_pylist()
        )


def test_uncompressed_values_are_views_of_the_frame() -> None:
    frame = copy_of(encode_record_batch(RECORDS))
    index = decoder(frame).decode(EVERYTHING)
    records = build_partition_records("orders", 3, index).records
    assert isinstance(records.values, BytesColumn)
    assert records.values.data.ctypes.data == frame.address
    views = records.to_arrow(view=True).column("value")
    assert views.buffers()[2].address == frame.address


def test_columns_survive_reuse_of_the_memory() -> None:
    """D-25: frames recycled by the pool never show through what the user holds."""
    gc.collect()
    before = live_count()
    big = [Record(b"k", b"%06d" % i * 100) for i in range(2_000)]
    kept: list[Any] = []
    for number in range(6):
        codec = [Codec.NONE, Codec.LZ4][number % 2]
        records = build(encode_record_batch(big, number * 2_000, codec))
        kept.append((records.values, records.to_arrow(view=True), records[::100].compact()))
        assert isinstance(records.values, BytesColumn)
        del records
    expected = [record.value for record in big]
    for values, batch, small in kept:
        assert values.to_list() == expected
        assert batch.column("value").to_pylist() == expected
        assert [row.value for row in small] == expected[::100]
    kept.clear()
    del values, batch, small
    gc.collect()
    assert live_count() == before
    trim_pool()


def test_chunks_of_one_slice_join() -> None:
    """F-11: what comes in several chunks is the same as in one."""
    raw = b"".join(encode_record_batch(RECORDS, 200 * number) for number in range(5))
    whole = build(raw)
    source = decoder(raw)
    chunks = []
    while not source.finished:
        index = source.decode(1)
        chunks.append(build_partition_records("orders", 3, index).records)
    assert len(chunks) == 5
    records = ConsumerRecords(chunks)
    assert records.count() == len(whole) == 1_000
    assert list(records[whole.topic_partition]) == list(whole)
    assert pa.table(records).combine_chunks().equals(pa.table(whole).combine_chunks())
    assert records.next_offsets()[whole.topic_partition].offset == 1_000


def test_a_chunk_without_records() -> None:
    """F-07, E-10: a filtered chunk has no row and still moves on."""
    emptied = encode_record_batch([], 10, last_offset_delta=9)
    records = build(emptied)
    assert (len(records), records.next_offset) == (0, 20)
    assert records.to_arrow().num_rows == 0
    assert ConsumerRecords([records]).next_offsets()[records.topic_partition].offset == 20


def test_the_position_cuts_a_batch() -> None:
    """F-04: rows before the position are not there."""
    index = decoder(encode_record_batch(RECORDS), position=150).decode(EVERYTHING)
    records = build_partition_records("orders", 3, index).records
    assert records.offsets.tolist() == list(range(150, 200))
    assert records[0].value == RECORDS[150].value


def test_append_time() -> None:
    """D-12: the broker's time for every row, and its type."""
    records = build(encode_record_batch(RECORDS, log_append_time=9_999))
    assert np.unique(records.timestamps).tolist() == [9_999]
    assert np.unique(records.timestamp_types).tolist() == [1]


def test_an_undecodable_record_in_the_middle_of_a_chunk() -> None:
    """E-08: rows before it first; the error names it; the chunk after it can still be read."""
    records = [Record(value=b"good"), Record(value=b"\xff"), Record(value=b"good")]
    raw = encode_record_batch(records, 40)
    index = decoder(raw, 40).decode(EVERYTHING)
    result = build_partition_records("orders", 3, index, value_deserializer=Utf8())
    assert result.error is not None
    assert (result.error.offset, result.records.next_offset) == (41, 41)
    assert [row.value for row in result.records] == ["good"]
    behind = decoder(raw, 42).decode(EVERYTHING)
    assert build_partition_records("orders", 3, behind, value_deserializer=Utf8()).error is None
