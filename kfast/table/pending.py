"""PendingFiles: files that have their final names, in a table whose log may not have them yet.

The log of a Delta or Iceberg table names files as they are called, so they are renamed before the
commit; no reader sees them until then. Owns ``_kfast/staging/WRITER/pending-ENTRY.json``, the whole
entry, by which the files of a process that was killed in between are known. Around a commit:

==========================  =======================================================================
step                        killed after it
==========================  =======================================================================
1 the pending file          nothing was renamed
2 the table's files         the next start removes them, when nothing can commit them any more
3 the commit of the log     the next start does 4 and 5
4 dead letters' names       the same
5 the pending file goes     done
==========================  =======================================================================

The process that is between 2 and 3 may not be dead, but slow, or its commit on the way to a server.
So its files stay until the table has another entry with its number or a later one: each log refuses
the commit from then on.

Used by the process that publishes; one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from kfast._base.logs import get_logger
from kfast.errors import KafkaError
from kfast.table.batches import DataFile
from kfast.table.entries import Entry, decode_entry, encode_entry
from kfast.table.staged_files import StagedFiles
from kfast.table.store import TableStore
from kfast.table.table_log import STAGING

logger = get_logger(__name__)

_PREFIX: Final = "pending-"


class PendingFiles:
    """The entries of one table that are being published, by this process or by killed ones."""

    def __init__(self, store: TableStore, files: StagedFiles) -> None:
        self._store = store
        self._files = files
        self._open: dict[str, Entry] = {}
        """By id: those begun here and not ended, and those that `recover` has left."""

    def begin(self, entry: Entry) -> None:
        """Give the files of the table their names; the commit may follow."""
        self._store.create(_path(entry), encode_entry(entry))
        self._open[entry.id] = entry
        self._files.rename(entry.table_files, self._lost)

    def end(self, entry: Entry) -> None:
        """Give dead letters their names, as the entry is part of the table."""
        letters = [file for file in entry.files if file.folder]
        self._files.rename(letters, self._lost)
        self._forget(entry)

    def undo(self, entry: Entry, kept: Collection[str] = ()) -> None:
        """Remove the files of an entry that cannot become part of the table.

        ``kept`` are staged files that a later attempt has published, under the same names.
        """
        files = [file for file in entry.files if file.staged not in kept]
        for file in files:
            if not file.folder:
                self._store.remove(file.path)
        self._files.remove_staged(files)
        self._forget(entry)

    def recover(self, last: Entry | None, is_published: Callable[[Entry], bool | None]) -> None:
        """End what is published, and undo what can no longer be, of all processes.

        ``last`` is the newest entry of the table; ``is_published`` says None of an entry whose
        trace has expired: its files stay.
        """
        for entry in self.entries():
            self._open[entry.id] = entry
        self.settle(last, is_published)

    def settle(self, last: Entry | None, is_published: Callable[[Entry], bool | None]) -> None:
        """Do the same for the entries that this process knows, such as after each commit."""
        states = [(entry, is_published(entry)) for entry in self._open.values()]
        published = [entry for entry, is_in_table in states if is_in_table]
        kept = {file.staged for entry in published for file in entry.files}
        for entry, is_in_table in states:
            if is_in_table is False and last is not None and last.sequence >= entry.sequence:
                self.undo(entry, kept)
                logger.info("removed the files of batch %s of %s, which was not published",
                            entry.batch_id, self._store.url)  # fmt: skip
        for entry in published:  # after the others, whose files may be these
            self.end(entry)

    def entries(self) -> list[Entry]:
        """The entries in all pending files."""
        entries = []
        for stored in self._store.files(STAGING):
            if stored.path.rpartition("/")[2].startswith(_PREFIX):
                data = self._store.read(stored.path)
                if data is not None:  # it has just been removed
                    entries.append(decode_entry(data, f"{self._store.url}/{stored.path}"))
        return entries

    def entry(self, published: Entry) -> Entry:
        """An entry of the log with its files, as far as it is pending, else as it is."""
        path = _path(published)
        data = self._store.read(path)
        return published if data is None else decode_entry(data, f"{self._store.url}/{path}")

    def claimed(self) -> set[str]:
        """The paths in the staging folder that must not be swept."""
        claimed = set()
        for entry in [*self.entries(), *self._open.values()]:
            claimed.update([_path(entry), *(file.staged for file in entry.files)])
        return claimed

    def _forget(self, entry: Entry) -> None:
        self._store.remove(_path(entry))
        self._open.pop(entry.id, None)

    def _lost(self, file: DataFile) -> KafkaError:
        return KafkaError(
            f"{self._files.store_of(file.folder).url}/{file.path} is lost: it is neither in its "
            "folder nor in the staging folder",
            hint="restore the file, or stop the process that removes files of this folder",
        )

    def __repr__(self) -> str:
        return f"<PendingFiles {self._store.url}, {len(self._open)} open>"


def _path(entry: Entry) -> str:
    return f"{STAGING}/{entry.writer.id}/{_PREFIX}{entry.id}.json"
