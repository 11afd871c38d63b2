"""Drives the compiled decoder and gives its outcome in the oracle's terms."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kfast._native.buffers import OwnedBuffer, copy_of
from kfast._native.record_batch import RecordIndex, SliceDecoder
from kfast.errors import KafkaError
from tests.reference.decoder import DecodedRecord, varint
from tests.reference.decompression import Source

GUARD = b"" if os.environ.get("KFAST_EXACT_FRAMES") else b"\xa5" * 64
"""Surrounds every slice, so that reading past it shows as a wrong value; under a sanitizer the
slice is the whole frame, so that it shows at once."""


@dataclass(slots=True)
class Decoded:
    """What came of driving a decoder to its end."""

    decoder: SliceDecoder
    chunks: list[RecordIndex] = field(default_factory=list)
    error: KafkaError | None = None

    @property
    def records(self) -> list[DecodedRecord]:
        return [record for chunk in self.chunks for record in records_of(chunk)]

    @property
    def next_offset(self) -> int:
        return self.decoder.next_offset


def ints(buffer: OwnedBuffer | None, dtype: type[np.generic]) -> list[int]:
    """A column of an index as a list."""
    array: NDArray[np.generic] = np.frombuffer(b"" if buffer is None else buffer.view(), dtype)
    values: list[int] = array.tolist()
    return values


def _headers(data: bytes, start: int, count: int) -> tuple[tuple[bytes, bytes | None], ...]:
    source = Source(data)
    source.pos = start
    found = []
    for _ in range(count):
        key = source.take(varint(source))
        length = varint(source)
        found.append((key, None if length < 0 else source.take(length)))
    return tuple(found)


def records_of(index: RecordIndex) -> list[DecodedRecord]:
    """The rows of an index as records; every span is checked to lie within the data."""
    data = bytes(index.data)
    n = len(index)
    kinds = index.timestamp_types
    types = [kinds] * n if isinstance(kinds, int) else ints(kinds, np.int8)
    has_headers = index.header_starts is not None
    header_starts = ints(index.header_starts, np.int32) if has_headers else [0] * n
    header_counts = ints(index.header_counts, np.int32) if has_headers else [0] * n

    def span(start: int, length: int) -> bytes | None:
        if length < 0:
            assert length == -1
            return None
        assert length == 0 or 0 <= start <= len(data) - length
        return data[start : start + length] if length else b""

    rows = zip(
        ints(index.offsets, np.int64),
        ints(index.timestamps, np.int64),
        types,
        ints(index.key_starts, np.int32),
        ints(index.key_lengths, np.int32),
        ints(index.value_starts, np.int32),
        ints(index.value_lengths, np.int32),
        header_starts,
        header_counts,
        strict=True,
    )
    return [
        DecodedRecord(offset, timestamp, kind, span(ks, kl), span(vs, vl), _headers(data, hs, hc))
        for offset, timestamp, kind, ks, kl, vs, vl, hs, hc in rows
    ]


def new_decoder(
    data: bytes,
    position: int = 0,
    *,
    aborted: Sequence[tuple[int, int]] = (),
    read_committed: bool = False,
    check_crcs: bool = True,
    limit: int = 256 << 20,
) -> SliceDecoder:
    """A decoder for ``data``, which lies between guard bytes in its frame."""
    return SliceDecoder(
        copy_of(GUARD + data + GUARD),
        len(GUARD),
        len(GUARD) + len(data),
        topic="t",
        partition=3,
        position=position,
        aborted_transactions=aborted,
        read_committed=read_committed,
        check_crcs=check_crcs,
        max_decompressed_batch_bytes=limit,
    )


def run(decoder: SliceDecoder, max_bytes: int = 1 << 20) -> Decoded:
    """Decode to the end or the first error."""
    out = Decoded(decoder)
    while not decoder.finished:
        before = decoder.next_offset
        try:
            chunk = decoder.decode(max_bytes)
        except KafkaError as error:
            assert decoder.next_offset == before
            out.error = error
            break
        out.chunks.append(chunk)
        assert chunk.next_offset == decoder.next_offset >= before
    return out


def decode(
    data: bytes,
    position: int = 0,
    *,
    max_bytes: int = 1 << 20,
    aborted: Sequence[tuple[int, int]] = (),
    read_committed: bool = False,
    check_crcs: bool = True,
    limit: int = 256 << 20,
) -> Decoded:
    """Decode ``data`` with the compiled decoder."""
    decoder = new_decoder(
        data,
        position,
        aborted=aborted,
        read_committed=read_committed,
        check_crcs=check_crcs,
        limit=limit,
    )
    return run(decoder, max_bytes)


def split(data: bytes) -> list[bytes]:
    """The complete batches of a slice."""
    found = []
    at = 0
    while len(data) - at >= 12:
        size = 12 + int(struct.unpack_from(">i", data, at + 8)[0])
        found.append(data[at : at + size])
        at += size
    return found
