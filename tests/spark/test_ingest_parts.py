"""The parts of an ingest that need neither Spark nor Kafka: names, checks, texts."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import kfast.spark
from kfast import TopicPartition
from kfast.cli import main
from kfast.errors import ConfigurationError, StorageError, UnknownTopicOrPartitionError
from kfast.spark.ingest.plan import PLAN_OPTION, SECRETS_OPTION, IngestPlan, plan_of, source_options
from kfast.spark.ingest.progress import IngestProgress
from kfast.spark.ingest.query import ingest
from kfast.spark.ingest.query_end import failure_of
from kfast.table.batches import (
    BatchCounts,
    DataFile,
    PartitionGone,
    PartitionRestart,
    ReadRange,
)
from kfast.table.entries import Entry, TableShape, Writer, first_entry
from kfast.table.file_names import final_path, parts_of, task_name
from kfast.table.folders import folder_columns
from kfast.table.fsspec_store import open_store
from kfast.table.ingest import IngestSummary
from kfast.table.ingest_warnings import IngestWarnings
from kfast.table.ingest_watcher import IngestStart, ReadLag
from kfast.table.manifest_log import ManifestLog
from kfast.table.offset_ranges import OffsetRange
from kfast.table.projection import ColumnFormat, OutputColumn, Projection
from kfast.table.table_log import is_hidden
from tests.fake_clock import FakeClock

NEEDED: dict[str, Any] = {
    "bootstrap_servers": "localhost:9092",
    "topics": "t",
    "output": "/nowhere/t",
    "checkpoint": "/nowhere/c",
}


WRITER = Writer("w", "/c", 0)


# --- names ----------------------------------------------------------------------------------------


def test_names_of_files() -> None:
    wanted = OffsetRange("events.v1", 3, 10, 25)
    assert final_path(wanted) == "events.v1-3-10-25.parquet"
    parts = (("topic", "events.v1"), ("date", "2026-01-31"))
    path = final_path(wanted, parts, 2)
    assert path == "topic=events.v1/date=2026-01-31/events.v1-3-10-25-2.parquet"
    assert parts_of(path) == dict(parts)


@pytest.mark.parametrize("topic", ["_schemas", "__consumer_offsets", ".hidden", "x" * 249])
def test_no_file_is_hidden_or_too_long(topic: str) -> None:
    name = final_path(OffsetRange(topic, 2**31 - 1, 2**63 - 2, 2**63 - 1), (), 99)
    assert not is_hidden(name)
    assert len(name) <= 255
    other = topic[:-1] + "y"
    assert task_name(OffsetRange(other, 0, 0, 1)) != task_name(OffsetRange(topic, 0, 0, 1))


def test_what_folders_may_be_named_after() -> None:
    names = ["date", "topic", "value.country", "hour(value.ts)"]
    assert [each.name for each in folder_columns(names)] == ["date", "topic", "country", "hour"]
    with pytest.raises(ConfigurationError, match="did you mean date"):
        folder_columns(["dat"])
    with pytest.raises(ConfigurationError, match="two folders would be date="):
        folder_columns(["date", "date(value.ts)"])


# --- checks before anything starts ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"trigger": "soon"}, "trigger = soon"),
        ({"format": "orc"}, "format = orc"),
        ({"compression": "rar"}, "compression = rar"),
        ({"value_format": "jason"}, "valueFormat = jason"),
        ({"options": {"endingOffsets": "latest"}}, "a stream has no end"),
        ({"options": {"Subscribe": "x"}}, "subscribe is given twice"),
        ({"options": {"valueFormat": "utf8"}}, "valueFormat is given twice"),
        ({"options": {"startingOffset": "earliest"}}, "did you mean startingOffsets"),
        ({"topics": ""}, "must be given"),
        ({"partition_by": "day"}, "cannot partition the table by day"),
    ],
)
def test_what_is_refused(more: dict[str, Any], message: str) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(ConfigurationError, match=message):
        ingest(None, **{**NEEDED, "schema": "offset long", **more})


def test_the_command_line_refuses_malformed_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ingest", "t", "--spark", "--to", "o", "--checkpoint", "c"]
    assert main([*arguments, "--option", "nothing"]) == 2
    assert "--option nothing: not KEY=VALUE\ntry: --option KEY=VALUE\n" in capsys.readouterr().err
    assert main([*arguments, "--storage-option", "=x"]) == 2
    assert main([*arguments, "--orphan-age", "soon"]) == 2
    assert "--orphan-age" in capsys.readouterr().err
    assert main([*arguments, "--format", "orc"]) == 2


def test_the_name_is_a_package_that_is_called_as_the_function() -> None:
    pytest.importorskip("pyspark")
    module: Any = importlib.import_module("kfast.spark.ingest")
    assert vars(kfast.spark)["ingest"] is module
    calls: tuple[Any, ...] = (module, kfast.spark.ingest, ingest)
    for call in calls:
        with pytest.raises(ConfigurationError, match="format = orc"):
            call(None, **{**NEEDED, "format": "orc"})
    assert "Write Kafka topics to a table" in str(module.__call__.__doc__)


# --- what travels ---------------------------------------------------------------------------------


def test_a_plan_survives_its_options() -> None:
    struct = {"type": "struct", "fields": [{"name": "a", "type": "integer", "nullable": True}]}
    plan = IngestPlan(
        "s3://bucket/t",
        "/c",
        Writer("w", "/c", 4),
        TableShape("parquet", "value struct<a:int>", ("date",)),
        Projection(
            (OutputColumn("value", "value", struct),),
            ColumnFormat("struct", {"schema": [["a", ">i4"]]}),
            mode="FAILFAST",
        ),
        "snappy",
        {TopicPartition("t", 1): 7},
        {"key": "hush"},
    )
    options = {**plan.options(), "subscribe": "t"}
    assert plan_of(options) == plan
    assert source_options(options) == {"subscribe": "t"}
    assert "hush" not in options[PLAN_OPTION]
    assert "secret" in SECRETS_OPTION.lower(), "Spark blots such options out"
    assert "hush" not in repr(plan)


# --- texts ----------------------------------------------------------------------------------------


def entry(count: int = 2) -> Entry:
    """Return a batch of so many partitions."""
    parts = [
        ReadRange("t", n, 0, 1000, (DataFile(f"s{n}", f"p{n}", 1000, 500_000),))
        for n in range(count)
    ]
    return first_entry(WRITER, TableShape()).next(0, parts)


def append(log: ManifestLog, entry: Entry) -> None:
    """Publish a batch: its tasks have written its files."""
    for file in entry.files:
        assert open_store(file.folder or log.store.url).create(file.staged, b"x" * file.bytes)
    assert log.append(entry)


def progress(batch_id: int, latest: str | None = '{"t":{"0":1000,"1":1010}}') -> Any:
    """Return what Spark reports of a batch."""
    ends = '{"t":{"0":1000,"1":1000}}'
    source = SimpleNamespace(startOffset=None, endOffset=ends, latestOffset=latest)
    durations = {"latestOffset": 3, "addBatch": 900}
    return SimpleNamespace(
        batchId=batch_id, batchDuration=1_000, durationMs=durations, sources=[source]
    )


class Watcher:
    """Keeps what it is called with."""

    def __init__(self) -> None:
        self.starts: list[IngestStart] = []
        self.entries: list[Entry] = []
        self.lags: list[int | None] = []
        self.ends: list[bool] = []

    def begin(self, start: IngestStart) -> None:
        self.starts.append(start)

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)

    def tick(self, lag: ReadLag) -> None:
        self.lags.append(lag())

    def close(self, *, is_complete: bool) -> None:
        self.ends.append(is_complete)


def begun(name: str) -> ManifestLog:
    """Return the log of a table that the writer has begun to write."""
    log = ManifestLog(open_store(f"memory://{name}"))
    assert log.begin(WRITER, TableShape(), Projection(()), None)
    return log


def remove(log: ManifestLog) -> None:
    """Remove the entries."""
    for file in log.store.files("_kfast/log"):
        log.store.remove(file.path)


def test_progress_has_each_batch_once() -> None:
    pytest.importorskip("fsspec")
    log, watcher = begun("progress"), Watcher()
    published: list[Entry] = []
    progressed = IngestProgress(log, published=published.append, watchers=[watcher])
    progressed.begin("t")
    progressed.update([progress(0)])
    assert (watcher.entries, watcher.lags) == ([], [10]), "the next batch"
    first = entry()
    append(log, first)
    progressed.update([progress(0)])
    progressed.update([progress(0), progress(0)])
    assert watcher.entries == published == [first]
    assert progressed.summary(2.0) == IngestSummary(2_000, 1_000_000, 2, 1, 2.0, ends=first.ends)
    # Published when the query was stopped: Spark reports nothing of it.
    append(log, replace(entry(), sequence=2, batch_id=1))
    progressed.close(is_complete=True)
    assert (progressed.totals.batches, progressed.totals.rows) == (2, 4_000)
    assert (watcher.starts, watcher.ends) == (
        [IngestStart("memory://progress", "t", {}, None, 0)],
        [True],
    )
    later = IngestProgress(log)
    later.close(is_complete=True)
    assert later.totals.batches == 0
    remove(log)


def test_progress_without_lag() -> None:
    """W-06: of a batch that an earlier run had planned, Spark does not know the log ends."""
    log = begun("nolag")
    append(log, entry())
    repeated = progress(0)
    del repeated.durationMs["latestOffset"]
    for report in (progress(0, None), repeated):
        progressed = IngestProgress(log)
        progressed.update([report])
        assert (progressed.totals.batches, progressed.lag) == (1, None)
    remove(log)


def test_what_was_not_read_is_in_manifest_warnings_and_summary(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W-05: lost offsets, skipped batches and malformed records; shared ones count once."""
    log = begun("counts")
    letters = DataFile("s2", "p2", 5, 9, folder="memory://letters")
    parts = (
        ReadRange("t", 0, 0, 50, (DataFile("s0", "p0", 40, 9, 0, 1),), 10, 3, "20-29 45-52"),
        ReadRange("t", 0, 50, 90, (DataFile("s1", "p1", 38, 9, 0, 1), letters), 0, 1_000, "45-52"),
        ReadRange("t", 1, 0, 7, lost_offsets=7),
        PartitionRestart("t", 2, 9, 0),
        PartitionGone("t", 3, 9),
    )
    counted = first_entry(WRITER, TableShape()).next(0, parts)
    append(log, counted)
    assert log.published(WRITER, 0) == counted
    assert counted.counts == BatchCounts(78, 18, 2, 17, 1_003, 5)
    progressed = IngestProgress(log, watchers=[IngestWarnings(FakeClock())])
    progressed.update([progress(0)])
    assert progressed.totals.losses == [
        *("17 lost offsets", "1,003 malformed records", "2 skipped batches"),
        *("5 dead letters", "0 fields without a column"),
    ]
    summary = progressed.summary(1.0)
    assert (summary.lost_offsets, summary.bad_records, summary.dead_letters) == (17, 1_003, 5)
    warnings = [record.getMessage() for record in caplog.records]
    assert any("1 partitions of topics that were created anew" in text for text in warnings)
    assert any("1 partitions that are gone" in text and "(t-3" in text for text in warnings)
    remove(log)


def test_a_failure_keeps_the_words_of_its_error() -> None:
    text = (
        "[STREAM_FAILED] Query [id = x] terminated with exception: ...\n"
        '  File "worker.py", line 1\nkfast.errors.OffsetOutOfRangeError: offset 12 of t-0 is gone\n'
        "cause: retention\ntry: set failOnDataLoss=false\n\tat org.apache.spark.X\n"
    )
    assert str(failure_of(text)) == (
        "offset 12 of t-0 is gone\ncause: retention\ntry: set failOnDataLoss=false"
    )
    missing = failure_of('kfast.errors.UnknownTopicOrPartitionError: no topic "t"')
    assert type(missing) is UnknownTopicOrPartitionError, "with the exit code of its kind"
    assert failure_of("java.lang.X: boom").message == "the query failed"
    trace = (
        "[STREAM_FAILED] terminated\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in write\n    raise\nOSError: [Errno 28] No space left on device\n'
        "\tat org.apache.spark.X\n"
    )
    assert type(failure_of(trace)) is StorageError
    assert failure_of(trace).cause == "OSError: [Errno 28] No space left on device"
    started = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker failed "
        "to connect back. SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 1]\n"
    )
    assert failure_of(started).cause == "Python worker failed to connect back."
