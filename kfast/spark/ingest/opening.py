"""Opens the table of an ingest for a query: as a new writer, or as the one that it was before.

Owns which checkpoint may write a table. Driver only, before the query starts.
"""

from __future__ import annotations

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError
from kfast.spark.ingest.checkpoint import has_batches, writer_id
from kfast.table.entries import Entry, TableShape, Writer
from kfast.table.leftovers import probe_store
from kfast.table.projection import Projection
from kfast.table.publish import Publisher
from kfast.table.store import TableStore
from kfast.table.table_log import OpenFolder, OpenTable, TableLog

logger = get_logger(__name__)


def open_table(
    log: TableLog,
    checkpoint: TableStore,
    shape: TableShape,
    projection: Projection,
    open_folder: OpenFolder,
    *,
    take_over: bool,
    orphan_age_ms: int,
    dead_letters: str = "",
) -> OpenTable:
    """Open the table for a checkpoint, finish its last batch and remove orphans.

    ``projection`` has the columns of the files. With ``take_over`` the table may be written from
    another checkpoint than before. A checkpoint that has batches can only continue its own table,
    as Spark numbers its next batch after those.

    Raises ``ConfigurationError`` if another checkpoint writes the table, or the table is of another
    shape.
    """
    now_ms = probe_store(log.store)
    last = log.last()
    log.check(shape, projection, last)
    own_id = writer_id(checkpoint)
    is_own = last is not None and last.writer.id == own_id
    if last is not None and not is_own and not take_over:
        raise ConfigurationError(
            f"{log.store.url} is written by {last.writer}",
            found=f"this query has the checkpoint {checkpoint.url}",
            hint="use the same, or --take-over (take_over=True) if it writes no more",
        )
    if not is_own and has_batches(checkpoint):
        raise ConfigurationError(
            f"the checkpoint {checkpoint.url} has batches that {log.store.url} does not have",
            cause="it was used with another table, the table was removed, or another checkpoint "
            "wrote it meanwhile",
            hint="give the ingest an empty folder as its checkpoint",
        )
    log.recover(last)
    table = _begin(log, own_id, checkpoint.url, shape, projection, last, is_own=is_own)
    publisher = Publisher(log, open_folder)
    publisher.sweep(now_ms, orphan_age_ms, dead_letters)
    logger.info("%s: entry %d is the last", log.store.url, table.last.sequence)
    return table


def _begin(
    log: TableLog,
    own_id: str,
    checkpoint: str,
    shape: TableShape,
    projection: Projection,
    last: Entry | None,
    *,
    is_own: bool,
) -> OpenTable:
    writer = Writer(own_id, checkpoint, 0 if last is None else last.sequence + 1)
    if is_own and last is not None:
        writer = last.writer
    table = log.begin(writer, shape, projection, last)
    if table is None:
        raise ConfigurationError(
            f"another query has just begun to write {log.store.url}",
            hint="start only one of them",
        )
    return table
