"""Varints, lengths, strings and byte strings."""

from __future__ import annotations

from typing import Any

import pytest

from kfast.errors import ProtocolError, UnsupportedVersionError
from kfast.protocol.primitives import (
    blob_reader,
    blob_writer,
    read_compact_length,
    read_length16,
    read_length32,
    read_uvarint,
    text_reader,
    text_writer,
    write_compact_length,
    write_length16,
    write_uvarint,
)

UVARINTS = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**21 - 1, "ffff7f"),
    (2**21, "80808001"),
    (2**28 - 1, "ffffff7f"),
    (2**28, "8080808001"),
    (2**32 - 1, "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "encoded"), UVARINTS)
def test_uvarint(value: int, encoded: str) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert out.hex() == encoded
    assert read_uvarint(bytes(out) + b"\xff", 0) == (value, len(out))


@pytest.mark.parametrize("encoded", ["ffffffff10", "ffffffff1f", "ffffffffff01", "8080808080"])
def test_uvarint_beyond_32_bits_is_refused(encoded: str) -> None:
    """D-22: Java drops the surplus bits of a fifth byte; here they are damage."""
    with pytest.raises(ProtocolError):
        read_uvarint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["", "80", "8080", "ffffff", "ffffffff"])
def test_uvarint_cut_short(encoded: str) -> None:
    with pytest.raises(IndexError):
        read_uvarint(bytes.fromhex(encoded), 0)


def test_padded_uvarint_is_accepted_as_in_java() -> None:
    assert read_uvarint(b"\x80\x00", 0) == (0, 2)


def test_lengths() -> None:
    assert read_compact_length(b"\x00", 0) == (-1, 1)
    assert read_compact_length(b"\x01", 0) == (0, 1)
    assert read_compact_length(b"\x81\x01", 0) == (128, 2)
    assert read_length16(b"\xff\xff", 0) == (-1, 2)
    assert read_length32(b"\x00\x00\x01\x00", 0) == (256, 4)


@pytest.mark.parametrize(
    ("read", "data"), [(read_length16, b"\xff\xfe"), (read_length32, b"\x80\x00\x00\x00")]
)
def test_a_length_below_minus_one_is_refused(read: Any, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(data, 0)


def test_text() -> None:
    out = bytearray()
    text_writer(write_length16, False, "x")(out, "zażółć")
    text_writer(write_compact_length, True, "x")(out, None)
    text_writer(write_compact_length, True, "x")(out, "")
    assert out.hex() == "000a7a61c5bcc3b3c582c487" + "00" + "01"
    values: list[Any] = []
    pos = text_reader(read_length16, False, "x")(bytes(out), 0, values)
    pos = text_reader(read_compact_length, True, "x")(bytes(out), pos, values)
    pos = text_reader(read_compact_length, True, "x")(bytes(out), pos, values)
    assert (values, pos) == (["zażółć", None, ""], len(out))


def test_blob() -> None:
    out = bytearray()
    blob_writer(write_compact_length, True, "x")(out, memoryview(b"ab"))
    blob_writer(write_compact_length, True, "x")(out, None)
    assert out.hex() == "03616200"
    values: list[Any] = []
    pos = blob_reader(read_compact_length, True, "x")(bytes(out), 0, values)
    pos = blob_reader(read_compact_length, True, "x")(bytes(out), pos, values)
    assert (values, pos) == ([b"ab", None], 4)


@pytest.mark.parametrize("make", [text_reader, blob_reader])
@pytest.mark.parametrize("data", [b"\x00", b"\x05abc", b"\xff\xff\xff\xff\x0fabc"])
def test_null_and_impossible_lengths_are_refused(make: Any, data: bytes) -> None:
    """D-22: null where it is not allowed, and lengths beyond the bytes there are."""
    with pytest.raises(ProtocolError) as raised:
        make(read_compact_length, False, "topic")(data, 0, [])
    assert "topic" in str(raised.value)


def test_a_string_has_at_most_32767_bytes() -> None:
    out = bytearray()
    with pytest.raises(ProtocolError):
        text_writer(write_compact_length, False, "x")(out, "é" * 16384)
    encoded = bytearray()
    write_compact_length(encoded, 32768)
    with pytest.raises(ProtocolError):
        text_reader(read_compact_length, False, "x")(bytes(encoded) + b"a" * 32768, 0, [])


@pytest.mark.parametrize("make", [text_writer, blob_writer])
def test_null_that_cannot_be_written(make: Any) -> None:
    with pytest.raises(UnsupportedVersionError):
        make(write_compact_length, False, "x")(bytearray(), None)
