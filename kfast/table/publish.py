"""Publisher: makes the files of a batch part of the table, exactly once.

Owns the order of steps that exactly-once depends on; a batch is a micro-batch of Spark, or some
finished files of ``kfast ingest``, which repeats no batch:

1. Tasks write to the staging folder, under unique names, and fsync their files.
2. ``publish``: the manifest is created in the log, if there is none with its number. From then on
   the batch is part of the table.
3. Its files are renamed to the names that readers see. The names are in the manifest, so that any
   process can repeat this.
4. A `Register`, if there is one, adds the files to another catalog (Delta). It must be idempotent.
5. The batch is marked as finished. From then on its files are the user's, and nothing here asks for
   them again: they may be deleted, moved to another place, compacted or vacuumed.

Each step is flushed to disk before the next, so that a table survives a crash of the machine as it
does that of a process.

===============================  ==================================================================
failure                          recovery
===============================  ==================================================================
a task, or the driver before 2   the batch is repeated; its files so far are orphans
the driver between 2 and 5       ``recover`` does steps 3 to 5 at the next start; Spark repeats the
                                 batch, its manifest is found, its new files are removed
the driver after 5               Spark may repeat the batch: the same, but for steps 3 to 5
the connection to an object      the manifest may be created later: the files stay until it exists
store in 2                       or they are swept, the batch is repeated; the manifest that is
                                 created first names its files
===============================  ==================================================================

A batch is identified by its number in the log, computed from the writer's first entry and Spark's
batch id. Spark repeats a batch up to the same end offsets, though its tasks may differ.

One process publishes, with Spark the driver. Independent of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kfast._logging import Logger
from kfast.errors import IllegalStateError, KafkaError
from kfast.table.fsspec_store import open_store
from kfast.table.log import STAGING, TableLog, finished_path
from kfast.table.manifest import DataFile, Entry, TableShape, Writer
from kfast.table.store import TableStore
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.table.delta_register import DeltaRegister
    from kfast.table.iceberg_register import IcebergRegister

logger = Logger(__name__)

ALL: Final = -(1 << 62)
"""An age in ms that every file has, whatever the clocks say."""


class Register(Protocol):
    """Another catalog that lists the files of each batch, such as a Delta log."""

    def add(self, entry: Entry) -> None:
        """Add a batch's files, unless they were added before."""
        ...

    def has(self, entry: Entry) -> bool:
        """Return whether a batch's files were added."""
        ...


def register_for(store: TableStore, shape: TableShape) -> DeltaRegister | IcebergRegister | None:
    """Return what registers the batches of a Delta or Iceberg table, None for plain files."""
    if shape.format == "iceberg":
        from kfast.table.iceberg_register import IcebergRegister  # noqa: PLC0415 - needs pyarrow

        return IcebergRegister(store, shape)
    if shape.format != "delta":
        return None
    from kfast.table.delta_register import DeltaRegister  # noqa: PLC0415 - needs pyarrow

    return DeltaRegister(store, shape)


