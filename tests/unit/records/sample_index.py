"""A stand-in for RecordIndex: the same attributes, made from plain Python records.

Lays records out in one buffer the way a batch does, with other bytes in between, so that nothing
works by accident because values happen to be contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kfast._native.buffers import OwnedBuffer, copy_of
from kfast._native.varint import encode_varint

Header = tuple[str | bytes, bytes | None]


@dataclass(frozen=True)
class Sample:
    """One record."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp: int = 1_000


class SampleIndex:
    """The attributes of a RecordIndex over samples, with consecutive offsets.

    Parameters
    ----------
    samples : sequence of Sample or bytes or None
        A plain value stands for a record without key and headers.
    base_offset : int
        Offset of the first record.
    next_offset : int, optional
        Default: the last offset plus one.
    offsets : sequence of int, optional
        All offsets, for logs with holes.
    timestamp_types : int or sequence of int
        As in RecordIndex.
    """

    def __init__(
        self,
        samples: Sequence[Sample | bytes | None],
        *,
        base_offset: int = 100,
        next_offset: int | None = None,
        offsets: Sequence[int] | None = None,
        timestamp_types: int | Sequence[int] = 0,
        leader_epoch: int = 7,
    ) -> None:
        records = [s if isinstance(s, Sample) else Sample(s) for s in samples]
        count = len(records)
        payload = bytearray(b"\xee" * 5)
        places: dict[str, list[int]] = {"key": [], "value": [], "header": []}
        for record in records:
            for name, part in (("key", record.key), ("value", record.value)):
                payload += b"\xee"
                places[name].append(len(payload))
                payload += part or b""
            payload += b"\xee\xee"
            places["header"].append(len(payload))
            payload += encode_headers(record.headers)
        self.last_timestamp = records[-1].timestamp if records else -1
        numbers = list(offsets) if offsets is not None else [base_offset + i for i in range(count)]
        self.data: OwnedBuffer = copy_of(bytes(payload) + b"\xee" * 7)
        self.offsets = _owned(numbers, np.int64)
        self.timestamps = _owned([record.timestamp for record in records], np.int64)
        self.key_starts = _owned(places["key"], np.int32)
        self.key_lengths = _owned([_length(record.key) for record in records], np.int32)
        self.value_starts = _owned(places["value"], np.int32)
        self.value_lengths = _owned([_length(record.value) for record in records], np.int32)
        has_headers = any(record.headers for record in records)
        counts = [len(record.headers) for record in records]
        self.header_starts = _owned(places["header"], np.int32) if has_headers else None
        self.header_counts = _owned(counts, np.int32) if has_headers else None
        self.timestamp_types: Any = (
            timestamp_types
            if isinstance(timestamp_types, int)
            else _owned(list(timestamp_types), np.int8)
        )
        after = numbers[-1] + 1 if numbers else base_offset
        self.next_offset = after if next_offset is None else next_offset
        self.leader_epoch = leader_epoch

    def __len__(self) -> int:
        return len(self.offsets) // 8


def encode_headers(headers: Sequence[Header]) -> bytes:
    """Return headers as they are in a record, without their count."""
    parts = []
    for key, value in headers:
        raw = key.encode() if isinstance(key, str) else key
        parts.append(encode_varint(len(raw)) + raw)
        parts.append(encode_varint(-1) if value is None else encode_varint(len(value)) + value)
    return b"".join(parts)


def _length(part: bytes | None) -> int:
    return -1 if part is None else len(part)


def _owned(values: list[int], dtype: type[Any]) -> OwnedBuffer:
    return copy_of(np.array(values, dtype).tobytes())
