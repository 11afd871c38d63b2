"""Metadata of Arrow fields as bytes: int32 count, then per entry int32 length and bytes of each.

All in native byte order, as the C data interface has it. Pure functions.
"""

from __future__ import annotations

import struct


def encode_metadata(entries: dict[str, str]) -> bytes:
    """Return the bytes of field metadata."""
    parts = [struct.pack("=i", len(entries))]
    for pair in entries.items():
        for text in pair:
            raw = text.encode()
            parts.append(struct.pack("=i", len(raw)) + raw)
    return b"".join(parts)


def decode_metadata(raw: bytes | None) -> dict[str, str]:
    """Return the entries of field metadata; bytes that are no UTF-8 are replaced."""
    texts: list[str] = []
    at = 4
    while raw is not None and at < len(raw):
        (size,) = struct.unpack_from("=i", raw, at)
        texts.append(raw[at + 4 : at + 4 + size].decode("utf-8", "replace"))
        at += 4 + size
    return dict(zip(texts[::2], texts[1::2], strict=True))
