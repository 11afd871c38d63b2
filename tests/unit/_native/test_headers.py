"""Locating record headers."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kfast._native import headers
from kfast._native.buffers import copy_of
from tests.unit.records.sample_index import Header, encode_headers

ROWS: list[list[Header]] = [
    [("a", b"1"), ("a", b"1"), ("", None), ("b", b"")],
    [],
    [("long" * 50, b"v" * 300)],
]


def column(rows: list[list[Header]], width: type[Any] = np.int32) -> tuple[Any, Any, Any]:
    blocks = [encode_headers(row) for row in rows]
    starts = np.cumsum([3] + [len(block) + 2 for block in blocks[:-1]])
    data = b"###" + b"##".join(blocks) + b"#"
    return copy_of(data), starts.astype(width), np.array([len(row) for row in rows], np.int32)


def parsed(*source: Any) -> list[list[Header]]:
    data = bytes(source[0])
    width = source[1].dtype
    rows, key_starts, key_lengths, value_starts, value_lengths = (
        np.frombuffer(buffer.view(), dtype)
        for buffer, dtype in zip(
            headers.parse_headers(*source), ("i4", width, "i4", width, "i4"), strict=True
        )
    )
    pairs: list[Header] = [
        (
            data[ks : ks + kl].decode(),
            None if vl < 0 else data[vs : vs + vl],
        )
        for ks, kl, vs, vl in zip(key_starts, key_lengths, value_starts, value_lengths, strict=True)
    ]
    return [pairs[a:b] for a, b in pairwise(rows)]


@pytest.mark.parametrize("width", [np.int32, np.int64])
def test_order_repeats_null_and_empty_are_kept(width: type[Any]) -> None:
    """D-02: header order and repeated keys are kept, null and empty values differ."""
    assert parsed(*column(ROWS, width)) == ROWS


def test_lengths_cover_exactly_the_headers() -> None:
    source = column(ROWS)
    lengths = np.frombuffer(headers.header_lengths(*source).view(), np.int32)
    assert lengths.tolist() == [len(encode_headers(row)) for row in ROWS]


def test_no_rows() -> None:
    none = np.zeros(0, np.int32)
    assert parsed(copy_of(b""), none, none) == []


def test_the_place_of_a_record_without_headers_does_not_matter() -> None:
    starts, counts = np.array([-7, 10**6], np.int32), np.zeros(2, np.int32)
    assert parsed(copy_of(b""), starts, counts) == [[], []]


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 1),
        (b"\x02", 1),
        (b"\x02a", 1),
        (b"\x02a\x02", 1),
        (b"\x01\x01\x00", 1),
        (b"\x02a\x03\x00\x00", 1),
        (b"\x00\x01", 2),
        (b"\x00\x01" * 4, -1),
        (b"\x00\x01" * 4, 2**31 - 1),
        (b"\xff\xff\xff\xff\xff\xff", 1),
    ],
)
def test_malformed_headers_are_refused(data: bytes, count: int) -> None:
    """D-09, D-10: lengths and varints are checked here too, whoever made the index."""
    source: Any = (copy_of(data), np.zeros(1, np.int32), np.array([count], np.int32))
    for function in (headers.parse_headers, headers.header_lengths):
        with pytest.raises(ValueError, match="row 0"):
            function(*source)


def test_a_start_outside_the_data_is_refused() -> None:
    for start in (-1, 9, 2**31 - 1):
        source: Any = (copy_of(bytes(8)), np.array([start], np.int32), np.ones(1, np.int32))
        with pytest.raises(ValueError, match="row 0"):
            headers.parse_headers(*source)


def test_empty_lists() -> None:
    """B-22: each is a list of its own, and the collector is as it was."""
    assert gc.isenabled()
    made = headers.empty_lists(3)
    made[0].append("x")
    assert made == [["x"], [], []]
    assert gc.isenabled()
    gc.disable()
    try:
        assert headers.empty_lists(0) == []
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert all(map(gc.is_tracked, headers.empty_lists(5)))
