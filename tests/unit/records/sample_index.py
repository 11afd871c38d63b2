"""Decoded chunks, made from plain Python records.

The records lie in their batches, with other bytes in between, so that nothing works by accident
because values happen to be contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kfast._native.record_index import RecordIndex
from kfast._native.varint import encode_varint
from kfast.testing.batches import Record
from tests.reference.batches import encode_record_batch
from tests.reference.native import new_decoder

Header = tuple[str | bytes, bytes | None]


@dataclass(frozen=True)
class Sample:
    """One record."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp: int = 1_000


def sample_index(
    samples: Sequence[Sample | bytes | None],
    *,
    base_offset: int = 100,
    next_offset: int | None = None,
    offsets: Sequence[int] | None = None,
    timestamp_types: int | Sequence[int] = 0,
    leader_epoch: int = 7,
) -> RecordIndex:
    """Decode a chunk of these samples.

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
    records = [s if isinstance(s, Sample) else Sample(s) for s in samples]
    numbers = offsets or range(base_offset, base_offset + len(records))
    after = next_offset or (numbers[-1] + 1 if numbers else max(base_offset, 1))
    kinds = (
        [timestamp_types] * len(records) if isinstance(timestamp_types, int) else timestamp_types
    )
    runs: list[list[tuple[int, int, Sample]]] = []
    for row in zip(numbers, kinds, records, strict=True):
        if not runs or row[1] or runs[-1][0][1]:  # the records of a batch have one append time
            runs.append([])
        runs[-1].append(row)
    batches = []
    for run in runs:
        first = run[0][0]
        batches.append(
            encode_record_batch(
                [
                    Record(s.key, s.value, tuple(s.headers), s.timestamp, offset - first)
                    for offset, _, s in run
                ],
                first,
                leader_epoch=leader_epoch,
                log_append_time=run[0][2].timestamp if run[0][1] else None,
                last_offset_delta=after - 1 - first if run is runs[-1] else None,
            )
        )
    if not batches:
        batches = [encode_record_batch([], after - 1, leader_epoch=leader_epoch)]
    index = new_decoder(b"".join(batches), limit=(1 << 31) - 1).decode(1 << 40)
    assert index is not None
    assert (len(index), index.next_offset) == (len(records), after)
    return index


def encode_headers(headers: Sequence[Header]) -> bytes:
    """Return headers as they are in a record, without their count."""
    parts = []
    for key, value in headers:
        raw = key.encode() if isinstance(key, str) else key
        parts.append(encode_varint(len(raw)) + raw)
        parts.append(encode_varint(-1) if value is None else encode_varint(len(value)) + value)
    return b"".join(parts)
