"""What an ingest has on the disk when: a table must survive the death of the machine, too."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfast.errors import KafkaError
from kfast.records.partition_records import PartitionRecords
from kfast.spark.ingest.checkpoint import fsync_batch
from kfast.spark.ingest.plan import IngestPlan
from kfast.spark.ingest.query_end import failure_of
from kfast.spark.ingest.source import IngestSource
from kfast.spark.ingest.task import write_ranges
from kfast.spark.source.schema import project
from kfast.table.batches import ReadRange, batch_part_dict, batch_part_of, files_in
from kfast.table.entries import Writer
from kfast.table.manifest_log import ManifestLog
from kfast.table.offset_ranges import OffsetRange
from kfast.table.projection import Projection
from kfast.table.publish import Publisher
from kfast.table.range_files import BackgroundFsync, RangeFiles
from kfast.table.read_counts import ReadCounts, SkippedBatch
from kfast.table.store import LocalStore
from tests.spark.arrow_rows import records, schema
from tests.spark.support import options
from tests.unit.records.sample_index import Sample
from tests.unit.table.tables import SHAPE, Tasks, table


class Disk:
    """Notes what is flushed, as a machine that dies would keep it.

    Attributes
    ----------
    flushed : list of str
        Files and folders, in order, relative to the test's folder.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flushed: list[str] = []
        self._folder = folder
        monkeypatch.setattr(os, "fsync", self._note)

    def _note(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self.flushed.append(path.relative_to(self._folder).as_posix())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux for names")
def test_all_that_an_entry_rests_on_is_on_the_disk_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "table")
    opened = table(store)
    publisher = Publisher(ManifestLog(store))
    folders = [
        *("table/_kfast/staging/w", "table/_kfast/staging", "table/_kfast", "table"),
        ".",
    ]
    (read,) = Tasks(store).run((0, 0, 5))
    (staged,) = files_in([read])
    named = replace(staged, path=f"date=2026-01-01/{staged.path}")
    part = ReadRange("t", 0, 0, 5, (named,))
    disk = Disk(tmp_path, monkeypatch)
    store.fsync(staged.staged)
    assert disk.flushed == [f"table/{staged.staged}"]
    disk.flushed.clear()
    entry_at, mark_at = _flushes_before(
        disk, monkeypatch, lambda: publisher.publish(opened.writer, 0, [part])
    )
    assert disk.flushed[: len(folders)] == folders, "where the staged file has its name"
    assert entry_at == len(folders) + 1, "the entry itself is linked when it is flushed"
    found = ["table/date=2026-01-01", "table", "."]
    assert disk.flushed[mark_at - 4 : mark_at - 1] == found, "where it is found, before the mark"
    assert disk.flushed[mark_at:] == ["table/_kfast/finished", "table/_kfast", "table", "."]


def _flushes_before(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]
) -> list[int]:
    """Return for each file that an action creates how much was flushed before."""
    counts: list[int] = []
    link = os.link

    def linked(source: Path, target: Path) -> None:
        counts.append(len(disk.flushed))
        link(source, target)

    monkeypatch.setattr(os, "link", linked)
    action()
    return counts


def test_what_spark_noted_of_a_batch_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "c")
    for name in ("metadata", "offsets/7", "offsets/.7.crc", "offsets/6"):
        store.create(name, b"x")
    disk = Disk(tmp_path, monkeypatch)
    fsync_batch(store, 7)
    files = ["c/metadata", "c/offsets/7", "c/offsets/.7.crc"]
    assert disk.flushed == [*files, "c/offsets", "c", "."]


