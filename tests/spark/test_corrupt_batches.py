"""Batches that cannot be decoded, in ranges of tasks: an error, or left out and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kfast.errors import CorruptRecordError, UnsupportedCompressionTypeError
from kfast.protocol.api_keys import ApiKey
from kfast.spark.source.consumer_cache import ConsumerCache
from kfast.spark.source.range_reader import RangeReader, ReadSettings
from kfast.table.offset_ranges import OffsetRange
from kfast.table.read_counts import ReadCounts, SkippedBatch
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.end_to_end.damaged_topics import (
    flip_last_bit,
    set_codec,
    set_last_offset_delta,
    set_magic,
    set_record_count,
    set_record_length,
)
from tests.end_to_end.virtual import make_cluster
from tests.reference.batches import with_crc
from tests.simulation.partition_faults import EditRecords, damage_batch

Change = Callable[[bytearray], object]


@pytest.fixture
def cache() -> Iterator[ConsumerCache]:
    """A cache of its own, closed at the end."""
    made = ConsumerCache()
    yield made
    made.close()


def damaged(change: Change, *, keeps_crc: bool, offset: int = 12) -> FakeCluster:
    """Return a cluster whose t-0 has 30 records in batches of 5, one of them changed."""
    cluster = make_cluster(nodes=1, records=30)
    log = cluster.log("t", 0)
    batch = bytearray(log.batch_at(offset).data)
    change(batch)
    log.replace_batch(offset, bytes(batch) if keeps_crc else with_crc(batch))
    return cluster


def read(
    cluster: FakeCluster,
    cache: ConsumerCache,
    start: int = 0,
    until: int = 30,
    skip: bool = True,
    size: str = "1048576",
) -> tuple[list[int], ReadCounts]:
    """Return the offsets of a range, and what was counted."""
    with BrokerServer(cluster) as server:
        kafka = {"bootstrap.servers": server.bootstrap_servers, "max.partition.fetch.bytes": size}
        reader = RangeReader(ReadSettings(kafka, skip_corrupt_batches=skip), cache=cache)
        batches = list(reader.read(OffsetRange("t", 0, start, until)))
        return [offset for batch in batches for offset in batch.offsets.tolist()], reader.counts


DAMAGES = {
    "checksum": (flip_last_bit, True),
    "record count": (set_record_count, False),
    "last offset delta": (set_last_offset_delta, False),
    "record length": (set_record_length, False),
    "magic": (set_magic, True),
}


@pytest.mark.parametrize(("change", "keeps_crc"), DAMAGES.values(), ids=DAMAGES)
def test_a_corrupt_batch_is_left_out_and_recorded(
    cache: ConsumerCache, change: Change, keeps_crc: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Q-03: all others are read; topic, partition, base and last offset are known."""
    cluster = damaged(change, keeps_crc=keeps_crc)
    offsets, counts = read(cluster, cache)
    assert offsets == [*range(10), *range(15, 30)]
    assert counts.skipped_batches == (SkippedBatch("t", 0, 10, 14),)
    assert counts.rows == 25
    assert counts.lost_offsets == 0
    assert "skipped a corrupt batch: t-0 offsets 10 to 14" in caplog.text


def test_a_corrupt_batch_is_an_error_unless_it_may_be_skipped(cache: ConsumerCache) -> None:
    """Q-03: the hint names the option, not a method of a consumer."""
    cluster = damaged(flip_last_bit, keeps_crc=True)
    with pytest.raises(CorruptRecordError) as raised:
        read(cluster, cache, skip=False)
    assert raised.value.offset == 10
    assert "skipCorruptBatches=true" in str(raised.value.hint)
    assert "seek" not in str(raised.value)


