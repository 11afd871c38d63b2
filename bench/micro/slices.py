"""Record data for the decode benchmarks, made once per shape: no broker, no network.

Records are those of ``bench.data``: text values, 8-byte keys, timestamps 1 ms apart, no headers.
The bytes are laid out as one partition's part of a Fetch response.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from bench.data import text_values
from kfast._native.buffers import OwnedBuffer, copy_of
from kfast.testing.batches import Record
from tests.reference.batches import encode_record_batch
from tests.reference.compression import Codec

START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Slice:
    """Encoded batches: the same bytes for peers (``data``) and for kfast (``frame``)."""

    data: bytes
    frame: OwnedBuffer
    records: int
    plain_bytes: int
    """Size of the batches without compression."""


@functools.cache
def make_slice(value_bytes: int, per_batch: int, codec: str, records: int) -> Slice:
    """Return ``records`` records in batches of ``per_batch``."""
    values = text_values(value_bytes, count=5000)
    parts: list[bytes] = []
    plain_bytes = 0
    for first in range(0, records, per_batch):
        batch = [
            Record(n.to_bytes(8, "big"), values[n % len(values)], (), START_MS + n)
            for n in range(first, min(first + per_batch, records))
        ]
        plain = encode_record_batch(batch, first)
        plain_bytes += len(plain)
        chosen = Codec[codec.upper()]
        parts.append(plain if chosen is Codec.NONE else encode_record_batch(batch, first, chosen))
    data = b"".join(parts)
    return Slice(data, copy_of(data), records, plain_bytes)
