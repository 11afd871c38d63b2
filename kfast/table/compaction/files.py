"""`table_files`: the files that have each record of a table exactly once, at this moment.

Owns the order in which the table is read, on which that rests: the newest batch first; then the
folder, without the files of batches that are not finished or came later; then compactions, which
say what of the folder's files is in one file now. No reader waits for a writer.
"""

from __future__ import annotations

from collections.abc import Mapping

from kfast.table.compaction.compacting import last_entry
from kfast.table.compaction.manifests import CompactionLog
from kfast.table.file_formats import file_ending
from kfast.table.fsspec_store import open_store
from kfast.table.manifest_log import ManifestLog
from kfast.table.store import TableStore
from kfast.table.table_log import is_hidden


def table_files(to: str, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Return the files of a table that have each record exactly once, as paths or URLs.

    For readers while a table is written or compacted: what lists its folder itself sees a batch
    file by file, and for a moment of a compaction not all files. Here a batch counts as a whole,
    once all of its files have their names. The files can be read for the retention time of
    compactions.

    Parameters
    ----------
    to : str
        Folder or URL of the table, as in `ingest`.
    storage_options : Mapping, optional
        For the filesystem of an object store.

    Returns
    -------
    list of str
        Sorted.

    Raises
    ------
    ConfigurationError
        The folder is no table of plain files of an ingest; a Delta or Iceberg table lists its own.

    Examples
    --------
    >>> ends = kfast.ingest("orders", to="/data/table", bootstrap_servers="localhost:9092").ends
    >>> kfast.table_files("/data/table")
    ['/data/table/orders-0-0-2.parquet', '/data/table/orders-1-0-1.parquet']
    """
    store = open_store(to, storage_options)
    return [f"{store.url}/{path}" for path in paths_of(store)]


def paths_of(store: TableStore) -> list[str]:
    """Return the same, relative to the table."""
    log = ManifestLog(store)
    last = last_entry(store)
    begun = set() if log.is_finished(last) else {file.path for file in last.files}
    ending = file_ending(last.shape.format)
    listed = store.files("")
    following = last.sequence + 1
    while (entry := log.entry(following)) is not None:
        begun.update(file.path for file in entry.files)
        following += 1
    visible = {
        file.path: file
        for file in listed
        if not is_hidden(file.path) and file.path.endswith(ending) and file.path not in begun
    }
    paths = set(visible)
    replaced: set[str] = set()
    for state in CompactionLog(store).states():
        compaction = state.compaction
        if state.is_cancelled:
            continue
        if not state.decision and not compaction.is_replaced_in(visible.values()):
            continue  # published after the listing, or a file was removed: the folder counts
        replaced.update(file.path for file in compaction.replaced)
        if compaction.path in paths:
            continue
        if state.done_ms is None:
            paths.add(compaction.hidden)
        elif store.stat(compaction.path):  # else the user has removed it
            paths.add(compaction.path)
    return sorted(paths - replaced)