class SlowDisk(LocalStore):
    """A folder on a disk that takes until it is let go; it notes who asked.

    Attributes
    ----------
    kept : list of str
        The names of the threads that kept a file.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept: list[str] = []
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()
        self.error: OSError | None = None

    def fsync(self, path: str) -> None:
        self.kept.append(threading.current_thread().name)
        self.asked.release()
        assert self.go.wait(30)
        error, self.error = self.error, None  # a system says it once
        if error is not None:
            raise error
        super().fsync(path)


def kept_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("kfast-fsync")]


def test_a_file_goes_to_the_disk_while_it_is_written(tmp_path: Path) -> None:
    store = SlowDisk(tmp_path)
    store.create("f", b"x")
    flush = BackgroundFsync(store, "f")
    flush.begin()
    assert store.asked.acquire(timeout=30)
    flush.begin()  # the disk is busy: what comes now goes with the next
    assert store.kept == ["kfast-fsync-f"]
    store.go.set()
    flush.finish()
    assert store.kept == ["kfast-fsync-f", threading.current_thread().name]
    assert not kept_threads()


@pytest.mark.parametrize("comes_up", ["begin", "finish"])
def test_an_error_of_a_background_fsync_is_raised(tmp_path: Path, comes_up: str) -> None:
    store = SlowDisk(tmp_path)
    store.create("f", b"x")
    store.error = OSError(errno.EIO, "the disk is broken")
    store.go.set()
    flush = BackgroundFsync(store, "f")
    flush.begin()
    flush.wait()
    with pytest.raises(OSError, match="the disk is broken"):
        getattr(flush, comes_up)()
    with pytest.raises(OSError, match="the disk is broken"):
        flush.finish()
    assert len(store.kept) == 1, "nothing is said to be kept afterwards"


def test_a_store_that_is_durable_on_write_needs_no_thread(tmp_path: Path) -> None:
    store = SlowDisk(tmp_path)
    store.is_durable_on_write = True
    BackgroundFsync(store, "f").begin()
    assert not store.kept


@pytest.mark.parametrize("is_finished", [True, False])
def test_row_groups_are_kept_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_finished: bool
) -> None:
    monkeypatch.setattr("kfast.table.range_files.GROUP_ROWS", 2)
    store = SlowDisk(tmp_path)
    store.go.set()
    projection = project(schema({"offset": "long"}), options())
    files = RangeFiles(store, projection, OffsetRange("top", 3, 0, 3), "w")
    files.write(records())
    assert store.asked.acquire(timeout=30)
    assert [name.startswith("kfast-fsync") for name in store.kept] == [True]
    if is_finished:
        (file,) = files.close().files
        assert store.stat(file.staged)
        assert store.kept[1:] == [threading.current_thread().name]
    else:
        files.discard()
        assert store.files("") == []
    assert not kept_threads()


class FullDisk(LocalStore):
    """A folder on a disk with space for so many bytes of each file."""

    def __init__(self, folder: Path, space: int) -> None:
        super().__init__(folder)
        self.opened: list[str] = []
        self._space = space

    def open_output(self, path: str) -> Any:
        self.opened.append(path)
        super().open_output(path).close()
        return LimitedFile(self.url, path, self._space)


class LimitedFile(io.FileIO):
    def __init__(self, folder: str, path: str, space: int) -> None:
        super().__init__(f"{folder}/{path}", "wb")
        self._space = space

    def write(self, data: Any) -> int:
        self._space -= len(data)
        if self._space < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


@pytest.mark.parametrize(("space", "group_rows"), [(0, 100), (10, 1), (10, 100)])
def test_a_full_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, space: int, group_rows: int
) -> None:
    """W-07: also after Spark has made a text of it."""
    monkeypatch.setattr("kfast.table.range_files.GROUP_ROWS", group_rows)
    store = FullDisk(tmp_path, space)
    projection = project(schema({"offset": "long"}), options())
    files = RangeFiles(store, projection, OffsetRange("top", 3, 0, 3), "w")

    def write() -> None:
        files.write(records())
        files.close()

    with pytest.raises(KafkaError) as caught:
        write()
    assert caught.value.message == f"cannot write {tmp_path}/{store.opened[0]}"
    assert "No space left on device" in str(caught.value.cause)
    text = "".join(traceback.format_exception(caught.value))
    assert str(failure_of(f"[STREAM_FAILED] {text}\tat org.apache.spark.X")) == str(caught.value)
    files.discard()
    assert store.files("") == []


@pytest.mark.parametrize("action", ["create", "fsync", "publish"])
def test_a_disk_that_fails_a_flush_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """W-07: the system's error has no name."""
    store = LocalStore(tmp_path / "table")
    writer = table(store).writer
    (part,) = Tasks(store).run((0, 0, 5))
    (file,) = files_in([part])

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    if action == "publish":
        plan = IngestPlan(store.url, str(tmp_path / "c"), writer, SHAPE, Projection(()))
        sink = IngestSource(plan.options()).streamWriter(None, False)
        with pytest.raises(KafkaError, match=f"cannot publish batch 0 of {store.url}") as failed:
            sink.commit([sink.write(iter([(json.dumps(batch_part_dict(part)),)]))], 0)
        assert f"No space left on device: '{store.url}/" in str(failed.value.cause)
        return
    with pytest.raises(OSError, match="No space left on device") as caught:
        store.create("f", b"x") if action == "create" else store.fsync(file.staged)
    assert caught.value.filename == f"{store.url}/{'f' if action == 'create' else file.staged}"


class LossyReader:
    """Reads the records of the samples, of a range with losses before and after them."""

    def __init__(self) -> None:
        self.counts = ReadCounts()

    def read(self, wanted: OffsetRange) -> Iterator[PartitionRecords]:
        if wanted.partition == 3:
            self.counts.skip(SkippedBatch(*wanted.topic_partition, 5, 8, "checksum"))
            yield records([Sample(b"1234"), Sample(b"long!")])
        self.counts.lost_offsets += 2


def test_what_a_task_did_not_read_reaches_the_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-05: with the range, whether it has files or not."""
    monkeypatch.setattr("kfast.spark.ingest.task.range_reader", lambda _: LossyReader())
    given = options(valueFormat="int32", failOnDataLoss="false")
    projection = project(schema({"offset": "long", "value": "integer"}), given)
    plan = IngestPlan(str(tmp_path), str(tmp_path / "c"), Writer("w", "/c", 0), SHAPE, projection)
    ranges = OffsetRange("top", 3, 0, 9), OffsetRange("top", 4, 0, 2)
    (rows,) = write_ranges(ranges, given, plan)
    sink = IngestSource(plan.options()).streamWriter(None, False)
    message = sink.write(iter([tuple(row.values()) for row in rows.to_pylist()]))
    first, second = (batch_part_of(json.loads(part)) for part in message.parts)
    assert isinstance(first, ReadRange)
    assert isinstance(second, ReadRange)
    assert [file.rows for file in first.files] == [2]
    assert (first.bad_records, first.lost_offsets, first.skipped_batches) == (1, 2, "5-8")
    assert (second.bad_records, second.lost_offsets, second.skipped_batches) == (0, 2, "")
    assert second.files == ()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL])
def test_a_folder_that_cannot_be_flushed_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store = LocalStore(tmp_path / "table")
    assert store.create("f", b"x")

    def refuse(descriptor: int) -> None:
        if code == errno.EACCES or stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    store.fsync_names(["f"])
    if code == errno.EACCES:
        with pytest.raises(PermissionError):
            store.fsync("f")
    else:
        store.fsync("f")
