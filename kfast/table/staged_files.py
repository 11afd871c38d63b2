"""StagedFiles: the files of a batch on their way from the staging folder to their names.

Owns the stores that they are in, the table's and those of dead letters, and the checks around a
rename. Every step may be done again. Used by the logs of tables; one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kfast.errors import KafkaError
from kfast.table.batches import DataFile
from kfast.table.entries import Entry
from kfast.table.store import TableStore
from kfast.table.table_log import STAGING, OpenFolder


class StagedFiles:
    """The files of the batches of one table; ``open_folder`` opens a folder of dead letters."""

    def __init__(self, store: TableStore, open_folder: OpenFolder) -> None:
        self._store = store
        self._open_folder = open_folder
        self._stores: dict[str, TableStore] = {"": store}

    def store_of(self, folder: str) -> TableStore:
        """The store of a folder, "" for the table's."""
        if folder not in self._stores:
            self._stores[folder] = self._open_folder(folder)
        return self._stores[folder]

    def check(self, entry: Entry) -> None:
        """Check that the files are there as their tasks have written them, and flush their names.

        Raises ``KafkaError``.
        """
        for batch_range in entry.ranges:
            for file in batch_range.files:
                store = self.store_of(file.folder)
                stored = store.stat(file.staged)
                if stored is None or stored.bytes != file.bytes:
                    raise KafkaError(
                        f"{store.url}/{file.staged} is not as its task wrote it",
                        cause="the driver and the workers do not see the same folder, or the file "
                        "was removed",
                        found="no such file" if stored is None else f"{stored.bytes} bytes",
                        hint="write to a folder that all machines share",
                        topic=batch_range.topic,
                        partition=batch_range.partition,
                        offset=batch_range.from_offset,
                    )
        self._fsync_names(entry.files, lambda file: file.staged)

    def rename(self, files: Iterable[DataFile], missing: Callable[[DataFile], KafkaError]) -> None:
        """Rename files to their final names, and flush these; those that have theirs are left.

        Raises what ``missing`` makes if a file is neither in the staging folder nor in its own.
        """
        renamed = list(files)
        for file in renamed:
            store = self.store_of(file.folder)
            try:
                store.rename(file.staged, file.path)
            except FileNotFoundError:
                stored = store.stat(file.path)
                if stored is None or stored.bytes != file.bytes:
                    raise missing(file) from None
        self._fsync_names(renamed, lambda file: file.path)

    def _fsync_names(self, files: Iterable[DataFile], name: Callable[[DataFile], str]) -> None:
        by_folder: dict[str, list[DataFile]] = {}
        for file in files:
            by_folder.setdefault(file.folder, []).append(file)
        for folder, members in by_folder.items():
            self.store_of(folder).fsync_names(map(name, members))

    def remove_staged(self, files: Iterable[DataFile], kept: Iterable[DataFile] = ()) -> None:
        """Remove files from the staging folder, but for some."""
        names = {file.staged for file in kept}
        for file in files:
            if file.staged not in names:
                self.store_of(file.folder).remove(file.staged)

    def sweep(self, folder: str, claimed: set[str], now_ms: int, age_ms: int) -> int:
        """Remove what is older than an age from the staging folder of a store; return how many."""
        store = self.store_of(folder)
        swept = 0
        for file in store.files(STAGING):
            if file.path not in claimed and now_ms - file.modified_ms >= age_ms:
                store.remove(file.path)
                swept += 1
        store.remove_empty_folders(STAGING)
        return swept

    def __repr__(self) -> str:
        return f"<StagedFiles {self._store.url}>"
