"""The compiled deserializers: values, null and bad rows."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kfast._native import deserialize
from kfast._native.buffers import OwnedBuffer, copy_of

GOOD, NULL, BAD = 0, 1, 2


def column(values: Sequence[bytes | None]) -> tuple[Any, Any, Any]:
    lengths = [-1 if value is None else len(value) for value in values]
    starts = np.cumsum([1, *[max(length, 0) + 1 for length in lengths[:-1]]])[: len(values)]
    data = b"#" + b"#".join(value or b"" for value in values)
    return copy_of(data), starts.astype(np.int32), np.array(lengths, np.int32)


def flags(buffer: OwnedBuffer | None) -> list[int] | None:
    return None if buffer is None else list(bytes(buffer))


@pytest.mark.parametrize(
    ("dtype", "code", "values"),
    [
        (np.int32, ">i", [0, 1, -1, 2**31 - 1, -(2**31)]),
        (np.int64, ">q", [0, 1, -1, 2**63 - 1, -(2**63)]),
        (np.float32, ">f", [0.0, -0.0, 1.5, float("inf")]),
        (np.float64, ">d", [0.0, 0.1, -1e300, float("-inf")]),
    ],
)
def test_numbers(dtype: type[Any], code: str, values: list[float]) -> None:
    source = column([struct.pack(code, value) for value in values])
    block, flag, bad = deserialize.big_endian_column(*source, np.dtype(dtype).itemsize, True)
    assert np.frombuffer(block.view(), dtype).tolist() == values
    assert (flag, bad) == (None, -1)


def test_null_and_bad_rows_are_flagged_and_zero() -> None:
    source = column([bytes([0, 0, 0, 9]), None, b"", b"12345", bytes([0, 0, 0, 8])])
    block, flag, bad = deserialize.big_endian_column(*source, 4, False)
    assert np.frombuffer(block.view(), np.int32).tolist() == [9, 0, 0, 0, 8]
    assert flags(flag) == [GOOD, NULL, BAD, BAD, GOOD]
    assert bad == 2


def test_conversion_stops_at_the_first_bad_row() -> None:
    source = column([bytes([0, 0, 0, 9]), b"x", b"y", bytes([0, 0, 0, 8])])
    block, flag, bad = deserialize.big_endian_column(*source, 4, True)
    assert np.frombuffer(block.view(), np.int32).tolist() == [9, 0, 0, 0]
    assert flags(flag) == [GOOD, BAD, GOOD, GOOD]
    assert bad == 1


def test_impossible_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="4 or 8"):
        deserialize.big_endian_column(*column([]), 2, True)
    with pytest.raises(ValueError, match="positive"):
        deserialize.block_column(*column([]), 0, True)


@pytest.mark.parametrize("width", [1, 12, 33])
def test_blocks(width: int) -> None:
    values = [bytes([i]) * width for i in range(5)]
    block, flag, bad = deserialize.block_column(*column([*values, None]), width, True)
    assert bytes(block) == b"".join(values) + bytes(width)
    assert flags(flag) == [GOOD] * 5 + [NULL]
    assert bad == -1


def test_uuids_as_text_and_as_bytes() -> None:
    one = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    texts = [str(one).encode(), str(one).upper().encode(), one.bytes]
    block, flag, bad = deserialize.uuid_column(*column(texts), True)
    assert bytes(block) == one.bytes * 3
    assert (flag, bad) == (None, -1)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"x",
        b"00112233-4455-6677-8899-aabbccddeef",
        b"00112233-4455-6677-8899-aabbccddeeff0",
        b"00112233+4455-6677-8899-aabbccddeeff",
        b"0011223344-55-6677-8899-aabbccddeeff",
        b"g0112233-4455-6677-8899-aabbccddeeff",
        b"00112233-4455-6677-8899-aabbccddee\xc3\xa9",
        b"{0112233-4455-6677-8899-aabbccddeef}",
    ],
)
def test_other_text_is_not_a_uuid(text: bytes) -> None:
    assert deserialize.uuid_column(*column([text]), True)[2] == 0


EDGES = [0, 1, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]


def test_every_edge_of_utf8_is_accepted() -> None:
    texts = [chr(point) * repeat for point in EDGES for repeat in (1, 2, 7, 40)]
    mixed = ["".join(map(chr, EDGES)), "a" * 31 + "é", "a" * 32 + "é" + "b" * 100, ""]
    source = column([text.encode() for text in texts + mixed])
    assert deserialize.utf8_column(*source, True) == (None, None, -1)


def test_utf8_agrees_with_python_on_every_short_ending() -> None:
    """All two- and three-byte tails after ASCII of several lengths, good or bad."""
    tails = [bytes([a, b]) for a in range(0x70, 256) for b in (0, 0x7F, 0x80, 0xBF, 0xC0, 0xFF)]
    tails += [
        bytes([a, b, c])
        for a in (0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF4, 0xF5)
        for b in (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
        for c in (0x41, 0x80, 0xBF, 0xC2)
    ]
    tails += [tail + b"\x80" for tail in tails]
    values = [b"a" * ascii_run + tail for ascii_run in (0, 7, 33) for tail in tails]
    _, flag, bad = deserialize.utf8_column(*column(values), False)

    def is_text(value: bytes) -> bool:
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
        return True

    expected = [GOOD if is_text(value) else BAD for value in values]
    assert flags(flag) == expected
    assert bad == expected.index(BAD)


def test_utf8_flags_nulls() -> None:
    """D-02: null text is not empty text."""
    _, flag, bad = deserialize.utf8_column(*column([b"a", None, b""]), True)
    assert flags(flag) == [GOOD, NULL, GOOD]
    assert bad == -1


@pytest.mark.parametrize(
    "convert",
    [
        lambda data, starts, lengths: deserialize.utf8_column(data, starts, lengths, True),
        lambda data, starts, lengths: deserialize.uuid_column(data, starts, lengths, True),
        lambda data, starts, lengths: deserialize.block_column(data, starts, lengths, 4, True),
        lambda data, starts, lengths: deserialize.big_endian_column(data, starts, lengths, 4, True),
    ],
)
def test_values_outside_the_data_are_refused(convert: Any) -> None:
    source = copy_of(b"12345678"), np.array([0, 6], np.int32), np.array([4, 4], np.int32)
    with pytest.raises(ValueError, match="row 1"):
        convert(*source)
