"""Encoders for record batches (magic 2) and message sets (magic 0 and 1): test data only.

Written for reading, not for speed. Every header field can be overridden, so a test can write any
lie it wants into an otherwise well-formed batch; ``with_crc`` makes the checksum right again.

    batch = encode_record_batch([Record(b"k", b"v")], base_offset=7, codec=Codec.LZ4)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace

import crc32c

from kfast.testing.batches import (
    ABORT,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    encode_records,
    offset_deltas,
)
from tests.reference.compression import Codec, compress

CRC_START = 21
DELETE_HORIZON = 0x40


def _i32_bytes(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def encode_batch_header(
    payload: bytes,
    *,
    base_offset: int = 0,
    batch_length: int | None = None,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    records_count: int = 0,
) -> bytes:
    """A whole v2 batch from its records section; every field as given, length and CRC computed."""
    checked = (
        struct.pack(
            ">hiqqqhii",
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            records_count,
        )
        + payload
    )
    length = len(checked) + 9 if batch_length is None else batch_length
    crc = crc32c.crc32c(checked) if crc is None else crc
    return struct.pack(">qiibI", base_offset, length, leader_epoch, magic, crc) + checked


def encode_record_batch(
    records: Sequence[Record],
    base_offset: int = 0,
    codec: int = Codec.NONE,
    *,
    leader_epoch: int = -1,
    log_append_time: int | None = None,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    last_offset_delta: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """A v2 record batch as a broker would serve it.

    Parameters
    ----------
    records
        Timestamps are absolute; holes in ``offset_delta`` are what compaction leaves.
    log_append_time
        The broker's timestamp: sets attribute bit 3 and maxTimestamp.
    delete_horizon
        Written as base timestamp with attribute bit 6 (KIP-534); deltas become relative to it.
    last_offset_delta
        Default: the last record's delta. Give it for emptied batches and compacted tails.
    payload
        Compressed records section to use instead of compressing ``records`` here.
    """
    first = records[0].timestamp if records else -1
    base_timestamp = first if delete_horizon is None else delete_horizon
    if payload is None:
        plain = encode_records(records, base_timestamp)
        payload = compress(codec, plain) if records else b""
    attributes = (
        codec
        | (LOG_APPEND_TIME if log_append_time is not None else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (DELETE_HORIZON if delete_horizon is not None else 0)
    )
    newest = max((record.timestamp for record in records), default=-1)
    if last_offset_delta is None:
        last_offset_delta = offset_deltas(records)[-1] if records else 0
    return encode_batch_header(
        payload,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=newest if log_append_time is None else log_append_time,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )


def encode_control_batch(
    base_offset: int,
    producer_id: int,
    kind: int = ABORT,
    *,
    producer_epoch: int = 0,
    leader_epoch: int = -1,
    timestamp: int = 0,
    version: int = 0,
    coordinator_epoch: int = 0,
) -> bytes:
    """A transaction marker (KIP-98): one record, key = version and type."""
    marker = Record(
        key=struct.pack(">hh", version, kind),
        value=struct.pack(">hi", version, coordinator_epoch),
        timestamp=timestamp,
    )
    return encode_record_batch(
        [marker],
        base_offset,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def encode_message(
    record: Record, offset: int, magic: int, attributes: int = 0, crc: int | None = None
) -> bytes:
    """One entry of a v0 or v1 message set."""
    checked = struct.pack(">bb", magic, attributes)
    if magic == 1:
        checked += struct.pack(">q", record.timestamp)
    checked += _i32_bytes(record.key) + _i32_bytes(record.value)
    crc = zlib.crc32(checked) if crc is None else crc
    return struct.pack(">qiI", offset, len(checked) + 4, crc) + checked


def encode_message_set(
    records: Sequence[Record],
    base_offset: int = 0,
    codec: int = Codec.NONE,
    *,
    magic: int = 1,
    log_append_time: int | None = None,
    relative: bool | None = None,
    wrapper_offset: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """A message set: plain entries, or one wrapper when a codec is given.

    Parameters
    ----------
    log_append_time
        Broker's timestamp, magic 1 only: on the wrapper, or on each entry when there is none.
    relative
        Inner offsets count from 0 (default: in magic 1 wrappers).
    wrapper_offset
        Default: the offset of the last inner message; 0 is what old producers wrote.
    payload
        The wrapper's value, instead of compressing the entries here.
    """
    attributes = LOG_APPEND_TIME if log_append_time is not None else 0
    deltas = offset_deltas(records)
    if codec == Codec.NONE:
        return b"".join(
            encode_message(
                record if log_append_time is None else replace(record, timestamp=log_append_time),
                base_offset + delta,
                magic,
                attributes,
            )
            for record, delta in zip(records, deltas, strict=True)
        )
    if relative is None:
        relative = magic == 1
    first = 0 if relative else base_offset
    if payload is None:
        plain = b"".join(
            encode_message(record, first + delta, magic)
            for record, delta in zip(records, deltas, strict=True)
        )
        payload = compress(codec, plain, magic=magic)
    newest = max((record.timestamp for record in records), default=-1)
    wrapper = Record(
        value=payload, timestamp=newest if log_append_time is None else log_append_time
    )
    if wrapper_offset is None:
        wrapper_offset = base_offset + (deltas[-1] if deltas else 0)
    return encode_message(wrapper, wrapper_offset, magic, attributes | codec)


def with_crc(batch: bytes | bytearray) -> bytes:
    """The same single v2 batch with its CRC made right, after a test has bent its bytes."""
    crc = crc32c.crc32c(bytes(batch[CRC_START:]))
    return bytes(batch[:17]) + struct.pack(">I", crc) + bytes(batch[CRC_START:])
