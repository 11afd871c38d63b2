"""Compacting: small files of a table become large ones, and no reader sees a record twice.

Owns the order of steps that this depends on. Per folder, files of equal columns that are smaller
than the target are put together up to it:

1. Their rows are written to a new file below ``_kfast/compacted``, which is flushed.
2. Its manifest is created, if no other one has any of the files, and all of them are as they were.
   From then on `table_files` names the new file in their place; what lists folders sees them still.
3. After the retention time, when no reader needs their names any more, it is decided once whether
   the new file takes their place: not if one of them is gone, since the user has removed it.
4. They are removed, then the new file gets its name in the table, in this order: what lists folders
   never sees a record twice. In between it does not see those of this one file.
5. The exchange is marked as done. After the retention time the first name of the new file goes, and
   the manifest with it.

A process that is killed has done a step or not, and the next run does the rest. Of two at once,
only one gets its manifest for a file (`manifests`); on local disks the second is refused by a lock.

Files of a batch that is published and not finished are left alone, and so is all that the ingest
has below ``_kfast``: it needs none of the files, and is not waited for. Tables with a catalog of
their own, Delta and Iceberg, are compacted by their own engines.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError, KafkaError, StorageError
from kfast.table.compaction.manifests import (
    COMPACTED,
    Compaction,
    CompactionLog,
    ReplacedFile,
    State,
)
from kfast.table.compaction.merging import Merger
from kfast.table.entries import Entry
from kfast.table.file_formats import ARROW_COMPRESSIONS, COMPRESSIONS, file_ending
from kfast.table.fsspec_store import open_store
from kfast.table.leftovers import probe_store
from kfast.table.lock import COMPACTION, table_lock
from kfast.table.manifest_log import LOG, ManifestLog
from kfast.table.store import StoredFile, TableStore, storage_errors
from kfast.table.table_log import is_hidden

logger = get_logger(__name__)

TARGET_BYTES: Final = 256 << 20
RETENTION_MS: Final = 3_600_000
_ORPHAN_AGE_MS: Final = 86_400_000
_NUMBERS: Final = re.compile(r"(\d+)")
_OURS: Final = re.compile(r"-c[0-9a-f]{16}$")


@dataclass(frozen=True, slots=True)
class CompactionSummary:
    """What one compaction did.

    Attributes
    ----------
    files, new_files : int
        Small files whose rows are in new ones now, and number of the new ones.
    rows : int
        Of the new files.
    bytes, new_bytes : int
        Of the small files and of the new ones.
    swapped : int
        New files, of this run or earlier ones, that took the place of the others for readers that
        list folders.
    waiting : int
        New files that will do so when their retention time is over, at the next compaction.

    Examples
    --------
    >>> ends = kfast.ingest("orders", to="/data/table", bootstrap_servers="localhost:9092").ends
    >>> kfast.compact_table("/data/table", retention_ms=0)
    CompactionSummary(files=2, new_files=1, rows=3, ...)
    """

    files: int = 0
    new_files: int = 0
    rows: int = 0
    bytes: int = 0
    new_bytes: int = 0
    swapped: int = 0
    waiting: int = 0


def summary_text(summary: CompactionSummary, to: str) -> str:
    """Return the counts of a compaction in one line of text."""
    waiting = (
        f"; folders show {summary.waiting:,} new files after the retention time, at the next "
        "compaction"
    )
    return (
        f"{to}: {summary.files:,} files with {summary.bytes / 1e6:,.1f} MB became "
        f"{summary.new_files:,} with {summary.new_bytes / 1e6:,.1f} MB"
        f"{waiting if summary.waiting else ''}"
    )


def compact_table(
    to: str,
    *,
    target_file_bytes: int = TARGET_BYTES,
    retention_ms: int | None = None,
    compression: str = "zstd",
    storage_options: Mapping[str, str] | None = None,
) -> CompactionSummary:
    """Make large files of the small ones of a table that an ingest has written, or is writing.

    The ingest goes on meanwhile, and readers with it: `table_files` names the files that have each
    record exactly once at every moment. Killed at any instant, the next run does the rest.

    Parameters
    ----------
    to : str
        Folder or URL of the table, as in `ingest`.
    target_file_bytes : int
        Files smaller than this are put together up to about this size.
    retention_ms : int, optional
        How long the names of replaced files stay for readers that have begun; default one hour.
        Only after that does what lists folders see the new files, at the next compaction; 0 does it
        at once.
    compression : str
        Of the new files.
    storage_options : Mapping, optional
        For the filesystem of an object store.

    Returns
    -------
    CompactionSummary
        What was done.

    Raises
    ------
    ConfigurationError
        The folder is no table of plain files of an ingest, or an option is malformed.
    StorageError
        The folder cannot be written; the table is as it was.
    KafkaError
        Another process compacts the table.

    Examples
    --------
    >>> ends = kfast.ingest("orders", to="/data/table", bootstrap_servers="localhost:9092").ends
    >>> kfast.compact_table("/data/table").waiting  # until its retention time is over
    1
    >>> len(kfast.table_files("/data/table"))
    1
    """
    if target_file_bytes < 1:
        raise ConfigurationError(
            f"target_file_bytes = {target_file_bytes}: too small", hint="give 1 or more"
        )
    if retention_ms is not None and retention_ms < 0:
        raise ConfigurationError(f"retention_ms = {retention_ms}: negative", hint="give 0 or more")
    store = open_store(to, storage_options)
    last = last_entry(store)
    compressions = ARROW_COMPRESSIONS if last.shape.format == "arrow" else COMPRESSIONS
    if compression not in compressions:
        raise ConfigurationError(
            f'compression: there is no "{compression}"', hint=f"one of {', '.join(compressions)}"
        )
    with table_lock(store, COMPACTION), storage_errors(f"cannot compact {store.url}"):
        retained_ms = RETENTION_MS if retention_ms is None else retention_ms
        merger = Merger(store, file_ending(last.shape.format), compression)
        return Compactor(store, merger, target_file_bytes, retained_ms).run()


def last_entry(store: TableStore) -> Entry:
    """The newest entry of a table of plain files.

    Raises ``ConfigurationError`` if the folder is no such table.
    """
    last = ManifestLog(store).last()
    if last is not None:
        return last
    if store.files("_delta_log"):
        raise ConfigurationError(
            f"{store.url} is a Delta table",
            cause="its own log lists the files",
            hint="DeltaTable(...).optimize.compact() of deltalake, by one process at a time, or "
            "OPTIMIZE in Spark; DeltaTable(...).file_uris() names its files",
        )
    raise ConfigurationError(
        f"{store.url} is no table of plain files that an ingest has written",
        found=f"it has no log in {LOG}",
        hint="give the folder that the ingest writes to; of an Iceberg table engines of Iceberg "
        "compact the files: CALL system.rewrite_data_files in Spark",
    )


class Compactor:
    """One compaction of a table whose files are not listed in a log of their own."""

    def __init__(
        self, store: TableStore, merger: Merger, target_bytes: int, retention_ms: int
    ) -> None:
        self._store = store
        self._merger = merger
        self._target = target_bytes
        self._retention_ms = retention_ms
        self._log = CompactionLog(store)

    def run(self) -> CompactionSummary:
        """Finish what earlier runs have left, then compact."""
        now_ms = probe_store(self._store)
        swapped = self._exchange(now_ms)
        self._sweep(now_ms)
        compactions = list(self._compactions())
        swapped += self._exchange(now_ms) if compactions else 0
        return CompactionSummary(
            files=sum(len(compaction.replaced) for compaction in compactions),
            new_files=len(compactions),
            rows=sum(compaction.rows for compaction in compactions),
            bytes=sum(file.bytes for compaction in compactions for file in compaction.replaced),
            new_bytes=sum(compaction.bytes for compaction in compactions),
            swapped=swapped,
            waiting=sum(not state.decision for state in self._log.states()),
        )

    # --- steps 1 and 2 ----------------------------------------------------------------------------

    def _compactions(self) -> Iterator[Compaction]:
        for files in self._groups():
            compaction = self._merged(files)
            if compaction is not None:
                yield compaction

    def _groups(self) -> Iterator[list[StoredFile]]:
        """Yield files that become one, by folder and columns, in the order of their names."""
        by_folder: dict[str, list[StoredFile]] = {}
        for file in self._candidates():
            by_folder.setdefault(file.path.rpartition("/")[0], []).append(file)
        for files in by_folder.values():
            if len(files) > 1:
                yield from self._of_folder(sorted(files, key=lambda file: _order(file.path)))

    def _of_folder(self, files: Iterable[StoredFile]) -> Iterator[list[StoredFile]]:
        open_groups: dict[bytes, list[StoredFile]] = {}
        for file in files:
            try:
                columns = self._merger.columns(file.path)
            except FileNotFoundError:  # removed by the user
                continue
            group = open_groups.setdefault(columns, [])
            if group and sum(member.bytes for member in group) + file.bytes > self._target:
                if len(group) > 1:
                    yield group
                group = open_groups[columns] = []
            group.append(file)
        yield from (group for group in open_groups.values() if len(group) > 1)

    def _candidates(self) -> list[StoredFile]:
        """Return the small files of the table that no one has a claim to.

        The log is read after the listing: the files of every batch but the newest are finished.
        """
        files = [
            file
            for file in self._store.files("")
            if not is_hidden(file.path)
            and file.path.endswith(self._merger.ending)
            and file.bytes < self._target
        ]
        log = ManifestLog(self._store)
        last = log.last()
        claimed = set()
        if last is not None and not log.is_finished(last):
            claimed = {file.path for file in last.files}
        for state in self._log.states():
            if state.done_ms is None and not state.is_cancelled:
                claimed |= {file.path for file in state.compaction.replaced}
                claimed.add(state.compaction.path)
        return [file for file in files if file.path not in claimed]

    def _merged(self, files: list[StoredFile]) -> Compaction | None:
        """Write a new file and its manifest; None if others were faster, or a file was removed."""
        paths = [file.path for file in files]
        path = _new_path(paths[0], self._merger.ending)
        hidden = Compaction(path, 0, 0, ()).hidden
        try:
            expected = sum(self._merger.rows(path) for path in paths)
            rows, size = self._merger.merge(paths, hidden)
        except (FileNotFoundError, StorageError) as error:
            if self._are_there(files):
                raise
            logger.info("%s: a file was removed meanwhile: %s", self._store.url, error)
            return None
        compaction = Compaction(
            path, size, rows, tuple(ReplacedFile(file.path, file.bytes) for file in files)
        )
        if rows != expected or self._merger.rows(hidden) != expected:
            self._store.remove(hidden)
            raise KafkaError(
                f"{self._store.url}/{paths[0]} and {len(paths) - 1} more have {expected} rows, and "
                f"the new file has {rows}",
                hint="this is a bug of kfast, or of the disk; the table is as it was",
            )
        self._store.fsync_names([hidden])
        if not self._are_there(files) or not self._log.publish(compaction):
            self._store.remove(hidden)
            return None
        logger.info("%s: %s has the rows of %d files", self._store.url, path, len(files))
        return compaction

    def _are_there(self, files: Iterable[StoredFile]) -> bool:
        return all(self._store.stat(file.path) == file for file in files)

    # --- steps 3 to 5 -----------------------------------------------------------------------------

    def _exchange(self, now_ms: int) -> int:
        """Do the steps that are due of all compactions; return how many new files took a place."""
        swapped = 0
        states = self._log.states()
        for state in states:
            is_newest = state is states[-1]
            if state.done_ms is not None:
                if self._is_over(state.done_ms, now_ms):
                    self._log.forget(state, is_newest=is_newest)
            elif state.is_cancelled:
                if self._is_over(state.decided_ms, now_ms):
                    self._log.forget(state, is_newest=is_newest)
            elif state.is_swapping or self._is_over(state.created_ms, now_ms):
                swapped += self._swap(state)
        return swapped

    def _is_over(self, since_ms: int, now_ms: int) -> bool:
        return not self._retention_ms or now_ms - since_ms >= self._retention_ms

    def _swap(self, state: State) -> bool:
        compaction = state.compaction
        if not state.is_swapping:
            stored = [self._store.stat(file.path) for file in compaction.replaced]
            is_whole = compaction.is_replaced_in(filter(None, stored))
            if not self._log.decide(compaction, swaps=is_whole):
                logger.warning(
                    "%s: %s is not used: a file that it would replace was removed or changed",
                    self._store.url,
                    compaction.path,
                )
                return False
        for file in compaction.replaced:
            self._store.remove(file.path)
        try:
            if self._log.is_done(compaction):
                return False
            self._store.copy(compaction.hidden, compaction.path)
        except FileNotFoundError:
            if self._log.is_done(compaction):
                return False
            raise KafkaError(
                f"{self._store.url}/{compaction.hidden} is lost: it has the rows of "
                f"{len(compaction.replaced)} files that it replaces",
                hint="restore it; do not change the folder _kfast",
            ) from None
        if self._log.is_done(compaction):
            self._remove_replaced(compaction.path)
            return False
        self._store.fsync_names([compaction.path, *(file.path for file in compaction.replaced)])
        self._log.mark_done(compaction)
        return True

    def _remove_replaced(self, path: str) -> None:
        """Remove a file that came late: another process finished the exchange and went on."""
        for state in self._log.states():
            if state.is_swapping and path in {file.path for file in state.compaction.replaced}:
                self._store.remove(path)

    def _sweep(self, now_ms: int) -> None:
        """Remove new files without a manifest, which a killed compaction has left."""
        listed = {state.compaction.hidden for state in self._log.states()}
        for file in self._store.files(COMPACTED):
            if file.path not in listed and now_ms - file.modified_ms >= _ORPHAN_AGE_MS:
                self._store.remove(file.path)
        self._store.remove_empty_folders(COMPACTED)

    def __repr__(self) -> str:
        return f"<Compactor {self._store.url}>"


def _order(path: str) -> list[int | str]:
    """Return a key by which ``t-0-9`` is before ``t-0-10``."""
    return [int(piece) if piece.isdigit() else piece for piece in _NUMBERS.split(path)]


def _new_path(first: str, ending: str) -> str:
    """Return a name that no file has had, beside the first one in the order of names."""
    stem = _OURS.sub("", first.removesuffix(ending))
    return f"{stem}-c{uuid.uuid4().hex[:16]}{ending}"
