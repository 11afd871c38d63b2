"""PartitionLog: the record batches of one partition, and its offsets.

Owns the bytes that a Fetch returns, the high watermark, the last stable offset, the index of
aborted transactions, the log start and the leader epochs. It encodes no records: whole batches
(magic 2) or entries of message sets (magic 0 and 1) are appended, and their headers are read.

Offsets: ``log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset``; the end is
the offset of the next record.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kfast.testing.batches import CONTROL, TRANSACTIONAL

UNDEFINED: Final = -1

_MAGIC_POSITION: Final = 16
_HEADER_V2: Final = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One batch in the log.

    Attributes
    ----------
    header, records : bytes
        The encoded batch. Batches of the same records may share them; of a batch that is not
        taken apart ``header`` is all.
    base_offset, last_offset : int
        Offsets the batch covers, gaps included.
    leader_epoch : int
        Epoch of the leader that wrote it, -1 for magic 0 and 1.
    producer_id, attributes : int
        As in the batch header; -1 and 0 for magic 0 and 1.
    max_timestamp : int
        As in the batch header.
    offsets, timestamps : sequence of int
        Of each record, for look-ups by time; without them the batch's maximum timestamp counts.
    """

    header: bytes
    records: bytes
    base_offset: int
    last_offset: int
    leader_epoch: int = UNDEFINED
    producer_id: int = UNDEFINED
    attributes: int = 0
    max_timestamp: int = UNDEFINED
    offsets: Sequence[int] = ()
    timestamps: Sequence[int] = ()

    @property
    def data(self) -> bytes:
        """The encoded batch."""
        return self.header + self.records

    @property
    def size(self) -> int:
        """Length of the encoded batch."""
        return len(self.header) + len(self.records)

    def __repr__(self) -> str:
        return f"<StoredBatch {self.base_offset}-{self.last_offset} {self.size} bytes>"


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One entry of the aborted transaction index; ``last_offset`` is its marker's offset."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """Answer to "where did this epoch end?" (KIP-101, KIP-279); -1 means undefined."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Bytes of one read, whose last batch may be cut, and the offset after them."""

    data: bytes
    next_offset: int


def read_batch(
    header: bytes,
    records: bytes = b"",
    *,
    base_offset: int | None = None,
    offsets: Sequence[int] = (),
    timestamps: Sequence[int] = (),
) -> StoredBatch:
    """One encoded batch, or one entry of a message set, with the fields of its header.

    Parameters
    ----------
    header, records : bytes
        The batch, in one or in two pieces.
    base_offset : int, optional
        First offset of a compressed wrapper of magic 0 or 1, whose header has only the last one.
    offsets, timestamps : sequence of int
        Of its records, for look-ups by time.
    """
    if header[_MAGIC_POSITION] < 2:
        last = int.from_bytes(header[:8], "big", signed=True)
        return StoredBatch(
            header,
            records,
            last if base_offset is None else base_offset,
            last,
            max_timestamp=max(timestamps, default=UNDEFINED),
            offsets=offsets,
            timestamps=timestamps,
        )
    base, _, epoch, _, _, attributes, delta, _, max_timestamp, producer_id, _, _, _ = (
        _HEADER_V2.unpack_from(header)
    )
    return StoredBatch(
        header,
        records,
        base,
        base + delta,
        epoch,
        producer_id,
        attributes,
        max_timestamp,
        offsets,
        timestamps,
    )


