"""The id of a query in its checkpoint, and fsync of Spark's files there.

Owns one file beside Spark's own in a query's checkpoint: the id by which the table identifies its
writer. The path of the folder does not identify it, since a checkpoint may be moved, or removed and
begun anew in the same place: then Spark numbers its batches from 0 again, and they must not be
taken for the earlier ones.

Spark writes its own files without fsync. A published batch must be repeated with the same offsets,
so they are flushed before it is published.

Driver only.
"""

from __future__ import annotations

import json
import uuid
from typing import Final

from kfast.errors import ConfigurationError
from kfast.table.store import TableStore

ID_FILE: Final = "kfast-ingest.json"
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
