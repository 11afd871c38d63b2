"""J-01, J-02: lines and warnings about an ingest, over manifests and a clock that is set."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kfast.cli.ingest_report import IngestLines
from kfast.table.batches import DataFile, ReadRange, count_batch
from kfast.table.entries import Entry, TableShape, Writer
from kfast.table.ingest_warnings import IngestWarnings
from kfast.table.ingest_watcher import IngestStart
from kfast.types import TopicPartition
from tests.document_examples import blocks, sections
from tests.fake_clock import FakeClock

URL = "/data/orders"
BEGINS = {TopicPartition("orders", 0): 50, TopicPartition("orders", 1): 30}
START = IngestStart(URL, "orders", BEGINS, 0, 0)


def file(partition: int, first: int, until: int, **more: Any) -> ReadRange:
    """A range with one file, which has a row for each offset and a megabyte."""
    written = DataFile("staged", "path", until - first, 1_000_000)
    return ReadRange("orders", partition, first, until, (written,), **more)


def entry(*parts: ReadRange) -> Entry:
    """The entry of a batch."""
    writer, counts = Writer("w", "c", 0), count_batch(parts)
    return Entry(1, writer, TableShape(), 0, parts, BEGINS, counts=counts)


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
    lines.watcher.begin(IngestStart(URL, "orders", BEGINS, 12, 80))
    begin = lines.new()
    lines.watcher.add(entry(file(0, 50, 1_250, bad_records=3, produced_letters=2)))
    clock.advance(59_999)
    lines.watcher.tick(lambda: pytest.fail("a lag that no line shows"))
    assert lines.new() == []
    clock.advance(1)
    lines.watcher.tick(lambda: 34)
    lines.watcher.tick(lambda: 34)
    minute = lines.new()
    clock.advance(60_000)
    lines.watcher.tick(lambda: None)
    assert lines.new() == [
        f"{URL}: 0 rows, 0.0 MB in 60 s, lag unknown, 1,200 rows since the start, 0 lost offsets, "
        "3 malformed records, 0 skipped batches, 2 dead letters, 0 fields without a column"
    ]
    lines.watcher.add(entry(file(1, 30, 35, lost_offsets=7)))
    lines.watcher.close(is_complete=True)
    shown = dict(blocks(sections("docs/ingest.md")["As a service"]))["text"]
    assert [*begin, *minute, *lines.new()] == shown.splitlines()


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
            f"{URL}: 10 rows, 1.0 MB, 1 files, 2 partitions, 60.0 s; then it failed, and the next "
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
    assert new() == [f"/data/orders: 4 {bad} (orders-0 offsets 20 to 29 and 1 more)"]
    clock.advance(30_000)
    watcher.add(entry(file(0, 30, 40, bad_records=5, produced_letters=5)))
    assert new() == ["/data/orders: 5 dead letters (orders-0 offsets 30 to 39)"]
    clock.advance(29_999)
    watcher.tick(lambda: 0)
    assert new() == []
    clock.advance(1)
    watcher.tick(lambda: 0)
    assert new() == [f"/data/orders: 5 {bad} (orders-0 offsets 30 to 39) in 60 s"]
    watcher.add(entry(file(0, 40, 50, lost_offsets=6, skipped_batches="41-42 44-44")))
    watcher.add(entry(file(0, 50, 60, lost_offsets=1, bad_records=2)))
    assert new() == [
        "/data/orders: 6 offsets lost: retention had removed them before they were read "
        "(orders-0 offsets 40 to 49)",
        "/data/orders: 2 corrupt record batches left out (orders-0 offsets 40 to 49)",
    ]
    clock.advance(1_000)
    watcher.close(is_complete=True)
    assert new() == [
        "/data/orders: 1 offsets lost: retention had removed them before they were read "
        "(orders-0 offsets 50 to 59) in 1 s",
        f"/data/orders: 2 {bad} (orders-0 offsets 50 to 59) in 1 s",
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
        "/data/orders: 1 corrupt record batches left out (orders-0 offsets 0 to 8)"
    ]
