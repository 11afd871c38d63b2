"""Record batches of magic 2, encoded as producers and group coordinators write them.

A batch is a header of 61 bytes and a section of records; only the header depends on the place of
the batch in the log. Batches are not compressed here::

    batch = encode_record_batch([Record(value=b"v", key=b"k")], base_offset=7)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from kfast._native.crc32c import crc32c

HEADER_SIZE: Final = 61
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
"""Bits of a batch's attributes."""

ABORT: Final = 0
COMMIT: Final = 1
"""Types of the markers that end transactions."""

_START: Final = Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
_CHECKED: Final = Struct(">hiqqqhii")  # attributes to number of records: the CRC begins here
_AFTER_LENGTH: Final = 9  # leader epoch, magic, CRC
_MAGIC: Final = 2
_MARKER_KEY: Final = Struct(">hh")
_MARKER_VALUE: Final = Struct(">hi")

Headers = tuple[tuple[str | bytes, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record to write.

    Attributes
    ----------
    timestamp : int
        Milliseconds since the epoch.
    offset_delta : int or None
        Its offset in the batch; None follows the record before. Compaction leaves gaps.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp: int = 0
    offset_delta: int | None = None


def uvarint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Zigzag, then seven bits a byte; the same for 32 and 64 bits."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """One record, its length in front."""
    body = b"".join(
        [
            b"\x00",
            varint(timestamp_delta),
            varint(offset_delta),
            _sized(record.key),
            _sized(record.value),
            varint(len(record.headers)),
            *(
                _sized(name.encode() if isinstance(name, str) else name) + _sized(value)
                for name, value in record.headers
            ),
        ]
    )
    return varint(len(body)) + body


def offset_deltas(records: Iterable[Record]) -> list[int]:
    """The offset of each record in its batch."""
    deltas: list[int] = []
    for record in records:
        following = deltas[-1] + 1 if deltas else 0
        deltas.append(following if record.offset_delta is None else record.offset_delta)
    return deltas


def encode_records(records: Sequence[Record], base_timestamp: int) -> bytes:
    """The records section of a batch."""
    return b"".join(
        encode_record(record, delta, record.timestamp - base_timestamp)
        for record, delta in zip(records, offset_deltas(records), strict=True)
    )


def encode_batch_header(
    records: bytes,
    *,
    base_offset: int,
    last_offset_delta: int,
    count: int,
    leader_epoch: int = -1,
    attributes: int = 0,
    base_timestamp: int = -1,
    max_timestamp: int = -1,
    producer_id: int = -1,
) -> bytes:
    """The header of a batch with this records section."""
    sequence = -1 if producer_id < 0 else 0  # and epoch, of the only batch of its producer
    checked = _CHECKED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        sequence,
        sequence,
        count,
    )
    checksum = crc32c(records, crc32c(checked))
    length = _AFTER_LENGTH + len(checked) + len(records)
    return _START.pack(base_offset, length, leader_epoch, _MAGIC, checksum) + checked


def encode_record_batch(
    records: Sequence[Record],
    base_offset: int = 0,
    *,
    leader_epoch: int = -1,
    attributes: int = 0,
    producer_id: int = -1,
    last_offset_delta: int | None = None,
) -> bytes:
    """A whole batch; without records one that compaction has emptied."""
    base_timestamp = records[0].timestamp if records else -1
    section = encode_records(records, base_timestamp)
    if last_offset_delta is None:
        last_offset_delta = offset_deltas(records)[-1]
    header = encode_batch_header(
        section,
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        count=len(records),
        leader_epoch=leader_epoch,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max((record.timestamp for record in records), default=-1),
        producer_id=producer_id,
    )
    return header + section


def encode_marker(
    base_offset: int, producer_id: int, kind: int, *, leader_epoch: int = -1
) -> bytes:
    """The control batch that ends a transaction (KIP-98)."""
    marker = Record(key=_MARKER_KEY.pack(0, kind), value=_MARKER_VALUE.pack(0, 0))
    return encode_record_batch(
        [marker],
        base_offset,
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
    )