def test_a_corrupt_batch_at_the_end_and_one_shared_by_two_tasks(cache: ConsumerCache) -> None:
    """Q-03: ranges that begin or end inside of it skip their part; it counts once."""
    cluster = damaged(flip_last_bit, keeps_crc=True, offset=27)
    offsets, counts = read(cluster, cache, until=28)
    assert offsets == list(range(25))
    offsets, more = read(cluster, cache, start=28)
    assert offsets == []
    counts.add(more)
    assert counts.skipped_batches == (SkippedBatch("t", 0, 25, 29),)


def test_a_batch_that_was_damaged_on_its_way_is_read(cache: ConsumerCache) -> None:
    """Q-03: it is fetched again before it is given up."""
    cluster = make_cluster(nodes=1, records=30)
    cluster.faults.add(EditRecords(damage_batch(2)), api=ApiKey.FETCH, nth=1)
    offsets, counts = read(cluster, cache)
    assert offsets == list(range(30))
    assert counts.is_complete


def test_what_a_newer_package_can_read_is_not_skipped(cache: ConsumerCache) -> None:
    """Q-03: an unknown codec is not corruption."""
    with pytest.raises(UnsupportedCompressionTypeError):
        read(damaged(set_codec, keeps_crc=False), cache)


def longer(batch: bytearray) -> None:
    """Let the header claim offsets of the two batches behind it."""
    batch[23:27] = (14).to_bytes(4, "big")


@pytest.mark.parametrize(("offset", "end"), [(12, 15), (22, 25), (27, 30)])
@pytest.mark.parametrize("size", ["1", "1048576"], ids=["one batch a response", "all"])
def test_a_header_that_claims_the_batches_behind_hides_none(
    cache: ConsumerCache, offset: int, end: int, size: str
) -> None:
    """Q-03: what follows in the log bounds it, though a response ends with it; or the log's end."""
    cluster = damaged(longer, keeps_crc=True, offset=offset)
    offsets, counts = read(cluster, cache, size=size)
    assert offsets == [*range(end - 5), *range(end, 30)]
    assert counts.skipped_batches == (SkippedBatch("t", 0, end - 5, end - 1),)


def test_corrupt_batches_in_a_row_hide_none_behind_them(cache: ConsumerCache) -> None:
    """Q-03: a damaged header bounds nothing, and is not the log's end."""
    cluster = damaged(longer, keeps_crc=True, offset=12)
    log = cluster.log("t", 0)
    for offset, change in ((17, set_magic), (22, longer)):
        batch = bytearray(log.batch_at(offset).data)
        change(batch)
        log.replace_batch(offset, bytes(batch))
    with pytest.raises(CorruptRecordError, match="where it ends is not known"):
        read(cluster, cache)
    cluster = damaged(longer, keeps_crc=True, offset=12)
    log = cluster.log("t", 0)
    batch = bytearray(log.batch_at(17).data)
    longer(batch)
    log.replace_batch(17, bytes(batch))
    offsets, counts = read(cluster, cache)
    assert offsets == [*range(10), *range(20, 30)]
    assert [each.base_offset for each in counts.skipped_batches] == [10, 15]


def test_a_batch_whose_end_is_not_known_is_not_skipped(cache: ConsumerCache) -> None:
    """Q-03: a corrupt length says nothing of what is behind it."""

    def set_length(batch: bytearray) -> None:
        batch[8:12] = (7).to_bytes(4, "big")

    with pytest.raises(CorruptRecordError, match="restore the batch from a replica") as raised:
        read(damaged(set_length, keeps_crc=True), cache)
    assert raised.value.offset == 10


def test_counts_of_tasks_are_added() -> None:
    first = ReadCounts(rows=5, lost_offsets=2)
    first.skip(SkippedBatch("t", 0, 10, 11))
    second = ReadCounts(rows=1, bad_records=3)
    second.skip(SkippedBatch("t", 0, 10, 14))
    second.skip(SkippedBatch("t", 1, 0, 4))
    first.add(second)
    assert str(first) == "6 records, 2 lost offsets, 2 skipped batches, 3 malformed records"
    assert [batch.last_offset for batch in first.skipped_batches] == [14, 4]
    assert not first.is_complete