class Publisher:
    """Publishes the batches of one table; adds each to ``register`` after its files are renamed.

    ``open_folder`` opens the folder of dead letters that a manifest names.
    """

    def __init__(
        self,
        log: TableLog,
        register: Register | None = None,
        open_folder: Callable[[str], TableStore] = open_store,
    ) -> None:
        self._log = log
        self._store = log.store
        self._register = register
        self._open_folder = open_folder
        self._folders: dict[str, TableStore] = {"": self._store}

    def _store_of(self, file: DataFile) -> TableStore:
        """Return the store that a file is in: the table's, or that of dead letters."""
        if file.folder not in self._folders:
            self._folders[file.folder] = self._open_folder(file.folder)
        return self._folders[file.folder]

    def _fsync_names(self, files: Iterable[DataFile], name: Callable[[DataFile], str]) -> None:
        by_folder: dict[str, list[DataFile]] = {}
        for file in files:
            by_folder.setdefault(file.folder, []).append(file)
        for each in by_folder.values():
            self._store_of(each[0]).fsync_names(map(name, each))

    # --- batches ----------------------------------------------------------------------------------

    def publish(
        self,
        writer: Writer,
        batch_id: int,
        files: Sequence[DataFile],
        topic_ids: Mapping[str, str] | None = None,
        shape: TableShape | None = None,
    ) -> Entry:
        """Publish a batch, unless it was published before; return its manifest.

        ``topic_ids`` are kept in it, and so is ``shape``, that of its files. Raises ``KafkaError``,
        with the table unchanged, if another writer has taken over, the table has some of the
        offsets, or a file does not exist.
        """
        sequence = writer.sequence(batch_id)
        found = self._log.entry(sequence)
        if found is None:
            entry = self._previous(writer, sequence).next(batch_id, files, topic_ids, shape)
            self._check_staged(entry)
            self._fsync_names(entry.staged, lambda file: file.staged)
            if self._log.append(entry):
                self._finish(entry)
                self._log.forget_before(sequence)
                return entry
            found = self._log.entry(sequence)
        if found is None:
            raise KafkaError(
                f"entry {sequence} of {self._store.url} existed and is gone",
                hint="do not change the folder _kfast",
            )
        self._check_same(found, writer, batch_id, files)
        logger.info("batch %d of %s was published before", batch_id, self._store.url)
        self.recover(found)
        self._remove_unlisted(files, found)
        return found

    def abort(
        self, writer: Writer, batch_id: int, files: Sequence[DataFile], *, is_complete: bool
    ) -> None:
        """Remove the files of a failed batch, except for those that were published.

        ``is_complete``: all tasks were done, so it was `publish` that raised, possibly before or
        after the manifest was created. Where it may still be created, the files stay; if it is not,
        the sweep removes them.
        """
        found = self._log.entry(writer.sequence(batch_id))
        if found is not None or not (is_complete and self._store.may_create_late):
            self._remove_unlisted(files, found)

    def _remove_unlisted(self, files: Sequence[DataFile], entry: Entry | None) -> None:
        listed = {file.staged for file in entry.files} if entry is not None else set()
        for file in files:
            if file.staged and file.staged not in listed:
                self._store_of(file).remove(file.staged)

    def _previous(self, writer: Writer, sequence: int) -> Entry:
        """Return the entry before ``sequence``; it must be this writer's."""
        entry = self._log.entry(sequence - 1)
        if entry is None:
            raise KafkaError(
                f"the log of {self._store.url} does not reach entry {sequence - 1}",
                cause="entries were removed, or another ingest wrote while this one was suspended",
                hint="stop this one; start it again as the table is written now",
            )
        if entry.writer != writer:
            raise _taken_over(self._store.url, entry)
        return entry

    def _check_same(
        self, found: Entry, writer: Writer, batch_id: int, files: Sequence[DataFile]
    ) -> None:
        """Check that the batch published under a number is the one to be published now."""
        if found.writer != writer:
            raise _taken_over(self._store.url, found)
        published, given = _ends(found.files), _ends(files)
        for tp in sorted(published.keys() & given.keys()):
            if published[tp] != given[tp]:
                raise KafkaError(
                    f"batch {batch_id} was published with {tp} up to {published[tp] - 1}, and "
                    f"is repeated with offsets up to {given[tp] - 1}",
                    cause="the checkpoint was changed, or restored to an older state",
                    hint="use a new checkpoint, with --take-over (take_over=True)",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=given[tp],
                )

    def _check_staged(self, entry: Entry) -> None:
        """Check that the driver sees the tasks' files, before the manifest lists them."""
        for file in entry.staged:
            store = self._store_of(file)
            found = store.stat(file.staged)
            if found is None or found.bytes != file.bytes:
                raise KafkaError(
                    f"{store.url}/{file.staged} is not as its task wrote it",
                    cause="the driver and the workers do not see the same folder, or the file was "
                    "removed",
                    found="no such file" if found is None else f"{found.bytes} bytes",
                    hint="write to a folder that all machines share",
                    topic=file.topic,
                    partition=file.partition,
                    offset=file.from_offset,
                )

    # --- steps 3 to 5 -----------------------------------------------------------------------------

    def recover(self, entry: Entry) -> None:
        """Finish an entry, unless it was finished before.

        At a start only the newest needs it: those before were finished before it was created.
        """
        if self._log.is_finished(entry):
            return
        # Added to the catalog, which may have removed files since: only the mark is missing.
        if self._register is not None and self._register.has(entry):
            self._log.mark_finished(entry)
        else:
            self._finish(entry)

    def _finish(self, entry: Entry) -> None:
        """Rename the files of an entry to their final names and register them; idempotent."""
        for file in entry.staged:
            store = self._store_of(file)
            try:
                store.rename(file.staged, file.path)
            except FileNotFoundError:
                found = store.stat(file.path)
                if found is None or found.bytes != file.bytes:
                    raise self._lost(entry, file) from None
        # Before the next entry is created: `recover` finishes the newest entry only.
        self._fsync_names(entry.staged, lambda file: file.path)
        if self._register is not None and entry.batch_id is not None:
            self._register.add(entry)
        self._log.mark_finished(entry)

    def _lost(self, entry: Entry, file: DataFile) -> KafkaError:
        url = self._store.url
        return KafkaError(
            f"{self._store_of(file).url}/{file.path} is lost: its batch was published but not "
            "finished, and it is neither in its folder nor in the staging folder",
            found=f"offsets {file.from_offset} to {file.until_offset - 1} of "
            f"{file.topic_partition}",
            hint="restore the file; if it was moved or deleted on purpose, create the empty file "
            f"{url}/{finished_path(entry.sequence)}",
            topic=file.topic,
            partition=file.partition,
            offset=file.from_offset,
        )

    def sweep(self, now_ms: int, age_ms: int, folder: str = "") -> int:
        """Remove the orphans that failed tasks left; return how many files.

        Only before a query is started: files of a running query look like orphans. The least age
        protects those of a second query that runs by mistake; with `ALL` every orphan goes. Times
        are by the store's clock. ``folder`` is that of dead letters.
        """
        if age_ms != ALL and age_ms < 0:
            raise IllegalStateError("the age of orphans is negative")
        last = self._log.last()
        listed = {file.staged for file in last.files} if last is not None else set()
        swept = 0
        for url in dict.fromkeys(("", folder)):
            store = self._folders.get(url) or self._open_folder(url)
            for file in store.files(STAGING):
                if file.path not in listed and now_ms - file.modified_ms >= age_ms:
                    store.remove(file.path)
                    swept += 1
            store.remove_empty_folders(STAGING)
        if swept:
            logger.info("removed %d files in no batch of %s", swept, self._store.url)
        return swept

    def __repr__(self) -> str:
        return f"<Publisher {self._store.url}>"


def _ends(files: Sequence[DataFile]) -> dict[TopicPartition, int]:
    ends: dict[TopicPartition, int] = {}
    for file in files:
        tp = file.topic_partition
        ends[tp] = max(ends.get(tp, 0), file.until_offset)
    return ends


def _taken_over(url: str, entry: Entry) -> KafkaError:
    return KafkaError(
        f"{url} is now written by {entry.writer}",
        cause="another ingest has taken over",
        hint="stop this one",
    )
