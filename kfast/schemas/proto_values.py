"""Constants in texts of Protobuf: numbers, and the escapes of strings.

Both ``.proto`` text and the defaults in descriptors have them.
"""

from __future__ import annotations

import re
from math import inf, nan
from typing import Final

from kfast.schemas.descriptors import ProtoType

MAX_DIGITS: Final = 400
"""Characters of a number: what Python makes of more of them takes time."""

_INTEGER: Final = re.compile(r"0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*")
_FLOAT: Final = re.compile(r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+")
_UNSIGNED: Final = {
    ProtoType.UINT32: 32, ProtoType.FIXED32: 32, ProtoType.UINT64: 64, ProtoType.FIXED64: 64,
}  # fmt: skip
_SIGNED: Final = {
    ProtoType.INT32: 32, ProtoType.SINT32: 32, ProtoType.SFIXED32: 32,
    ProtoType.INT64: 64, ProtoType.SINT64: 64, ProtoType.SFIXED64: 64,
}  # fmt: skip
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\'\"?])|[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})"
    r"|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)"
)
_LETTERS: Final = {
    "a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63,
}  # fmt: skip


def whole(text: str) -> int | None:
    """Return a decimal, octal or hexadecimal number without a sign, None for another text."""
    if len(text) > MAX_DIGITS or not _INTEGER.fullmatch(text):
        return None
    if text[:2] in {"0x", "0X"}:
        return int(text, 16)
    return int(text, 8 if text.startswith("0") else 10)


def integer_of(text: str, kind: ProtoType) -> int | None:
    """Return an integer of a type, None for what does not fit it."""
    number = whole(text.removeprefix("-"))
    if number is None:
        return None
    if text.startswith("-"):
        number = -number
    if kind in _UNSIGNED:
        return number if 0 <= number < 1 << _UNSIGNED[kind] else None
    half = 1 << _SIGNED[kind] - 1
    return number if -half <= number < half else None


def float_of(text: str) -> float | None:
    """Return a number, ``inf`` or ``nan``, with or without a minus sign, as a float."""
    bare = text.removeprefix("-")
    number = whole(bare)
    if bare == "nan":
        return nan  # the same object, so that descriptors with it can be equal
    if number is not None:
        value = _as_float(number)
    elif bare == "inf" or (len(bare) <= MAX_DIGITS and _FLOAT.fullmatch(bare)):
        value = float(bare)
    else:
        return None
    return -value if text.startswith("-") else value


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return inf


def unescaped(text: str) -> bytes | None:
    """Return the bytes of the inside of a string literal, None if it has a wrong escape."""
    parts: list[bytes] = []
    at = 0
    try:
        for match in _ESCAPE.finditer(text):
            parts.append(text[at : match.start()].encode())
            at = match.end()
            letter, hexadecimal, octal, short, long = match.groups()
            if letter is not None:
                parts.append(bytes([_LETTERS[letter]]))
            elif hexadecimal is not None or octal is not None:
                number = int(hexadecimal, 16) if octal is None else int(octal, 8)
                parts.append(bytes([number]))
            elif short is not None or long is not None:
                parts.append(chr(int(short or long, 16)).encode())
            else:
                return None
        parts.append(text[at:].encode())
    except (ValueError, OverflowError):  # surrogates, and numbers that are no byte or character
        return None
    return b"".join(parts)
