"""Publisher: makes the ranges that tasks have written part of a table, exactly once.

Owns the order of steps that exactly-once depends on, for every format of tables:

1. Tasks write to the staging folder, under unique names, and flush their files to disk.
2. ``publish`` appends the batch to the log of the table (`TableLog`), which makes its files and its
   offsets part of the table in one step, if the log ends where the batch begins.

===============================  ==================================================================
failure                          recovery
===============================  ==================================================================
a task, or the driver before 2   the batch is repeated; its files so far are orphans, and swept
the driver inside of 2           ``recover`` of the log finishes or undoes it at the next start;
                                 Spark repeats the batch: if the log has it, its new files are
                                 removed
the driver after 2               Spark may repeat the batch: the same
the connection to an object      the batch may become part of the table later: its files stay until
store in 2                       then, or until they are swept; the attempt that is first counts
===============================  ==================================================================

Spark repeats a batch up to the same end offsets, though its tasks may differ: a batch that was
published with other ends, or other partitions, is an error.

One process publishes, with Spark the driver. Independent of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kfast._base.logs import get_logger
from kfast.errors import IllegalStateError, KafkaError
from kfast.table.batches import (
    BatchPart,
    DataFile,
    PartitionGone,
    ReadRange,
    batch_ends,
    files_in,
)
from kfast.table.entries import Entry, TableShape, Writer
from kfast.table.fsspec_store import open_store
from kfast.table.leftovers import sweep_leftovers
from kfast.table.staged_files import StagedFiles
from kfast.table.table_log import OpenFolder, TableLog
from kfast.types import TopicPartition

logger = get_logger(__name__)

ALL: Final = -(1 << 62)
"""An age in ms that every file has, whatever the clocks say."""


class Publisher:
    """Publishes the batches of one table; ``open_folder`` opens folders of dead letters."""

    def __init__(self, log: TableLog, open_folder: OpenFolder = open_store) -> None:
        self._log = log
        self._url = log.store.url
        self._files = StagedFiles(log.store, open_folder)

    def publish(
        self,
        writer: Writer,
        batch_id: int,
        parts: Sequence[BatchPart],
        topic_ids: Mapping[str, str] | None = None,
        shape: TableShape | None = None,
        previous: Entry | None = None,
    ) -> Entry:
        """Publish a batch, unless it was published before; return its entry.

        ``topic_ids`` are kept in it, and so is ``shape``, that of its files. ``previous`` is the
        entry before it, if the writer knows; else the newest one, which must be the writer's.
        Raises ``KafkaError``, with the table unchanged, if another writer has taken over, the table
        has some of the offsets, or a file does not exist.
        """
        entry = None if previous is not None else self._log.published(writer, batch_id)
        if entry is None:
            before = previous or self._previous(writer, batch_id)
            entry = before.next(batch_id, parts, topic_ids, shape, writer)
            self._check_files(entry)
            if self._log.append(entry):
                return entry
            entry = self._log.published(writer, batch_id)
        if entry is None:
            raise self._taken_over(self._log.last())
        self._check_same(entry, writer, batch_id, parts)
        logger.info("batch %d of %s was published before", batch_id, self._url)
        self._log.recover(entry)
        self._files.remove_staged(files_in(parts), entry.files)
        return entry

    def abort(
        self, writer: Writer, batch_id: int, files: Sequence[DataFile], *, is_complete: bool
    ) -> None:
        """Remove the files of a failed batch, except for those that were published.

        ``is_complete``: all tasks were done, so it was `publish` that raised, possibly before or
        after the batch became part of the table. Where it may still become, the files stay; if it
        does not, the sweep removes them. So do those of a pending entry, whose commit may still be
        on its way to a catalog.
        """
        entry = self._log.published(writer, batch_id)
        if entry is not None or not (is_complete and self._log.store.may_create_late):
            pending = self._log.claimed()
            failed = [file for file in files if file.staged not in pending]
            self._files.remove_staged(failed, () if entry is None else entry.files)

    def _previous(self, writer: Writer, batch_id: int) -> Entry:
        """The newest entry; it must be this writer's, and that of the batch before."""
        last = self._log.last()
        if last is None:
            raise KafkaError(
                f"{self._url} is gone, or was begun anew",
                cause="the table was removed while it was written",
                hint="start the ingest again, as the table is now",
            )
        if last.writer != writer:
            raise self._taken_over(last)
        last_id = -1 if last.batch_id is None else last.batch_id
        if batch_id != last_id + 1:
            raise KafkaError(
                f"{self._url} has batches up to {last_id} of this ingest, and batch {batch_id} "
                "does not follow",
                cause="the checkpoint, or the table, was restored to another state",
                hint="use a new checkpoint, with --take-over (take_over=True)",
            )
        return last

    def _check_same(
        self, entry: Entry, writer: Writer, batch_id: int, parts: Sequence[BatchPart]
    ) -> None:
        """Check that the batch published under a number is the one to be published now."""
        if entry.writer != writer:
            raise self._taken_over(entry)
        published, repeated = batch_ends(entry.parts), batch_ends(parts)
        # Ranges without offsets are added for the file with the columns, which is there by now.
        read = _partitions_read(entry.parts) | _partitions_read(parts)
        for tp in sorted(read | (published.keys() & repeated.keys())):
            before, now = (
                "no offsets" if tp not in ends else _end_text(ends[tp])
                for ends in (published, repeated)
            )
            if before != now:
                raise KafkaError(
                    f"batch {batch_id} was published with {before} of {tp}, and is repeated with "
                    f"{now}",
                    cause="the checkpoint was changed, or restored to an older state",
                    hint="use a new checkpoint, with --take-over (take_over=True)",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=repeated.get(tp),
                )

    def sweep(self, now_ms: int, age_ms: int, folder: str = "") -> int:
        """Remove the orphans that failed tasks left; return how many files.

        Only before a query is started: files of a running query look like orphans. The least age
        protects those of a second query that runs by mistake; with `ALL` every orphan goes. Times
        are by the store's clock. ``folder`` is that of dead letters.
        """
        if age_ms != ALL and age_ms < 0:
            raise IllegalStateError("the age of orphans is negative")
        claimed = self._log.claimed()
        swept = sum(
            self._files.sweep(url, claimed, now_ms, age_ms) for url in dict.fromkeys(("", folder))
        )
        swept += sweep_leftovers(self._log.store, now_ms)
        if swept:
            logger.info("removed %d files in no batch of %s", swept, self._url)
        return swept

    def _check_files(self, entry: Entry) -> None:
        try:
            self._files.check(entry)
        except KafkaError:
            last = self._log.last()  # an ingest that has taken over sweeps the files of this one
            if last is not None and last.writer != entry.writer:
                raise self._taken_over(last) from None
            raise

    def _taken_over(self, last: Entry | None) -> KafkaError:
        writer = "by no ingest" if last is None else f"by {last.writer}"
        return KafkaError(
            f"{self._url} is now written {writer}",
            cause="another ingest has taken over, or entries of its log were removed",
            hint="stop this one",
        )

    def __repr__(self) -> str:
        return f"<Publisher {self._url}>"


def _partitions_read(parts: Iterable[BatchPart]) -> set[TopicPartition]:
    """The partitions of which a batch has offsets, or that are gone."""
    return {
        batch_part.topic_partition
        for batch_part in parts
        if (
            batch_part.offsets.size
            if isinstance(batch_part, ReadRange)
            else isinstance(batch_part, PartitionGone)
        )
    }


def _end_text(end: int | None) -> str:
    return "the end" if end is None else f"offsets up to {end - 1}"
