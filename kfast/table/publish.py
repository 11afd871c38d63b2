"""Publisher: makes the files of a micro-batch part of the table, once.

Owns the order of steps, which is all there is to exactly-once:

1. Tasks write to the staging folder, under names nobody else uses, and flush to the disk.
2. ``publish``: the manifest is created in the log, if there is none with its number. From then on
   the batch counts, whatever happens.
3. Its files are renamed to what readers see. The names are known from the manifest, so this can be
   done again, by anyone.
4. A `Register`, if there is one, tells others of the files (Delta). It must bear being told twice.

Each step is on the disk before the next: a table is as good after the death of the machine as after
that of a process.

===============================  ==================================================================
what dies when                   what happens then
===============================  ==================================================================
a task, or a driver before 2     the batch is repeated; its files so far are orphans
a driver between 2 and 4         ``recover`` does the rest at the next start; the batch is repeated
                                 by Spark, its manifest is found, its new files are removed
a driver after 4                 the same, with nothing left to do
the way to an object store, in   the manifest may be created when nobody waits for it any more: the
2                                files stay until it is there or they are swept, the batch is
                                 repeated; whichever manifest comes first, names its files
===============================  ==================================================================

A batch is known by its number in the log, which follows from the writer's beginning and Spark's
batch id. Spark repeats a batch up to the same offsets, whatever other plan it makes.

Driver only. Knows nothing of Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from kfast.errors import IllegalStateError, KafkaError
from kfast.table.log import STAGING, TableLog
from kfast.table.manifest import DataFile, Entry, Writer
from kfast.types import TopicPartition

_log: Final = logging.getLogger(__name__)


class Register(Protocol):
    """Who else is told of the files of a batch."""

    def add(self, entry: Entry) -> None:
        """Add a batch's files, unless that has been done."""
        ...


