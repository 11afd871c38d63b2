"""The oracle: decodes one partition's record data slowly and in plain sight.

Written from the format, not from kfast's decoder; one record is one object. Where kfast stops at
damage, this stops at the same batch, with everything before it.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import crc32c

from tests.reference.decompression import MalformedError, Source, TooLargeError, decompress

CREATE_TIME, APPEND_TIME, NO_TIME = 0, 1, -1

_MAX_OFFSET = 2**63 - 1
_UNLIMITED = 256 << 20


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A record as a consumer sees it."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(slots=True)
class Outcome:
    """What a slice holds, up to its end or the first batch that cannot be read.

    ``fault`` is the reason for that, None when there is no such batch; ``fault_offset`` its base
    offset. ``is_too_large`` means that it only exceeded the limit on decompressed bytes.
    """

    next_offset: int
    records: list[DecodedRecord] = field(default_factory=list)
    leader_epoch: int = -1
    batches: int = 0
    fault: str | None = None
    fault_offset: int | None = None
    is_too_large: bool = False


@dataclass(frozen=True, slots=True)
class _Settings:
    check_crcs: bool
    limit: int


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedError(what)


# --- varints --------------------------------------------------------------------------------------


def _uvarint(source: Source, bits: int) -> int:
    value = shift = 0
    while True:
        byte = source.u8()
        value |= (byte & 0x7F) << shift
        _require(value < 1 << bits, "varint too wide")
        if byte < 0x80:
            return value
        shift += 7
        _require(shift < bits, "varint too long")


def varint(source: Source, bits: int = 32) -> int:
    raw = _uvarint(source, bits)
    return raw >> 1 if raw & 1 == 0 else -(raw >> 1) - 1


def _varint_bytes(source: Source, *, nullable: bool = True) -> bytes | None:
    length = varint(source)
    _require(length >= (-1 if nullable else 0), "length")
    return None if length < 0 else source.take(length)


def _wrap64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


# --- magic 2 --------------------------------------------------------------------------------------


def _record(source: Source, header: _BatchHeader) -> DecodedRecord:
    body = Source(source.take(varint(source)))
    body.u8()
    timestamp_delta = varint(body, 64)
    offset_delta = varint(body)
    key = _varint_bytes(body)
    value = _varint_bytes(body)
    count = varint(body)
    _require(0 <= count <= body.left, "header count")
    headers = tuple(
        (_varint_bytes(body, nullable=False) or b"", _varint_bytes(body)) for _ in range(count)
    )
    _require(body.left == 0, "record length")
    append_time = bool(header.attributes & 0x08)
    return DecodedRecord(
        offset=header.base_offset + offset_delta,
        timestamp=header.max_timestamp
        if append_time
        else _wrap64(header.base_timestamp + timestamp_delta),
        timestamp_type=APPEND_TIME if append_time else CREATE_TIME,
        key=key,
        value=value,
        headers=headers,
    )


@dataclass(frozen=True, slots=True)
class _BatchHeader:
    base_offset: int
    attributes: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    count: int
    leader_epoch: int

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)


def _batch_header(batch: bytes) -> _BatchHeader:
    base, _, epoch, _, _, attributes, delta, base_time, max_time, pid, _, _, count = struct.unpack(
        ">qiibIhiqqqhii", batch[:61]
    )
    _require(base >= 0 and delta >= 0 and base + delta < _MAX_OFFSET, "offsets")
    _require(count >= 0, "count")
    return _BatchHeader(base, attributes, base + delta, base_time, max_time, pid, count, epoch)


def _records(batch: bytes, header: _BatchHeader, limit: int) -> list[DecodedRecord]:
    codec = header.attributes & 7
    plain = decompress(codec, batch[61:], limit) if batch[61:] else b""
    _require(header.count <= len(plain) // 7, "count against bytes")
    source = Source(plain)
    found = [_record(source, header) for _ in range(header.count)]
    _require(source.left == 0, "bytes after the last record")
    offsets = [record.offset for record in found]
    _require(all(a < b for a, b in itertools.pairwise(offsets)), "offset order")
    _require(all(header.base_offset <= o <= header.last_offset for o in offsets), "offset range")
    return found


class _Transactions:
    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self.waiting = sorted((first, producer) for producer, first in aborted)
        self.is_idle = not self.waiting
        self.open: set[int] = set()

    def advance(self, last_offset: int) -> None:
        while self.waiting and self.waiting[0][0] <= last_offset:
            self.open.add(self.waiting.pop(0)[1])


def _decode_v2(batch: bytes, out: Outcome, txn: _Transactions, settings: _Settings) -> None:
    header = _batch_header(batch)
    if settings.check_crcs:
        (crc,) = struct.unpack(">I", batch[17:21])
        _require(crc32c.crc32c(batch[21:]) == crc, "crc")
    if header.producer_id >= 0:
        txn.advance(header.last_offset)
    is_aborted = header.is_transactional and header.producer_id in txn.open
    if header.is_control:
        _require(header.attributes & 7 <= 4, "codec")
        for record in _records(batch, header, settings.limit)[:1]:
            if not txn.is_idle:
                _require(record.key is not None and len(record.key) >= 4, "marker")
                assert record.key is not None
                if record.key[2:4] == b"\0\0":
                    txn.open.discard(header.producer_id)
    elif not is_aborted and header.last_offset >= out.next_offset:
        _require(header.attributes & 7 <= 4, "codec")
        out.records += [
            record
            for record in _records(batch, header, settings.limit)
            if record.offset >= out.next_offset
        ]
    _move(out, header.last_offset, header.leader_epoch)


# --- magic 0 and 1 --------------------------------------------------------------------------------


def _i32_bytes(source: Source) -> bytes | None:
    length = source.i32()
    _require(length >= -1, "length")
    return None if length < 0 else source.take(length)


def _message(entry: bytes) -> tuple[int, DecodedRecord]:
    """Attributes and content of one entry; the offset is as written."""
    offset, _, _, magic, attributes = struct.unpack(">qiIbb", entry[:18])
    _require(0 <= offset < _MAX_OFFSET, "offset")
    source = Source(entry)
    source.take(18)
    timestamp, timestamp_type = -1, NO_TIME
    if magic == 1:
        (timestamp,) = struct.unpack(">q", source.take(8))
        timestamp_type = APPEND_TIME if attributes & 8 else CREATE_TIME
    key, value = _i32_bytes(source), _i32_bytes(source)
    _require(source.left == 0, "message length")
    return attributes, DecodedRecord(offset, timestamp, timestamp_type, key, value)


def _inner_messages(value: bytes, magic: int) -> list[DecodedRecord]:
    found: list[DecodedRecord] = []
    source = Source(value)
    while source.left:
        head = source.take(17)
        _require(head[16] == magic, "inner magic")
        (length,) = struct.unpack(">i", head[8:12])
        _require(length >= (22 if magic == 1 else 14), "inner length")
        attributes, record = _message(head + source.take(length - 5))
        _require(attributes & 7 == 0, "nested compression")
        _require(not found or found[-1].offset < record.offset, "inner offset order")
        found.append(record)
    _require(bool(found), "empty wrapper")
    return found


def _decode_message(entry: bytes, magic: int, out: Outcome, settings: _Settings) -> None:
    attributes, wrapper = _message(entry)
    if settings.check_crcs:
        (crc,) = struct.unpack(">I", entry[12:16])
        _require(zlib.crc32(entry[16:]) == crc, "crc")
    codec = attributes & 7
    _require(codec <= 3, "codec")
    if codec == 0:
        if wrapper.offset >= out.next_offset:
            out.records.append(wrapper)
        _move(out, wrapper.offset, -1)
        return
    _require(wrapper.value is not None, "null wrapper")
    if wrapper.offset < out.next_offset and wrapper.offset != 0:
        return
    assert wrapper.value is not None
    inner = _inner_messages(decompress(codec, wrapper.value, settings.limit, magic), magic)
    last = inner[-1].offset
    _require(wrapper.offset == 0 or wrapper.offset >= last, "wrapper offset")
    base = wrapper.offset - last if magic == 1 and wrapper.offset != 0 else 0
    append_time = wrapper.timestamp_type == APPEND_TIME
    for record in inner:
        if base + record.offset >= out.next_offset:
            out.records.append(
                DecodedRecord(
                    base + record.offset,
                    wrapper.timestamp if append_time else record.timestamp,
                    wrapper.timestamp_type,
                    record.key,
                    record.value,
                )
            )
    _move(out, max(wrapper.offset, base + last), -1)


# --- a slice --------------------------------------------------------------------------------------


def _move(out: Outcome, last_offset: int, leader_epoch: int) -> None:
    if last_offset >= out.next_offset:
        out.next_offset = last_offset + 1
        out.leader_epoch = leader_epoch


def decode_slice(
    data: bytes,
    position: int = 0,
    *,
    aborted: Sequence[tuple[int, int]] = (),
    read_committed: bool = False,
    check_crcs: bool = True,
    limit: int = _UNLIMITED,
) -> Outcome:
    """Decode ``data`` from ``position`` on.

    ``aborted`` is the broker's list of (producer id, first offset).
    """
    out = Outcome(position)
    settings = _Settings(check_crcs, limit)
    txn = _Transactions(aborted if read_committed else ())
    at = 0
    while len(data) - at >= 17:
        offset, length = struct.unpack_from(">qi", data, at)
        magic = struct.unpack_from(">b", data, at + 16)[0]
        try:
            _require(0 <= magic <= 2, "magic")
            _require((14, 22, 49)[magic] <= length <= 2**31 - 1 - 12, "length")
            if at + 12 + length > len(data):
                break
            batch = data[at : at + 12 + length]
            if magic == 2:
                _decode_v2(batch, out, txn, settings)
            else:
                _decode_message(batch, magic, out, settings)
        except (MalformedError, TooLargeError) as error:
            out.fault = str(error) or "too large"
            out.fault_offset = offset
            out.is_too_large = isinstance(error, TooLargeError)
            break
        at += len(batch)
        out.batches += 1
    return out
