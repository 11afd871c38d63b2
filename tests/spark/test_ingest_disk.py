"""What an ingest has on the disk when: a table must survive the death of the machine, too."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kfast.spark.checkpoint import keep_batch
from kfast.spark.publish import Publisher
from kfast.spark.table_log import TableLog
from kfast.spark.table_store import LocalStore
from tests.spark.test_ingest_log import Tasks, table


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
    publisher = Publisher(TableLog(store))
    folders = [
        *("table/_kfast/staging/w", "table/_kfast/staging", "table/_kfast", "table"),
        ".",
    ]
    (staged,) = Tasks(store).run((0, 0, 5))
    named = replace(staged, path=f"date=2026-01-01/{staged.path}")
    disk = Disk(tmp_path, monkeypatch)
    store.keep(staged.staged)
    assert disk.flushed == [f"table/{staged.staged}"]
    disk.flushed.clear()
    (entry_at,) = _flushes_before(
        disk, monkeypatch, lambda: publisher.publish(opened.writer, 0, [named])
    )
    assert disk.flushed[: len(folders)] == folders, "where the staged file has its name"
    assert entry_at == len(folders) + 1, "the entry itself is linked when it is flushed"
    assert disk.flushed[-3:] == ["table/date=2026-01-01", "table", "."], "where it is found"


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
    keep_batch(store, 7)
    files = ["c/metadata", "c/offsets/7", "c/offsets/.7.crc"]
    assert disk.flushed == [*files, "c/offsets", "c", "."]


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
    store.keep_names(["f"])
    if code == errno.EACCES:
        with pytest.raises(PermissionError):
            store.keep("f")
    else:
        store.keep("f")
