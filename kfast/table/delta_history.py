"""DeltaHistory: the entries of an ingest in the history of a Delta table.

Owns which entry is the newest: that of the last commit with one, where a RESTORE goes on from the
version that it has restored. Where the commits were removed, which Delta does once a checkpoint has
them and they are older than the table's retention time, the transactions of a checkpoint are left.

Used by the process that publishes; one thread at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kfast._base.logs import get_logger
from kfast.errors import TableError
from kfast.table.delta_commits import ENTRY, DeltaCommit, DeltaCommits, commit_path
from kfast.table.delta_storage import delta_errors, import_deltalake
from kfast.table.entries import KFAST_INGEST, Entry, TableShape, Writer, decode_entry
from kfast.table.store import TableStore
from kfast.types import TopicPartition

logger = get_logger(__name__)

GONE: Final = -1
"""In place of the offset of a partition that the table does not have any more."""


def transaction_id(tp: TopicPartition) -> str:
    """The application id of the transactions with a partition's next offset."""
    return f"{ENTRY}:{tp.topic}:{tp.partition}"


@dataclass(frozen=True, slots=True)
class NewestEntry:
    """The newest entry in the history of a version."""

    entry: Entry | None = None
    is_rolled_back: bool = False
    """Whether there was a RESTORE since, so that transactions say more than the table has."""
    rolled_back: Collection[TopicPartition] = ()
    """Partitions of entries that a RESTORE has undone."""


class DeltaHistory:
    """The history of one table; ``open_version`` opens the table at a version."""

    def __init__(self, store: TableStore, open_version: Callable[[int], Any]) -> None:
        self._store = store
        self._commits = DeltaCommits(store)
        self._open_version = open_version
        self._read: tuple[DeltaCommit, NewestEntry] | None = None
        """The commit up to which it was read: what is before a commit does not change."""
        self._restores: dict[DeltaCommit, int] = {}
        self._has_warned = False

    def newest(self, table: Any) -> NewestEntry:
        """The newest entry of a version."""
        if table.transaction_version(ENTRY) is None:  # no need to read the commits of others
            return NewestEntry()
        undone: set[TopicPartition] = set()
        is_rolled_back = False
        version, top = int(table.version()), None
        entry: Entry | None = None
        for commit in self.chain(version):
            top = top or commit
            if self._read is not None and self._read[0] == commit:
                read = self._read[1]
                entry, is_rolled_back = read.entry, is_rolled_back or read.is_rolled_back
                undone.update(read.rolled_back)
                break
            if commit.is_restore:
                is_rolled_back, version = True, self._restored(commit)
                undone.update(self._undone(commit.version - 1, version))
            elif commit.is_missing:
                entry = self._entry_of_transactions(table, commit.version, version)
                break
            elif (entry := self.entry_of(commit)) is not None:
                break
        newest = NewestEntry(entry, is_rolled_back, frozenset(undone))
        if top is not None and not top.is_missing:
            self._read = top, newest
        return newest

    def chain(self, version: int) -> Iterator[DeltaCommit]:
        """Yield the commits that a version consists of, the newest first."""
        return self._commits.chain(version, self._restored)

    def entry_of(self, commit: DeltaCommit) -> Entry | None:
        """The entry in a commit, None for one of another client."""
        if not commit.entry:
            return None
        return decode_entry(commit.entry, f"{self._store.url}/{commit_path(commit.version)}")

    def _undone(self, version: int, restored: int) -> Collection[TopicPartition]:
        """The partitions of the newest entry that a RESTORE has undone."""
        for number in range(version, restored, -1):
            entry = self.entry_of(self._commits.read(number))
            if entry is not None:
                return entry.ends.keys()
        return ()

    def _restored(self, commit: DeltaCommit) -> int:
        """The version that a RESTORE has restored: that with the same files, if it is by time."""
        if commit.restored_version is not None:
            return commit.restored_version
        if commit not in self._restores:
            self._restores[commit] = self._same_version(commit)
        return self._restores[commit]

    def _same_version(self, commit: DeltaCommit) -> int:
        failure = f"cannot read what version {commit.version} of {self._store.url} has restored"
        error_class = import_deltalake().exceptions.DeltaError
        with delta_errors(failure):
            table = self._open_version(commit.version)
            files = set(table.file_uris())
            for version in _candidates(table, commit, error_class):
                with contextlib.suppress(error_class):  # removed by now
                    table.load_as_version(version)
                    if set(table.file_uris()) == files:
                        return version
        raise TableError(
            failure,
            cause="it is by time, and no version before it has the same files",
            found=commit.restored_time or None,
            hint="restore the table once more, by the number of a version",
        )

    def _entry_of_transactions(self, table: Any, least: int, most: int) -> Entry | None:
        """An entry with what the transactions of a checkpoint say, as its commit was removed."""
        versions = self._commits.transactions(least, most)
        if versions is None:
            raise TableError(
                f"{self._store.url} does not say which offsets it has",
                cause=f"the commits up to version {least} were removed, and there is no checkpoint "
                f"up to version {most}",
                hint="restore the table to a version that can be read",
            )
        sequence = versions.pop(ENTRY, None)
        if sequence is None:
            return None
        ends = {}
        for app_id, offset in versions.items():
            topic, _, partition = app_id.removeprefix(f"{ENTRY}:").rpartition(":")
            if offset != GONE:
                ends[TopicPartition(topic, int(partition))] = offset
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s: the commits of its ingest were removed, its offsets are those of Delta's "
                "transactions; a RESTORE that was removed as well is not seen",
                self._store.url,
            )
        shape = TableShape("delta", "", tuple(table.metadata().partition_columns))
        return Entry(sequence, Writer("", KFAST_INGEST, sequence), shape, ends=ends)

    def is_published(self, table: Any, entry: Entry) -> bool | None:
        """Whether any commit has an entry, be it undone by a RESTORE since.

        None if it may be one of those that were removed.
        """
        has_restore = False
        for version in range(int(table.version()), -1, -1):
            commit = self._commits.read(version)
            has_restore |= commit.is_restore
            if commit.is_missing:
                return None
            other = self.entry_of(commit)
            if other is not None and other.id == entry.id:
                return True
            if other is not None and other.sequence < entry.sequence and not has_restore:
                return False
        return False

    def __repr__(self) -> str:
        return f"<DeltaHistory {self._store.url}>"


def _candidates(table: Any, commit: DeltaCommit, error_class: type[Exception]) -> Iterator[int]:
    """Yield the versions that a RESTORE by time may have restored, the likeliest first."""
    with contextlib.suppress(ValueError, error_class):
        time = commit.restored_time
        table.load_as_version(
            datetime.fromtimestamp(int(time) / 1000, UTC) if time.isdigit() else time
        )
        yield int(table.version())
    yield from range(commit.version - 1, -1, -1)
