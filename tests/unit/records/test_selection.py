"""Selection of rows of PartitionRecords: rows, next offset and counts of errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kfast.deserializers import Int64, Utf8
from kfast.records import BytesColumn, PartitionRecords
from tests.unit.records.sample_index import Sample
from tests.unit.records.sample_records import build


@pytest.mark.parametrize(
    ("rows", "offsets", "next_offset"),
    [
        (slice(0, 2), [10, 12], 13),
        (slice(0, 3), [10, 12, 15], 16),
        (slice(0, 4), [10, 12, 15, 16], 30),
        (slice(1, None), [12, 15, 16], 30),
        (slice(0, 0), [], 10),
        (slice(2, 2), [], 13),
        (slice(4, 9), [], 30),
        (slice(None, None, 2), [10, 15], 30),
        (slice(None, 3, 2), [10, 15], 16),
        (slice(None, 2, 2), [10], 13),
        (slice(2, 2, 2), [], 13),
        (slice(3, 1), [], 16),
        (slice(None, None, -1), [16, 15, 12, 10], 30),
        (slice(None, None, -2), [16, 12], 30),
        (slice(1, None, -1), [12, 10], 13),
        (slice(2, 0, -1), [15, 12], 16),
        (slice(0, None, -1), [10], 11),
        (slice(1, 3, -1), [], 10),
        ([True, False, False, False], [10], 30),
        (np.zeros(4, np.bool_), [], 30),
        ([0, 3], [10, 16], 30),
        ([2, 0], [15, 10], 16),
        ([-4], [10], 11),
        (np.array([1], np.uint8), [12], 13),
        ([], [], 10),
    ],
)
def test_select(rows: Any, offsets: list[int], next_offset: int) -> None:
    """F-12, B-12: a selection stands for the span it covers, a mask for all rows."""
    records = build(offsets=[10, 12, 15, 16], next_offset=30)
    for part in (records.select(rows), records[rows]):
        assert part.offsets.tolist() == offsets
        assert part.next_offset == next_offset
        assert [record.offset for record in part] == offsets
        assert part.to_arrow().num_rows == len(offsets)
        assert (part.high_watermark, part.leader_epoch) == (500, 7)


@pytest.mark.parametrize("rows", [slice(None), slice(None, None, -1), slice(5, 2), []])
def test_select_of_no_rows(rows: Any) -> None:
    """B-12: a batch without rows keeps its next offset, which may be after a gap."""
    assert build([], next_offset=30).select(rows).next_offset == 30


@pytest.mark.parametrize("on_error", ["null", "skip"])
def test_errors_are_divided_by_slicing(on_error: Any) -> None:
    """B-15, E-08: the counts of all pieces of a batch sum to its own."""
    samples = [
        Sample(b"?" if i % 3 else bytes(8), b"\xff" if i % 5 == 4 else b"") for i in range(50)
    ]
    options: dict[str, Any] = {"key_deserializer": Utf8(), "value_deserializer": Int64()}
    records = build(samples, on_error=on_error, **options)
    bad = sum(
        (i % 3 > 0) + (i % 5 == 4) if on_error == "null" else i % 3 > 0 or i % 5 == 4
        for i in range(50)
    )
    assert records.deserialization_errors == bad
    pieces = [records[start : start + 7] for start in range(0, len(records), 7)]
    assert sum(piece.deserialization_errors for piece in pieces) == bad
    assert sum(records[[row]].deserialization_errors for row in range(len(records))) == bad
    assert records[:0].deserialization_errors == 0
    assert records[::-1].compact().deserialization_errors == bad
    clean = build([Sample(bytes(8), b"")], base_offset=200, **options)
    joined = PartitionRecords.concat([*pieces, clean])
    assert joined.deserialization_errors == bad
    assert joined[: len(records)].deserialization_errors == bad
    assert joined[len(records) :].deserialization_errors == 0
    assert build([b"?"], on_error=on_error, **options).deserialization_errors == 1


def test_skipped_records_are_counted_with_the_row_after_them() -> None:
    """B-15: those behind the last row are counted with that one."""
    samples = [b"?", b"?", bytes(8), b"?", bytes(8), b"?", b"?"]
    records = build(samples, on_error="skip", value_deserializer=Int64())
    assert [records[[row]].deserialization_errors for row in (0, 1)] == [2, 3]


def test_select_by_a_condition_on_a_column() -> None:
    records = build()
    chosen = records.select(records.timestamps >= 1_005)
    assert chosen.values[:].to_list() == [None, b"x" * 300]
    assert chosen.headers.to_list() == [[], []]


def test_select_by_a_key() -> None:
    """B-11: a comparison of keys selects their records, and a bool none."""
    records = build(offsets=[10, 12, 15, 16])
    assert records[records.keys == b"k3"].offsets.tolist() == [16]
    assert records[records.keys.isin([b"k0", b"k3"])].offsets.tolist() == [10, 16]
    bools: list[Any] = [False, np.True_]
    for row in bools:
        with pytest.raises(TypeError, match="is neither a row number nor a mask"):
            records[row]


def test_select_shares_the_payload() -> None:
    records = build()
    assert isinstance(records.values, BytesColumn)
    chosen = records.select([3, 0])
    assert isinstance(chosen.values, BytesColumn)
    assert chosen.values.data.ctypes.data == records.values.data.ctypes.data
    with pytest.raises(IndexError):
        records.select([True])
