"""The log of a fake partition: what a broker derives from its batches."""

from __future__ import annotations

import pytest

from tests.fake_broker.log import AbortedTransaction, PartitionLog, batch_from_bytes
from tests.fake_broker.topology import FakePartition
from tests.fake_broker.writer import PartitionWriter
from tests.reference.batches import Record
from tests.reference.compression import Codec
from tests.reference.golden import ABORT_MARKER, EMPTIED, MESSAGE_SETS, TRANSACTION_DATA, V2


def make_partition(leader_epoch: int = 0) -> FakePartition:
    partition = FakePartition(0, 1, leader_epoch, [1], [1])
    partition.log.start_epoch(leader_epoch, 0)
    return partition


def make_log(records: int = 10, batch_records: int = 2) -> PartitionLog:
    partition = make_partition()
    values = [Record(value=b"v%d" % i, timestamp=1000 + i) for i in range(records)]
    PartitionWriter(partition).append(values, batch_records=batch_records)
    return partition.log


@pytest.mark.parametrize("codec", sorted(V2))
def test_reads_the_header_of_golden_batches(codec: str) -> None:
    batch = batch_from_bytes(V2[codec])
    assert (batch.base_offset, batch.last_offset, batch.max_timestamp) == (0, 1, 1005)
    assert (batch.producer_id, batch.leader_epoch) == (-1, -1)


def test_reads_the_header_of_a_golden_transaction() -> None:
    data, marker, emptied = map(batch_from_bytes, (TRANSACTION_DATA, ABORT_MARKER, EMPTIED))
    assert (data.base_offset, data.last_offset, data.producer_id) == (3, 4, 9)
    assert (marker.base_offset, marker.attributes) == (5, 0x30)
    assert (emptied.base_offset, emptied.last_offset) == (10, 19)


def test_old_formats_tell_their_last_offset() -> None:
    batch = batch_from_bytes(MESSAGE_SETS["v1 lz4"], base_offset=100)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (100, 101, -1)


def test_a_read_starts_with_the_batch_that_holds_the_offset() -> None:
    log = make_log()
    found = log.read(3, 1 << 20, 10, at_least_one=True)
    assert found.data == b"".join(batch.data for batch in log.batches[1:])
    assert found.next_offset == 10


def test_a_read_is_cut_in_the_middle_of_a_batch_but_not_of_the_first() -> None:
    log = make_log()
    size = log.batches[0].size
    assert len(log.read(0, size + 5, 10, at_least_one=False).data) == size + 5
    assert log.read(0, size - 1, 10, at_least_one=False).data == b""
    assert log.read(0, 1, 10, at_least_one=True).data == log.batches[0].data
    assert log.read(0, 0, 10, at_least_one=False).data == b""
    log.truncates_batches = False
    assert len(log.read(0, size + 5, 10, at_least_one=False).data) == size


def test_a_read_stops_at_the_upper_offset_and_passes_holes() -> None:
    log = make_log()
    assert log.read(0, 1 << 20, 4, at_least_one=True).next_offset == 4
    log.replace_batch(4, None)
    assert log.read(4, 1 << 20, 10, at_least_one=True).data == b"".join(
        batch.data for batch in log.batches[2:]
    )


def test_appending_behind_a_hole_and_before_the_end() -> None:
    log = make_log(2)
    log.skip_to(100)
    assert log.log_end_offset == 100
    with pytest.raises(ValueError, match="before the log end"):
        log.append(batch_from_bytes(V2["none"]))
    with pytest.raises(ValueError, match="before the log end"):
        log.skip_to(50)


def test_open_and_aborted_transactions() -> None:
    partition = make_partition()
    writer = PartitionWriter(partition)
    writer.append([b"a", b"b"], producer_id=9, is_transactional=True)
    writer.append([b"plain"])
    log = partition.log
    assert (log.last_stable_offset, log.high_watermark) == (0, 3)
    writer.end_transaction(9, committed=False)
    assert log.last_stable_offset == log.high_watermark == 4
    assert log.aborted == [AbortedTransaction(9, 0, 3)]
    writer.append([b"c"], producer_id=9, is_transactional=True)
    writer.end_transaction(9, committed=True)
    assert log.aborted == [AbortedTransaction(9, 0, 3)]
    writer.end_transaction(9, committed=False)  # an empty transaction leaves no entry
    assert log.aborted == [AbortedTransaction(9, 0, 3)]
    assert log.aborted_between(0, 7) == [AbortedTransaction(9, 0, 3)]
    assert log.aborted_between(4, 7) == []


def test_a_held_high_watermark_hides_the_tail() -> None:
    log = make_log()
    log.hold_high_watermark(4)
    assert (log.high_watermark, log.log_end_offset) == (4, 10)
    log.hold_high_watermark(None)
    assert log.high_watermark == 10


def test_epoch_end_offsets() -> None:
    log = PartitionLog(log_end_offset=50, epochs=[(2, 0), (5, 20), (7, 40)])
    assert [
        (end.leader_epoch, end.end_offset)
        for end in map(log.end_of_epoch, (-1, 1, 2, 4, 5, 6, 7, 8))
    ] == [(-1, -1), (1, 0), (2, 20), (2, 20), (5, 40), (5, 40), (7, 50), (-1, -1)]
    assert [log.epoch_at(offset) for offset in (0, 19, 20, 49)] == [2, 2, 5, 7]


def test_retention_and_truncation() -> None:
    log = make_log()
    log.epochs = [(0, 0), (1, 4), (2, 8)]
    log.delete_before(5)
    assert (log.log_start_offset, log.batches[0].base_offset) == (5, 4)
    assert log.epochs == [(1, 5), (2, 8)]
    log.truncate_to(8)
    assert (log.log_end_offset, log.batches[-1].last_offset) == (8, 7)
    assert log.epochs == [(1, 5)]


def test_offsets_by_timestamp() -> None:
    log = make_log()
    assert log.offset_for_timestamp(1003, 10) == (3, 1003)
    assert log.offset_for_timestamp(0, 10) == (0, 1000)
    assert log.offset_for_timestamp(1010, 10) is None
    assert log.offset_for_timestamp(1008, 8) is None
    assert log.offset_of_max_timestamp(10) == (9, 1009)


def test_what_compaction_leaves() -> None:
    partition = make_partition()
    writer = PartitionWriter(partition)
    writer.append([Record(value=b"a", offset_delta=0), Record(value=b"b", offset_delta=7)])
    emptied = writer.append_emptied(10)
    assert partition.log.batches[0].last_offset == 7
    assert (emptied.base_offset, emptied.last_offset) == (8, 17)
    assert emptied.size == 61
    writer.empty_batch_at(3)
    assert [batch.size for batch in partition.log.batches] == [61, 61]
    assert partition.log.batches[0].last_offset == 7


def test_damage_keeps_the_offsets_served() -> None:
    log = make_log()
    before = log.batch_at(3).data
    log.flip_bit(3, -1)
    assert log.batch_at(3).data[:-1] == before[:-1]
    assert log.batch_at(3).data != before
    assert log.read(2, 1 << 20, 4, at_least_one=True).data == log.batch_at(3).data


def test_message_sets_are_stored_by_entry_or_wrapper() -> None:
    partition = make_partition()
    writer = PartitionWriter(partition)
    writer.append_message_set([b"a", b"b"])
    writer.append_message_set([b"c", b"d"], magic=0, codec=Codec.GZIP)
    assert [(batch.base_offset, batch.last_offset) for batch in partition.log.batches] == [
        (0, 0),
        (1, 1),
        (2, 3),
    ]
