"""The compiled column operations: what they copy, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kfast._native import columns
from kfast._native.buffers import OwnedBuffer, copy_of

DATA = b"__alpha_beta____" + bytes(range(200)) + b"tail"
VALUES = [b"alpha", None, b"beta", b"", bytes(range(200)), b"tail"]
STARTS = [2, -5, 8, 10_000, 16, 216]
LENGTHS = [5, -1, 4, 0, 200, 4]

WIDTHS = [np.int32, np.int64]


def spans(
    starts: list[int] | None = None, lengths: list[int] | None = None, width: type[Any] = np.int32
) -> tuple[Any, Any, Any]:
    return (
        copy_of(DATA),
        np.array(STARTS if starts is None else starts, width),
        np.array(LENGTHS if lengths is None else lengths, np.int32),
    )


def ints(buffer: OwnedBuffer, dtype: type[Any] = np.int32) -> list[int]:
    return list(np.frombuffer(buffer.view(), dtype).tolist())


def bits(buffer: OwnedBuffer, count: int) -> list[int]:
    raw = np.frombuffer(buffer.view(), np.uint8)
    return list(np.unpackbits(raw, bitorder="little")[:count].tolist())


@pytest.mark.parametrize("width", WIDTHS)
def test_gather_makes_arrows_binary_layout(width: type[Any]) -> None:
    """D-02: null clears the validity bit, empty does not."""
    offsets, payload, validity, nulls = columns.gather(*spans(width=width))
    assert ints(offsets) == [0, 5, 5, 9, 9, 209, 213]
    assert bytes(payload) == b"".join(value or b"" for value in VALUES)
    assert validity is not None
    assert bits(validity, 6) == [1, 0, 1, 1, 1, 1]
    assert nulls == 1


def test_gather_without_nulls_has_no_bitmap() -> None:
    *_, validity, nulls = columns.gather(*spans([2], [5]))
    assert validity is None
    assert nulls == 0


def test_gather_of_nothing() -> None:
    offsets, payload, validity, nulls = columns.gather(*spans([], []))
    assert ints(offsets) == [0]
    assert (bytes(payload), validity, nulls) == (b"", None, 0)


def test_gather_can_have_wide_offsets() -> None:
    offsets, payload, *_ = columns.gather(*spans(), wide=True)
    assert ints(offsets, np.int64) == [0, 5, 5, 9, 9, 209, 213]
    assert len(payload) == 213


@pytest.mark.parametrize("length", [1, 12, 13, 31, 32, 33, 63, 64, 65, 100, 1000])
def test_every_copy_length_ends_exactly(length: int) -> None:
    """The block copy for short values neither loses nor adds a byte, also at the data's end."""
    data = bytes(np.random.default_rng(length).integers(0, 256, 3 * length, dtype=np.uint8))
    starts = np.array([2 * length, 0, length], np.int32)
    lengths = np.full(3, length, np.int32)
    _, payload, *_ = columns.gather(copy_of(data), starts, lengths)
    assert bytes(payload) == data[2 * length :] + data[: 2 * length]
    packed, _ = columns.pack([(copy_of(data), starts, lengths)])
    assert bytes(packed) == bytes(payload)


def test_views_refer_to_the_data() -> None:
    views, validity, nulls = columns.binary_views(*spans())
    entries = np.frombuffer(
        views.view(), [("length", "<i4"), ("prefix", "S4"), ("buffer", "<i4"), ("start", "<i4")]
    )
    assert entries["length"].tolist() == [5, 0, 4, 0, 200, 4]
    assert entries[4].tolist() == (200, b"\x00\x01\x02\x03", 0, 16)
    assert bytes(views)[4:16] == b"alpha" + bytes(7)
    assert validity is not None
    assert bits(validity, 6) == [1, 0, 1, 1, 1, 1]
    assert nulls == 1


def test_pack_bits() -> None:
    flags = np.array([1, 0, 0, 1, 1, 0, 0, 0, 2], np.uint8).view(np.bool_)
    packed, count = columns.pack_bits(flags)
    assert bits(packed, 9) == [1, 0, 0, 1, 1, 0, 0, 0, 1]
    assert count == 4
    inverted, rest = columns.pack_bits(flags, True)
    assert bits(inverted, 9) == [0, 1, 1, 0, 0, 1, 1, 1, 0]
    assert rest == 5


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 1000])
def test_repeat_value(count: int) -> None:
    offsets, payload = columns.repeat_value(b"orders", count)
    assert bytes(payload) == b"orders" * count
    assert ints(offsets) == [6 * i for i in range(count + 1)]
    offsets, payload = columns.repeat_value(b"", count)
    assert (bytes(payload), ints(offsets)) == (b"", [0] * (count + 1))
    offsets, payload = columns.repeat_value(b"orders", count, True)
    assert bytes(payload) == b"orders" * count
    assert np.frombuffer(offsets.view(), np.int64).tolist() == [6 * i for i in range(count + 1)]


def test_bytes_at_reads_one_row() -> None:
    """B-23: other rows are not looked at; this one is checked as all are."""
    data, starts, lengths = spans([3, 5, 10_000, 7, 9], [2, 0, 4, -1, -2])
    assert columns.bytes_at(data, starts, lengths, 0) == bytes(memoryview(data)[3:5])
    assert columns.bytes_at(data, starts, lengths, 1) == b""
    assert columns.bytes_at(data, starts, lengths, 3) is None
    for row in (2, 4, -1, 5):
        with pytest.raises(ValueError, match=f"row {row} is not inside its buffer"):
            columns.bytes_at(data, starts, lengths, row)


