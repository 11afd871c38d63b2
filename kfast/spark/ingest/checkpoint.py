"""Checkpoint: how a table tells one query from another.

Owns one file beside Spark's own in a query's checkpoint: the id under which the table knows the
query. A folder's path would not do, since a checkpoint may be moved, or removed and begun anew in
the same place: then Spark numbers its batches from 0 again, and they must not be taken for the old.

Spark writes its own files without flushing them. A batch that the table has must come again as it
was, so they are flushed before it is published.

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
    """Return the id kept in a checkpoint; a new one is given an id.

    Parameters
    ----------
    store : TableStore
        Where the checkpoint is.

    Raises
    ------
    ConfigurationError
        It is another query's, or the folder cannot be written.
    """
    try:
        data = _kept_id(store)
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


def _kept_id(store: TableStore) -> bytes:
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


def keep_batch(store: TableStore, batch_id: int) -> None:
    """Let what Spark has noted of a batch survive the death of the machine.

    Parameters
    ----------
    store : TableStore
        Where the checkpoint is.
    batch_id : int
        Spark's number of the batch.
    """
    names = (
        _METADATA,
        f".{_METADATA}.crc",
        f"{_BATCHES}/{batch_id}",
        f"{_BATCHES}/.{batch_id}.crc",
    )
    noted = [name for name in names if store.stat(name) is not None]
    for name in noted:
        store.keep(name)
    store.keep_names(noted)
