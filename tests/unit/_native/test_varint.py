"""Varints against the vectors every Kafka client shares; the property test covers the rest."""

from __future__ import annotations

from typing import Any

import pytest

from kfast._native import varint
from kfast.errors import ProtocolError

ZIGZAG = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    300: "d804",
    8191: "fe7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
}
ZIGZAG_64 = {2**63 - 1: "feffffffffffffffff01", -(2**63): "ffffffffffffffffff01"}
UNSIGNED = {
    127: "7f",
    128: "8001",
    300: "ac02",
    16383: "ff7f",
    16384: "808001",
    2**32 - 1: "ffffffff0f",
}


@pytest.mark.parametrize(("value", "text"), ZIGZAG.items())
def test_varint_vectors(value: int, text: str) -> None:
    """D-10: known encodings."""
    encoded = bytes.fromhex(text)
    assert varint.encode_varint(value) == encoded == varint.encode_varlong(value)
    assert varint.decode_varint(encoded) == (value, len(encoded))
    assert varint.decode_varlong(encoded) == (value, len(encoded))


@pytest.mark.parametrize(("value", "text"), ZIGZAG_64.items())
def test_varlong_vectors(value: int, text: str) -> None:
    encoded = bytes.fromhex(text)
    assert varint.encode_varlong(value) == encoded
    assert varint.decode_varlong(encoded) == (value, len(encoded))


@pytest.mark.parametrize(("value", "text"), UNSIGNED.items())
def test_uvarint_vectors(value: int, text: str) -> None:
    encoded = bytes.fromhex(text)
    assert varint.encode_uvarint(value) == encoded == varint.encode_uvarlong(value)
    assert varint.decode_uvarint(encoded) == (value, len(encoded))
    assert varint.decode_uvarlong(encoded) == (value, len(encoded))


@pytest.mark.parametrize(
    ("decode", "text"),
    [
        (varint.decode_varint, ""),
        (varint.decode_varint, "80"),
        (varint.decode_varint, "ffffffff"),
        (varint.decode_varint, "ffffffff1f"),
        (varint.decode_varint, "808080808000"),
        (varint.decode_uvarint, "ffffffff10"),
        (varint.decode_uvarint, "808080808001"),
        (varint.decode_varlong, "ffffffffffffffffff"),
        (varint.decode_varlong, "ffffffffffffffffff02"),
        (varint.decode_varlong, "8080808080808080808000"),
        (varint.decode_uvarlong, "ffffffffffffffffff03"),
    ],
)
def test_bad_varints_are_refused(decode: Any, text: str) -> None:
    """D-10: cut, too wide, too long."""
    with pytest.raises(ProtocolError):
        decode(bytes.fromhex(text))


def test_padding_is_read_as_java_reads_it() -> None:
    assert varint.decode_uvarint(b"\x80\x00") == (0, 2)
    assert varint.decode_varint(b"\x82\x80\x00") == (1, 3)


def test_a_position_outside_is_the_callers_mistake() -> None:
    assert varint.decode_varint(b"\x00\x02", 1) == (1, 2)
    for position in (-1, 3):
        with pytest.raises(ValueError, match="outside"):
            varint.decode_varint(b"\x00\x02", position)


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (varint.encode_uvarint, 2**32),
        (varint.encode_uvarint, -1),
        (varint.encode_varint, 2**31),
        (varint.encode_varlong, 2**63),
        (varint.encode_uvarlong, 2**64),
    ],
)
def test_values_that_do_not_fit_are_refused(encode: Any, value: int) -> None:
    with pytest.raises(OverflowError):
        encode(value)