class Publisher:
    """Publishes the batches of one table.

    Parameters
    ----------
    log : TableLog
        Of the table.
    register : Register, optional
        Told of each batch once its files have their names.
    """

    def __init__(self, log: TableLog, register: Register | None = None) -> None:
        self._log = log
        self._store = log.store
        self._register = register

    # --- batches ----------------------------------------------------------------------------------

    def publish(self, writer: Writer, batch_id: int, files: Sequence[DataFile]) -> Entry:
        """Publish a batch, or find that it has been.

        Parameters
        ----------
        writer : Writer
            Whose batch.
        batch_id : int
            Spark's number of it.
        files : sequence of DataFile
            What its tasks wrote.

        Returns
        -------
        Entry
            Its manifest.

        Raises
        ------
        KafkaError
            Another writer has taken over, the table has some of the offsets, or a file is not
            there. The table is as before.
        """
        sequence = writer.sequence(batch_id)
        found = self._log.entry(sequence)
        if found is None:
            entry = self._previous(writer, sequence).next(batch_id, files)
            self._check_staged(entry)
            self._store.keep_names(file.staged for file in entry.written)
            if self._log.append(entry):
                self._finish(entry)
                self._log.forget_before(sequence)
                return entry
            found = self._log.entry(sequence)
        if found is None:
            raise KafkaError(
                f"entry {sequence} of {self._store.url} was there and is gone",
                hint="let nobody else change the folder _kfast",
            )
        self._check_same(found, writer, batch_id, files)
        _log.info("batch %d of %s was published before", batch_id, self._store.url)
        self._finish(found)
        self._remove_unlisted(files, found)
        return found

    def abort(
        self, writer: Writer, batch_id: int, files: Sequence[DataFile], *, is_complete: bool
    ) -> None:
        """Remove the files of a batch that failed, except for those that were published.

        Parameters
        ----------
        writer : Writer
            Whose batch.
        batch_id : int
            Spark's number of it.
        files : sequence of DataFile
            What its tasks wrote.
        is_complete : bool
            Whether all tasks were done: then it was ``publish`` that raised, which may be after
            the batch counted, or before it counts. Where a manifest may still come to be, the
            files wait for it; without it, the sweep removes them.
        """
        found = self._log.entry(writer.sequence(batch_id))
        if found is not None or not (is_complete and self._store.may_create_late):
            self._remove_unlisted(files, found)

    def _remove_unlisted(self, files: Sequence[DataFile], entry: Entry | None) -> None:
        listed = {file.staged for file in entry.files} if entry is not None else set()
        for file in files:
            if file.staged and file.staged not in listed:
                self._store.remove(file.staged)

    def _previous(self, writer: Writer, sequence: int) -> Entry:
        """Return the entry before; it must be this writer's."""
        entry = self._log.entry(sequence - 1)
        if entry is None:
            raise KafkaError(
                f"the log of {self._store.url} does not reach entry {sequence - 1}",
                cause="entries were removed, or this query has slept while another wrote on",
                hint="stop this query; start it again with the checkpoint that writes the table",
            )
        if entry.writer.id != writer.id:
            raise _taken_over(self._store.url, entry)
        return entry

    def _check_same(
        self, found: Entry, writer: Writer, batch_id: int, files: Sequence[DataFile]
    ) -> None:
        """Check that what was published under a number is what is to be published now."""
        if found.writer.id != writer.id:
            raise _taken_over(self._store.url, found)
        published, given = _ends(found.files), _ends(files)
        for tp in sorted(published.keys() & given.keys()):
            if published[tp] != given[tp]:
                raise KafkaError(
                    f"batch {batch_id} was published with {tp} up to {published[tp] - 1}, and "
                    f"comes again with offsets up to {given[tp] - 1}",
                    cause="the checkpoint was changed, or put back to an older state",
                    hint="use a new checkpoint, with --take-over (take_over=True)",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=given[tp],
                )

    def _check_staged(self, entry: Entry) -> None:
        """Check that the driver sees what the tasks wrote, before it says that it is there."""
        for file in entry.written:
            found = self._store.stat(file.staged)
            if found is None or found.bytes != file.bytes:
                raise KafkaError(
                    f"{self._store.url}/{file.staged} is not there as its task wrote it",
                    cause="the driver and the workers do not see the same folder, or somebody "
                    "removed the file",
                    found="no such file" if found is None else f"{found.bytes} bytes",
                    hint="write to a folder that all machines share",
                    topic=file.topic,
                    partition=file.partition,
                    offset=file.from_offset,
                )

    # --- finishing --------------------------------------------------------------------------------

    def _finish(self, entry: Entry) -> None:
        """Let readers see the files of an entry; to be done again as often as needed."""
        for file in entry.written:
            try:
                self._store.rename(file.staged, file.path)
            except FileNotFoundError:
                found = self._store.stat(file.path)
                if found is None or found.bytes != file.bytes:
                    raise KafkaError(
                        f"{self._store.url}/{file.path} is lost: it was published, and is neither "
                        "there nor in the staging folder",
                        hint="restore the file; its offsets are "
                        f"{file.from_offset} to {file.until_offset - 1} of {file.topic_partition}",
                        topic=file.topic,
                        partition=file.partition,
                        offset=file.from_offset,
                    ) from None
        # Before there is another entry: only the newest is ever finished again.
        self._store.keep_names(file.path for file in entry.written)
        if self._register is not None and entry.batch_id is not None:
            self._register.add(entry)

    def recover(self, last: Entry) -> None:
        """Finish the newest entry; those before it were, or it would not be there."""
        self._finish(last)

    def sweep(self, now_ms: int, age_ms: int) -> int:
        """Remove what tasks left behind; return how many files.

        Only before a query is started: the files of a running one are not told from orphans. The
        age keeps those of a query that somebody else runs by mistake.

        Parameters
        ----------
        now_ms : int
            The time by the store's clock.
        age_ms : int
            How old an orphan is at least.
        """
        if age_ms < 0:
            raise IllegalStateError("the age of orphans is negative")
        last = self._log.last()
        listed = {file.staged for file in last.files} if last is not None else set()
        swept = 0
        for file in self._store.files(STAGING):
            if file.path not in listed and now_ms - file.modified_ms >= age_ms:
                self._store.remove(file.path)
                swept += 1
        if swept:
            _log.info("removed %d files that no batch of %s has", swept, self._store.url)
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
        f"{url} is now written from the checkpoint {entry.writer.checkpoint}",
        cause="another query has taken the table over",
        hint="stop this query",
    )
