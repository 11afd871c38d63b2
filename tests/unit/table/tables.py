"""Tables without Spark: stores that crash, tasks that write text, and what a reader sees."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kfast.spark.ingest.checkpoint import open_table
from kfast.table.batches import BatchPart, DataFile, ReadRange
from kfast.table.entries import TableShape
from kfast.table.file_names import final_path
from kfast.table.fsspec_store import open_store
from kfast.table.manifest_log import ManifestLog
from kfast.table.offset_ranges import OffsetRange
from kfast.table.projection import Projection
from kfast.table.store import LocalStore, StoredFile, TableStore
from kfast.table.table_log import STAGING, OpenTable, TableLog, is_hidden

HOUR_MS = 3_600_000
SHAPE = TableShape("parquet", "offset bigint")
Range = tuple[int, int, int]
"""Partition, first offset, end."""


class Crash(BaseException):
    """The process is gone: nothing may catch it."""


class Crashing:
    """A store whose process dies at the n-th step that changes something.

    Parameters
    ----------
    store : TableStore
        Does the steps.
    at : int
        Which step, from 0.
    is_after : bool
        Whether that step is still done.
    """

    def __init__(self, store: TableStore, at: int, is_after: bool) -> None:
        self.url = store.url
        self.may_create_late = store.may_create_late
        self.is_durable_on_write = store.is_durable_on_write
        self._store = store
        self._left = at
        self._is_after = is_after

    def _step(self, action: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left == -1:
            if self._is_after:
                action()
            raise Crash
        return action()

    def create(self, path: str, data: bytes) -> bool:
        return bool(self._step(lambda: self._store.create(path, data)))

    def rename(self, source: str, target: str) -> None:
        self._step(lambda: self._store.rename(source, target))

    def remove(self, path: str) -> None:
        self._step(lambda: self._store.remove(path))

    def copy(self, source: str, target: str) -> None:
        self._step(lambda: self._store.copy(source, target))

    def read(self, path: str) -> bytes | None:
        return self._store.read(path)

    def stat(self, path: str) -> StoredFile | None:
        return self._store.stat(path)

    def files(self, folder: str) -> list[StoredFile]:
        return self._store.files(folder)

    def remove_empty_folders(self, folder: str) -> None:
        self._store.remove_empty_folders(folder)

    def open_input(self, path: str) -> Any:
        return self._store.open_input(path)

    def open_output(self, path: str) -> Any:
        return self._store.open_output(path)

    def fsync(self, path: str) -> None:
        self._store.fsync(path)

    def fsync_names(self, paths: Iterable[str]) -> None:
        self._store.fsync_names(paths)


class Tasks:
    """Writes what tasks would: a file has its offsets as text."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._attempts = 0

    def run(self, *ranges: Range) -> list[BatchPart]:
        """Run one attempt of a batch's tasks."""
        self._attempts += 1
        parts: list[BatchPart] = []
        for number, start, stop in ranges:
            wanted = OffsetRange("t", number, start, stop)
            staged = f"{STAGING}/w/{number}-{start}.{self._attempts}"
            data = "".join(f"{number}:{offset}\n" for offset in range(start, stop)).encode()
            assert self._store.create(staged, data)
            file = DataFile(staged, final_path(wanted), stop - start, len(data))
            parts.append(ReadRange("t", number, start, stop, (file,)))
        return parts


class Checkpoint(LocalStore):
    """The checkpoint of a query, in no folder; ``is_used`` if Spark has planned a batch with it."""

    def __init__(self, writer: str, *, is_used: bool = False) -> None:
        super().__init__(Path("/checkpoints", writer))
        self._writer = writer
        self._is_used = is_used

    def read(self, path: str) -> bytes | None:
        return json.dumps({"id": self._writer}).encode()

    def files(self, folder: str) -> list[StoredFile]:
        return [StoredFile(f"{folder}/0", 1, 0)] if self._is_used else []


def table(
    store: TableStore,
    writer: str = "w",
    *,
    shape: TableShape = SHAPE,
    take_over: bool = False,
    is_used: bool = False,
    log: TableLog | None = None,
) -> OpenTable:
    """Open the table as the start of a query does."""
    log = log or ManifestLog(store)
    return open_table(
        log,
        log.last(),
        Checkpoint(writer, is_used=is_used),
        shape,
        Projection(()),
        open_store,
        take_over=take_over,
        orphan_age_ms=HOUR_MS,
    )


def seen(store: TableStore) -> list[str]:
    """Return what a reader of the table sees: every offset, with its partition, sorted."""
    visible = [file.path for file in store.files("") if not is_hidden(file.path)]
    assert all(path.endswith(".parquet") for path in visible)
    rows = [row for path in visible for row in (store.read(path) or b"").decode().split()]
    return sorted(rows)


def rows(*ranges: Range) -> list[str]:
    """Return what should be seen."""
    return sorted(f"{p}:{offset}" for p, start, stop in ranges for offset in range(start, stop))


FIRST: tuple[Range, ...] = ((0, 0, 5), (1, 0, 3))
SECOND: tuple[Range, ...] = ((0, 5, 9), (1, 3, 4), (2, 0, 2))
