"""J-01, J-02: lines and warnings about an ingest, over manifests and a clock that is set."""

from __future__ import annotations

import logging

import pytest

from kfast.table.ingest_lines import IngestLines
from kfast.table.ingest_warnings import IngestWarnings
from kfast.table.ingest_watcher import IngestStart
from kfast.table.manifest import DataFile, Entry, TableShape, Writer
from kfast.types import TopicPartition
from tests.fake_clock import FakeClock

URL = "/data/t"
BEGINS = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 0}
START = IngestStart(URL, "t", BEGINS, 0, 0)


def file(partition: int, first: int, until: int, **more: int | str) -> DataFile:
    """Return a file of one partition with a row for each offset, of a megabyte."""
    return DataFile(
        "staged", "path", "t", partition, first, until, until - first, 1_000_000, **more  # type: ignore[arg-type]
    )  # fmt: skip


def entry(*files: DataFile) -> Entry:
    """Return the manifest of a batch."""
    return Entry(1, Writer("w", "c", 0), TableShape(), 0, files, BEGINS)


def letters(partition: int, first: int, until: int, rows: int) -> DataFile:
    return DataFile("", "", "t", partition, first, until, rows, folder="topic:bad")


class Lines:
    """The lines that were written."""

    def __init__(self, clock: FakeClock, **more: bool) -> None:
        self.written: list[str] = []
        self.watcher = IngestLines(self.written.append, clock, **more)

    def new(self) -> list[str]:
        """Return those since the last call."""
        new, self.written[:] = [*self.written], []
        return new


def test_lines_of_a_service() -> None:
    """J-01: at the start, once a minute whether anything comes or not, and at the end."""
    clock = FakeClock()
    lines = Lines(clock)
    lines.watcher.begin(IngestStart(URL, "t, u*", BEGINS, 1_234, 5_000))
    assert lines.new() == [
        "/data/t: ingest of t, u* begins, 2 partitions from t 0:10 1:0, 1,234 offsets to read; "
        "the table has 5,000 rows"
    ]
    lines.watcher.add(entry(file(0, 10, 1_210, bad_records=3), letters(0, 10, 1_210, 2)))
    clock.advance(59_999)
    lines.watcher.tick(lambda: pytest.fail("a lag that no line shows"))
    assert lines.new() == []
    clock.advance(1)
    lines.watcher.tick(lambda: 34)
    lines.watcher.tick(lambda: 34)
    assert lines.new() == [
        "/data/t: 1,200 rows, 1.0 MB in 60 s, lag 34, 1,200 rows since the start, 0 lost offsets, "
        "3 malformed records, 0 skipped batches, 2 dead letters"
    ]
    clock.advance(60_000)
    lines.watcher.tick(lambda: None)
    assert lines.new() == [
        "/data/t: 0 rows, 0.0 MB in 60 s, lag unknown, 1,200 rows since the start, 0 lost offsets, "
        "3 malformed records, 0 skipped batches, 2 dead letters"
    ]
    lines.watcher.add(entry(file(1, 0, 5, lost_offsets=7, skipped_batches="1-2 4-4")))
    lines.watcher.close(is_complete=True)
    assert lines.new() == [
        "/data/t: 1,205 rows, 2.0 MB, 2 files, 2 partitions, 7 lost offsets, 3 malformed records, "
        "2 skipped batches, 2 dead letters, 120.0 s"
    ]


def test_the_summary_after_an_error() -> None:
    """J-01: of what was published before it; none of an ingest that has not begun."""
    clock = FakeClock()
    for more, expected in (({}, 3), ({"is_log": False}, 1), ({"has_summary": False}, 3)):
        lines = Lines(clock, **more)
        lines.watcher.begin(START)
        lines.watcher.add(entry(file(0, 10, 20)))
        clock.advance(60_000)
        lines.watcher.tick(lambda: 0)
        lines.watcher.close(is_complete=False)
        written = lines.new()
        assert len(written) == expected
        assert written[-1] == (
            "/data/t: 10 rows, 1.0 MB, 1 files, 2 partitions, 60.0 s; then it failed, and the next "
            "run goes on there"
        )
    lines = Lines(clock)
    lines.watcher.close(is_complete=False)
    assert lines.new() == []


def test_a_kind_of_loss_is_a_warning_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """J-02: at its first time, then with the count since; each kind has its own minute."""
    clock = FakeClock()
    watcher = IngestWarnings(clock)
    watcher.begin(START)

    def new() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        assert all(record.levelno == logging.WARNING for record in caplog.records)
        caplog.clear()
        return found

    bad = "malformed keys and values: they are null, or their records left out"
    watcher.add(entry(file(0, 10, 20), file(1, 0, 5)))
    assert new() == []
    watcher.add(entry(file(0, 20, 30, bad_records=3), file(1, 5, 9, bad_records=1)))
    assert new() == [f"/data/t: 4 {bad} (t-0 offsets 20 to 29 and 1 more ranges)"]
    clock.advance(30_000)
    watcher.add(entry(file(0, 30, 40, bad_records=5), letters(0, 30, 40, 5)))
    assert new() == ["/data/t: 5 dead letters (t-0 offsets 30 to 39, to topic:bad)"]
    clock.advance(29_999)
    watcher.tick(lambda: 0)
    assert new() == []
    clock.advance(1)
    watcher.tick(lambda: 0)
    assert new() == [f"/data/t: 5 {bad} (t-0 offsets 30 to 39) in 60 s"]
    watcher.add(entry(file(0, 40, 50, lost_offsets=6, skipped_batches="41-42 44-44")))
    watcher.add(entry(file(0, 50, 60, lost_offsets=1, bad_records=2)))
    assert new() == [
        "/data/t: 6 offsets lost: retention had removed them before they were read "
        "(t-0 offsets 40 to 49)",
        "/data/t: 2 corrupt record batches left out (t-0 offsets 40 to 49)",
    ]
    clock.advance(1_000)
    watcher.close(is_complete=True)
    assert new() == [
        "/data/t: 1 offsets lost: retention had removed them before they were read "
        "(t-0 offsets 50 to 59) in 1 s",
        f"/data/t: 2 {bad} (t-0 offsets 50 to 59) in 1 s",
    ]
    watcher.close(is_complete=True)
    assert new() == []


def test_tasks_that_share_a_corrupt_batch_count_it_once(caplog: pytest.LogCaptureFixture) -> None:
    """J-02"""
    watcher = IngestWarnings(FakeClock())
    watcher.begin(START)
    files = [file(0, *bounds, skipped_batches="5-12") for bounds in ((0, 9), (9, 20))]
    watcher.add(entry(*files))
    assert [record.getMessage() for record in caplog.records] == [
        "/data/t: 1 corrupt record batches left out (t-0 offsets 0 to 8)"
    ]
