"""Topics with damaged records."""

from __future__ import annotations


def flip_last_bit(batch: bytearray) -> None:
    batch[-1] ^= 1


def set_magic(batch: bytearray) -> None:
    batch[16] = 3


def set_codec(batch: bytearray) -> None:
    batch[22] |= 6


def set_record_count(batch: bytearray) -> None:
    batch[57:61] = (0x7FFFFFFF).to_bytes(4, "big")


def set_last_offset_delta(batch: bytearray) -> None:
    batch[23:27] = (0xFFFFFFFF).to_bytes(4, "big")


def set_record_length(batch: bytearray) -> None:
    batch[61] = 0x7E