def test_repeat_value_is_bounded() -> None:
    with pytest.raises(ValueError, match="2 GiB"):
        columns.repeat_value(b"x" * 1000, 2**22)
    with pytest.raises(ValueError, match="2 GiB"):
        columns.repeat_value(b"x", -1)


@pytest.mark.parametrize("width", WIDTHS)
def test_pack_joins_columns_into_one_exact_buffer(width: type[Any]) -> None:
    source = spans(width=width)
    payload, starts = columns.pack([source, spans([2], [5])])
    assert bytes(payload) == b"".join(value or b"" for value in VALUES) + b"alpha"
    assert ints(starts) == [0, 5, 5, 9, 9, 209, 213]
    assert columns.bytes_list(payload, starts, np.array([*LENGTHS, 5], np.int32)) == [
        *VALUES,
        b"alpha",
    ]


def test_pack_of_nothing() -> None:
    payload, starts = columns.pack([])
    assert (bytes(payload), bytes(starts)) == (b"", b"")


@pytest.mark.parametrize("size", [1, 3, 4, 8, 16, 24, 40])
def test_view_fixed_gathers_strided_values(size: int) -> None:
    data = bytes(np.arange(7 * (size + 3), dtype=np.uint8))
    starts = np.arange(7, dtype=np.int32) * (size + 3)
    block, bad = columns.view_fixed(copy_of(data), starts, np.full(7, size, np.int32), size)
    assert bad == -1
    assert block is not None
    assert bytes(block) == b"".join(data[start : start + size] for start in starts)


def test_view_fixed_does_not_copy_contiguous_values() -> None:
    starts = np.array([16, 20, 24], np.int32)
    assert columns.view_fixed(copy_of(DATA), starts, np.full(3, 4, np.int32), 4) == (None, -1)


@pytest.mark.parametrize(("lengths", "first"), [([4, 5, 3], 1), ([4, 4, -1], 2), ([0, 4, 4], 0)])
def test_view_fixed_names_the_first_row_of_another_length(lengths: list[int], first: int) -> None:
    assert columns.view_fixed(*spans([0, 8, 16], lengths), 4) == (None, first)


def test_gather_padded() -> None:
    block = columns.gather_padded(*spans([2, 0, 8, 3], [5, -1, 4, 0]), 5)
    assert bytes(block) == b"alpha" + bytes(5) + b"beta\0" + bytes(5)
    assert bytes(columns.gather_padded(*spans([2], [5]), 3)) == b"alp"


@pytest.mark.parametrize("width", WIDTHS)
def test_lists(width: type[Any]) -> None:
    """D-02: None, empty and other values stay distinct."""
    assert columns.bytes_list(*spans(width=width)) == VALUES
    assert columns.text_list(*spans([2, 0, 8, 3], [5, -1, 4, 0], width)) == [
        "alpha",
        None,
        "beta",
        "",
    ]


def test_text_list_reports_or_replaces_what_is_not_utf8() -> None:
    data, starts, lengths = copy_of(b"ok\xff"), np.array([0, 2], "i4"), np.array([2, 1], "i4")
    with pytest.raises(UnicodeDecodeError):
        columns.text_list(data, starts, lengths)
    assert columns.text_list(data, starts, lengths, "replace") == ["ok", "\ufffd"]


OPERATIONS: dict[str, Callable[..., object]] = {
    "gather": columns.gather,
    "binary_views": columns.binary_views,
    "pack": lambda data, starts, lengths: columns.pack([(data, starts, lengths)]),
    "view_fixed": lambda data, starts, lengths: columns.view_fixed(data, starts, lengths, 4),
    "gather_padded": lambda data, starts, lengths: columns.gather_padded(data, starts, lengths, 4),
    "bytes_list": columns.bytes_list,
    "text_list": columns.text_list,
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
@pytest.mark.parametrize(
    ("start", "length", "width"),
    [
        (-1, 4, np.int32),
        (217, 4, np.int32),
        (2**31 - 1, 2**31 - 1, np.int32),
        (0, 221, np.int32),
        (0, -2, np.int32),
        (0, -(2**31), np.int32),
        (2**63 - 1, 4, np.int64),
        (-(2**63), 4, np.int64),
        (2**32, 4, np.int64),
    ],
)
def test_spans_outside_the_data_are_refused(
    operation: Callable[..., object], start: int, length: int, width: type[Any]
) -> None:
    column = spans([0, start], [4, length], width)
    with pytest.raises(ValueError, match="row 1 is not inside its buffer of 220 bytes"):
        operation(*column)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_buffers_that_do_not_belong_together_are_refused(operation: Callable[..., object]) -> None:
    data, starts, lengths = spans()
    with pytest.raises(ValueError, match="starts must be"):
        operation(data, starts[:-1], lengths)
    with pytest.raises(ValueError, match="lengths must be"):
        operation(data, starts, lengths.tobytes()[:-1])
    misaligned = memoryview(bytes(1) + starts.tobytes())[1:]
    with pytest.raises(ValueError, match="starts must be"):
        operation(data, misaligned, lengths)
    with pytest.raises((TypeError, BufferError)):
        operation(None, starts, lengths)


def test_outputs_are_read_only() -> None:
    """D-25: the memory of a column is read-only."""
    for made in columns.gather(*spans())[:2]:
        assert isinstance(made, OwnedBuffer)
        assert made.view().readonly
