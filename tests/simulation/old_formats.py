"""Batches that `FakeCluster` does not write itself: compressed, with the broker's time, or old."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kfast.testing.batches import Record, offset_deltas
from kfast.testing.log import read_batch
from kfast.testing.topology import PartitionWriter
from tests.reference.batches import encode_message_set, encode_record_batch
from tests.reference.compression import Codec


def append_batch(
    writer: PartitionWriter,
    values: Iterable[Record | bytes | None],
    *,
    codec: Codec = Codec.NONE,
    log_append_time: int | None = None,
    last_offset_delta: int | None = None,
    producer_id: int = -1,
    is_transactional: bool = False,
) -> range:
    """Append one batch of magic 2; return its offsets."""
    records = [value if isinstance(value, Record) else Record(value=value) for value in values]
    base_offset = writer.log.log_end_offset
    data = encode_record_batch(
        records,
        base_offset,
        codec,
        leader_epoch=writer.partition.leader_epoch,
        log_append_time=log_append_time,
        last_offset_delta=last_offset_delta,
        transactional=is_transactional,
        producer_id=producer_id,
    )
    batch = writer.log.append(
        read_batch(
            data,
            offsets=[base_offset + delta for delta in offset_deltas(records)],
            timestamps=[
                record.timestamp if log_append_time is None else log_append_time
                for record in records
            ],
        )
    )
    return range(batch.base_offset, batch.last_offset + 1)


def append_message_set(
    writer: PartitionWriter, records: Sequence[Record], *, magic: int, codec: Codec
) -> None:
    """Append entries of magic 0 or 1, plain or in one compressed wrapper."""
    base_offset = writer.log.log_end_offset
    if codec != Codec.NONE:
        data = encode_message_set(records, base_offset, codec, magic=magic)
        writer.log.append(read_batch(data, base_offset=base_offset))
        return
    for number, record in enumerate(records):
        entry = encode_message_set([record], base_offset + number, magic=magic)
        writer.log.append(read_batch(entry))
