"""PartitionWriter: appends records and transaction markers to a partition.

Used under the cluster's lock, through ``FakeCluster.append`` and ``FakeCluster.writing``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kfast.testing.batches import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    Record,
    encode_marker,
    encode_record_batch,
    offset_deltas,
)
from kfast.testing.log import StoredBatch, read_batch
from kfast.testing.topology import FakePartition

Value: TypeAlias = Record | bytes | None
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
        batch_records: int | None = None,
        producer_id: int = -1,
        is_transactional: bool = False,
    ) -> list[StoredBatch]:
        """Append records, in one batch or in batches of ``batch_records``.

        Parameters
        ----------
        values : iterable of Record, bytes or None
            Bytes and None are the values of records without a key.
        batch_records : int, optional
            Most records of one batch.
        producer_id : int
            Of an idempotent or transactional producer.
        is_transactional : bool
            Whether the records belong to a transaction, which ``end_transaction`` ends.
        """
        records = [value if isinstance(value, Record) else Record(value=value) for value in values]
        size = batch_records or max(len(records), 1)
        return [
            self._append_batch(records[start : start + size], producer_id, is_transactional)
            for start in range(0, len(records), size)
        ]

    def _append_batch(
        self, records: Sequence[Record], producer_id: int, is_transactional: bool
    ) -> StoredBatch:
        base_offset = self.log.log_end_offset
        data = encode_record_batch(
            records,
            base_offset,
            leader_epoch=self.partition.leader_epoch,
            attributes=TRANSACTIONAL if is_transactional else 0,
            producer_id=producer_id,
        )
        return self.log.append(
            read_batch(
                data,
                offsets=[base_offset + delta for delta in offset_deltas(records)],
                timestamps=[record.timestamp for record in records],
            )
        )

    def append_emptied(self, offsets: int, *, producer_id: int = -1) -> StoredBatch:
        """Append a batch that covers offsets but holds no record, as compaction leaves behind."""
        data = encode_record_batch(
            (),
            self.log.log_end_offset,
            leader_epoch=self.partition.leader_epoch,
            producer_id=producer_id,
            last_offset_delta=offsets - 1,
        )
        return self.log.append(read_batch(data))

    def end_transaction(self, producer_id: int, *, committed: bool) -> StoredBatch:
        """Append the marker that ends a producer's transaction, whether or not one is open."""
        data = encode_marker(
            self.log.log_end_offset,
            producer_id,
            COMMIT if committed else ABORT,
            leader_epoch=self.partition.leader_epoch,
        )
        marker = read_batch(data)
        self.log.finish_transaction(marker, committed=committed)
        return marker

    def __repr__(self) -> str:
        return f"<PartitionWriter {self.log!r}>"