@dataclass(slots=True)
class PartitionLog:
    """The log of one partition; changed by tests, read by the Fetch and offset handlers."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    batches: list[StoredBatch] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    open_transactions: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    @property
    def high_watermark(self) -> int:
        """The log end: every record is replicated at once."""
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """First offset of the earliest open transaction, at most the high watermark."""
        return min([self.high_watermark, *self.open_transactions.values()])

    def limit(self, *, read_committed: bool) -> int:
        """The offset a consumer reads up to, exclusive."""
        return self.last_stable_offset if read_committed else self.high_watermark

    # -- writing ---------------------------------------------------------------------------

    def append(self, batch: StoredBatch) -> StoredBatch:
        """Append one batch. Its offsets may leave a gap, as compaction does."""
        if batch.base_offset < self.log_end_offset:
            raise ValueError(f"{batch!r} starts before the log end {self.log_end_offset}")
        if batch.leader_epoch >= 0:
            self.start_epoch(batch.leader_epoch, batch.base_offset)
        self.batches.append(batch)
        self.log_end_offset = batch.last_offset + 1
        if batch.attributes & TRANSACTIONAL and not batch.attributes & CONTROL:
            self.open_transactions.setdefault(batch.producer_id, batch.base_offset)
        return batch

    def finish_transaction(self, marker: StoredBatch, *, committed: bool) -> None:
        """Append a marker, which ends the open transaction of its producer."""
        first_offset = self.open_transactions.pop(marker.producer_id, None)
        self.append(marker)
        if first_offset is not None and not committed:
            self.aborted.append(
                AbortedTransaction(marker.producer_id, first_offset, marker.last_offset)
            )

    def skip_to(self, offset: int) -> None:
        """Move the log end, leaving a gap as if all before it was compacted away."""
        if offset < self.log_end_offset:
            raise ValueError(f"offset {offset} is before the log end {self.log_end_offset}")
        self.log_end_offset = offset

    def start_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Begin a leader epoch, unless it or a later one has begun."""
        if not self.epochs or leader_epoch > self.epochs[-1][0]:
            self.epochs.append((leader_epoch, start_offset))

    def delete_before(self, offset: int) -> None:
        """Move the log start, as retention or DeleteRecords does."""
        self.log_start_offset = offset
        self.log_end_offset = max(self.log_end_offset, offset)
        self.batches = [batch for batch in self.batches if batch.last_offset >= offset]
        kept = [max(start, offset) for _, start in self.epochs]
        ends = [*kept[1:], self.log_end_offset + 1]
        self.epochs = [
            (epoch, start)
            for (epoch, _), start, end in zip(self.epochs, kept, ends, strict=True)
            if end > offset
        ]
        self.aborted = [entry for entry in self.aborted if entry.last_offset >= offset]

    def truncate_to(self, offset: int) -> None:
        """Drop everything from an offset on, as an unclean leader election does."""
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.log_end_offset = offset
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]
        self.aborted = [entry for entry in self.aborted if entry.last_offset < offset]
        self.open_transactions = {
            producer: first for producer, first in self.open_transactions.items() if first < offset
        }

    def replace_batch(self, offset: int, data: bytes | None) -> StoredBatch:
        """Swap the bytes of the batch holding an offset; None removes the batch (compaction).

        Header fields already read stay as they were, so that damaged bytes are still served for
        the offsets they stand for. Returns the old batch.
        """
        index = self._index_of(offset)
        old = self.batches[index]
        if not old.base_offset <= offset <= old.last_offset:
            raise KeyError(f"no batch holds offset {offset}")
        if data is None:
            del self.batches[index]
        else:
            self.batches[index] = replace(old, header=data, records=b"")
        return old

    def flip_bit(self, offset: int, position: int, bit: int = 0) -> None:
        """Damage one byte of the batch holding an offset; negative positions count from its end."""
        data = bytearray(self.batch_at(offset).data)
        data[position] ^= 1 << bit
        self.replace_batch(offset, bytes(data))

    # -- reading ---------------------------------------------------------------------------

    def batch_at(self, offset: int) -> StoredBatch:
        """Return the batch holding an offset, or the next one when there is a hole."""
        return self.batches[self._index_of(offset)]

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, *, at_least_one: bool
    ) -> LogSlice:
        """Return bytes from the batch holding ``offset`` on (KIP-74).

        Parameters
        ----------
        max_bytes : int
            Limit; with ``at_least_one`` the first batch comes whole however large.
        upper_offset : int
            Only batches that start below it are served.
        """
        index = self._first_index(offset)
        pieces: list[bytes] = []
        next_offset = offset
        size = 0
        limit = max_bytes
        while index < len(self.batches) and (not pieces or size < limit):
            batch = self.batches[index]
            if batch.base_offset >= upper_offset:
                break
            if not pieces:
                if at_least_one:
                    limit = max(max_bytes, batch.size)
                if limit < batch.size:
                    break
            pieces += (batch.header, batch.records)
            size += batch.size
            next_offset = batch.last_offset + 1
            index += 1
        return LogSlice(b"".join(pieces)[: max(limit, 0)], next_offset)

    def readable_bytes(self, offset: int, max_bytes: int, upper_offset: int) -> int:
        """Return the size of a read of up to ``max_bytes``, as fetch.min.bytes counts it."""
        size = 0
        for index in range(self._first_index(offset), len(self.batches)):
            batch = self.batches[index]
            if batch.base_offset >= upper_offset or size >= max_bytes:
                break
            size += batch.size
        return min(size, max_bytes)

    def aborted_between(self, offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap a range, in the order of the index."""
        return [
            entry
            for entry in self.aborted
            if entry.last_offset >= offset and entry.first_offset < upper_offset
        ]

    def epoch_at(self, offset: int) -> int:
        """The leader epoch an offset was written in, -1 if there is none."""
        return next((epoch for epoch, start in reversed(self.epochs) if start <= offset), UNDEFINED)

    def latest_epoch(self) -> int:
        """The leader epoch of the last records, -1 if there is none."""
        return self.epochs[-1][0] if self.epochs else UNDEFINED

    def end_of_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Return where an epoch ended, as OffsetForLeaderEpoch answers it (KIP-279)."""
        if leader_epoch < 0 or not self.epochs or leader_epoch > self.epochs[-1][0]:
            return EpochEndOffset(UNDEFINED, UNDEFINED)
        if leader_epoch == self.epochs[-1][0]:
            return EpochEndOffset(leader_epoch, self.log_end_offset)
        floor = [epoch for epoch, _ in self.epochs if epoch <= leader_epoch]
        next_start = next(start for epoch, start in self.epochs if epoch > leader_epoch)
        return EpochEndOffset(floor[-1] if floor else leader_epoch, next_start)

    def offset_for_timestamp(self, timestamp: int, upper_offset: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is not older than a time."""
        for batch in self.batches:
            if batch.attributes & CONTROL or batch.max_timestamp < timestamp:
                continue
            for offset, record_timestamp in zip(
                batch.offsets or (batch.base_offset,),
                batch.timestamps or (batch.max_timestamp,),
                strict=True,
            ):
                if record_timestamp >= timestamp and self.log_start_offset <= offset < upper_offset:
                    return offset, record_timestamp
        return None

    def offset_of_max_timestamp(self, upper_offset: int) -> tuple[int, int] | None:
        """Offset and timestamp of the newest record (KIP-734)."""
        newest: tuple[int, int] | None = None
        for batch in self.batches:
            if newest is not None and batch.max_timestamp <= newest[1]:
                continue
            for offset, timestamp in zip(batch.offsets, batch.timestamps, strict=True):
                if offset < upper_offset and (newest is None or timestamp > newest[1]):
                    newest = (offset, timestamp)
        return newest

    def _first_index(self, offset: int) -> int:
        return bisect_left(self.batches, offset, key=lambda batch: batch.last_offset)

    def _index_of(self, offset: int) -> int:
        index = self._first_index(offset)
        if index == len(self.batches):
            raise KeyError(f"no batch at or after offset {offset}")
        return index

    def __repr__(self) -> str:
        return (
            f"<PartitionLog {self.log_start_offset}..{self.last_stable_offset}"
            f"..{self.high_watermark}..{self.log_end_offset} {len(self.batches)} batches>"
        )
