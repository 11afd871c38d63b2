"""Puts records into a partition, the way producers, coordinators and the cleaner do.

Owns the encoding of what is appended (with the reference encoders) and the offsets it gets. Used
under the cluster's lock, through ``FakeCluster.append`` and ``FakeCluster.writing``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.fake_broker.log import StoredBatch, batch_from_bytes
from tests.fake_broker.topology import FakePartition
from tests.reference.batches import (
    ABORT,
    COMMIT,
    Record,
    encode_control_batch,
    encode_message_set,
    encode_record_batch,
)
from tests.reference.compression import Codec

Value = Record | bytes | None
"""A record, or just its value."""


class PartitionWriter:
    """Appends to one partition in its current leader epoch."""

    def __init__(self, partition: FakePartition) -> None:
        self.partition = partition
        self.log = partition.log

    def append(
        self,
        values: Iterable[Value],
        *,
        codec: Codec = Codec.NONE,
        batch_records: int | None = None,
        log_append_time: int | None = None,
        producer_id: int = -1,
        is_transactional: bool = False,
        last_offset_delta: int | None = None,
    ) -> list[StoredBatch]:
        """Append records, in one batch or in batches of ``batch_records``.

        Without records nothing is appended, unless ``last_offset_delta`` asks for an emptied batch.
        """
        records = [value if isinstance(value, Record) else Record(value=value) for value in values]
        if not records and last_offset_delta is None:
            return []
        size = batch_records or max(len(records), 1)
        return [
            self._append_batch(
                records[start : start + size],
                codec,
                log_append_time,
                producer_id,
                is_transactional,
                last_offset_delta,
            )
            for start in range(0, max(len(records), 1), size)
        ]

    def _append_batch(
        self,
        records: Sequence[Record],
        codec: Codec,
        log_append_time: int | None,
        producer_id: int,
        is_transactional: bool,
        last_offset_delta: int | None,
    ) -> StoredBatch:
        base = self.log.log_end_offset
        data = encode_record_batch(
            records,
            base,
            codec,
            leader_epoch=self.partition.leader_epoch,
            log_append_time=log_append_time,
            transactional=is_transactional,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else 0,
            last_offset_delta=last_offset_delta,
        )
        return self.append_encoded(data, timestamps=_timestamps(records, base, log_append_time))

    def append_encoded(
        self,
        data: bytes,
        *,
        base_offset: int | None = None,
        timestamps: Sequence[tuple[int, int]] = (),
    ) -> StoredBatch:
        """Append one batch or one compressed wrapper as it is; its offsets must fit."""
        return self.log.append(
            batch_from_bytes(data, base_offset=base_offset, timestamps=timestamps)
        )

    def append_emptied(self, offsets: int, *, producer_id: int = -1) -> StoredBatch:
        """Append a batch that covers offsets but holds no record, as compaction leaves behind."""
        return self.append((), last_offset_delta=offsets - 1, producer_id=producer_id)[0]

    def append_message_set(
        self, values: Iterable[Value], *, magic: int = 1, codec: Codec = Codec.NONE
    ) -> None:
        """Append entries of the old formats, plain or in one compressed wrapper."""
        base = self.log.log_end_offset
        records = [value if isinstance(value, Record) else Record(value=value) for value in values]
        stamps = _timestamps(records, base, None)
        if codec != Codec.NONE:
            data = encode_message_set(records, base, codec, magic=magic)
            self.append_encoded(data, base_offset=base, timestamps=stamps)
            return
        for record, stamp in zip(records, stamps, strict=True):
            entry = encode_message_set([record], stamp[0], magic=magic)
            self.append_encoded(entry, timestamps=[stamp])

    def end_transaction(self, producer_id: int, *, committed: bool) -> StoredBatch:
        """Append the end marker of a producer's transaction, be there one open or not."""
        marker = batch_from_bytes(
            encode_control_batch(
                self.log.log_end_offset,
                producer_id,
                COMMIT if committed else ABORT,
                leader_epoch=self.partition.leader_epoch,
            )
        )
        self.log.finish_transaction(marker, committed=committed)
        return marker

    def empty_batch_at(self, offset: int) -> None:
        """Replace the batch holding an offset by an emptied one that covers the same offsets."""
        old = self.log.batch_at(offset)
        self.log.replace_batch(
            offset,
            encode_record_batch(
                (),
                old.base_offset,
                leader_epoch=old.leader_epoch,
                producer_id=old.producer_id,
                last_offset_delta=old.last_offset - old.base_offset,
            ),
        )


def _timestamps(
    records: Sequence[Record], base_offset: int, log_append_time: int | None
) -> list[tuple[int, int]]:
    stamps = []
    delta = -1
    for record in records:
        delta = delta + 1 if record.offset_delta is None else record.offset_delta
        stamp = record.timestamp if log_append_time is None else log_append_time
        stamps.append((base_offset + delta, stamp))
    return stamps
