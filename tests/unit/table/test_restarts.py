"""Q-02: a partition whose topic was created anew begins anew in the table."""

from __future__ import annotations

import pytest

from kfast.errors import KafkaError
from kfast.table.batches import DataFile, PartitionRestart, ReadRange
from kfast.table.entries import Entry, TableShape, Writer, decode_entry, encode_entry
from kfast.types import TopicPartition

T0 = TopicPartition("t", 0)


def file(start: int, until: int, partition: int = 0) -> ReadRange:
    """A range with its file."""
    path = f"t-{partition}-{start}-{until}.parquet"
    return ReadRange(
        "t", partition, start, until, (DataFile(f"staged-{path}", path, rows=until - start),)
    )


def anew(end: int, begin: int) -> PartitionRestart:
    """A partition that begins anew."""
    return PartitionRestart("t", 0, end, begin)


def test_the_offsets_of_the_new_topic_are_not_those_that_the_table_has() -> None:
    """Q-02: files of both have different names, also after another restart."""
    entry = Entry(0, Writer("w", "/c", 0), TableShape())
    entry = entry.next(0, [file(0, 10), file(0, 7, partition=1)])
    with pytest.raises(KafkaError, match="the table has offsets of t-0 up to 9"):
        entry.next(1, [file(0, 10)])
    names = [entry.files[0].path]
    for count in (1, 2):
        entry = entry.next(entry.sequence, [anew(10, 0)])
        assert entry.ends == {T0: 0, TopicPartition("t", 1): 7}
        assert entry.files == []
        assert entry.restarted == [T0]
        entry = entry.next(entry.sequence, [file(0, 10)])
        assert entry.ends[T0] == 10
        assert entry.restarts == {T0: count}
        names.append(entry.files[0].path)
        entry = decode_entry(encode_entry(entry), "x")
    assert names == ["t-0-0-10.parquet", "t-0-0-10-r1.parquet", "t-0-0-10-r2.parquet"]
    assert entry.next(9, [file(7, 9, partition=1)]).files[0].path == "t-1-7-9.parquet"
    assert entry.rows == 37
