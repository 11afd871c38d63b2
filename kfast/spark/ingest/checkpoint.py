"""The checkpoint of an ingest's query: its own files there, and which table it may write.

Owns how a table is opened for a checkpoint: as a new writer, or as the one that it was before. And
two files beside Spark's own. One has the id by which the table identifies its writer. The path
of the folder does not identify it, since a checkpoint may be moved, or removed and begun anew in
the same place: then Spark numbers its batches from 0 again, and they must not be taken for the
earlier ones. The other has the start offsets of the first batch: Spark's files have the end of a
batch, but not the start of the first, which is asked for again when the batch is repeated.

Spark writes its own files without fsync. A published batch must be repeated with the same offsets,
so they are flushed before it is published.

Driver only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Final

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError
from kfast.table.entries import Entry, TableShape, Writer
from kfast.table.leftovers import probe_store
from kfast.table.offsets_json import from_json_dict, to_json_dict
from kfast.table.projection import Projection
from kfast.table.publish import Publisher
from kfast.table.store import TableStore
from kfast.table.table_log import OpenFolder, OpenTable, TableLog
from kfast.types import TopicPartition

logger = get_logger(__name__)

ID_FILE: Final = "kfast-ingest.json"
_START_FILE: Final = "kfast-start.json"
_BATCHES: Final = "offsets"
_METADATA: Final = "metadata"


def writer_id(store: TableStore) -> str:
    """Return the id in a checkpoint; an empty one gets an id.

    Raises ``ConfigurationError`` if it is another query's, or the folder cannot be written.
    """
    try:
        data = _id_file(store)
    except OSError as error:
        raise ConfigurationError(
            f"cannot use {store.url} as a checkpoint", cause=str(error), hint="check the folder"
        ) from error
    try:
        return str(json.loads(data)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{store.url}/{ID_FILE} is damaged", cause=str(error), hint="restore the file"
        ) from error


def _id_file(store: TableStore) -> bytes:
    data = store.read(ID_FILE)
    if data is None:
        if store.files(_BATCHES):
            raise ConfigurationError(
                f"{store.url} is the checkpoint of another query",
                found=f"Spark's files, but no {ID_FILE}",
                hint="give the ingest an empty folder",
            )
        fresh = json.dumps({"id": uuid.uuid4().hex}).encode()
        data = fresh if store.create(ID_FILE, fresh) else store.read(ID_FILE) or b""
    return data


def has_batches(store: TableStore) -> bool:
    """Return whether Spark has planned a batch with this checkpoint."""
    return bool(store.files(_BATCHES))


def first_offsets(
    store: TableStore, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The start offsets of a query's first batch: ``offsets`` at the first call.

    Log starts and ends may have moved when the batch is repeated.
    """
    if store.create(_START_FILE, json.dumps(to_json_dict(offsets)).encode()):
        return dict(offsets)
    return from_json_dict(json.loads(store.read(_START_FILE) or b"{}"))


def fsync_batch(store: TableStore, batch_id: int) -> None:
    """Flush Spark's checkpoint files of a batch to disk, with their names."""
    names = (
        _METADATA,
        f".{_METADATA}.crc",
        f"{_BATCHES}/{batch_id}",
        f"{_BATCHES}/.{batch_id}.crc",
    )
    written = [name for name in names if store.stat(name) is not None]
    for name in written:
        store.fsync(name)
    store.fsync_names(written)


# --- opening the table ----------------------------------------------------------------------------


def open_table(
    log: TableLog,
    last: Entry | None,
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

    ``last`` is the newest entry of its log. ``projection`` has the columns of the files. With
    ``take_over`` the table may be written from another checkpoint than before. A checkpoint that
    has batches can only continue its own table, as Spark numbers its next batch after those.

    Raises ``ConfigurationError`` if another checkpoint writes the table, or the table is of another
    shape.
    """
    now_ms = probe_store(log.store)
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
