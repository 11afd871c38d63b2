"""Checkpoint: how a table tells one query from another.

Owns one file beside Spark's own in a query's checkpoint: the id under which the table knows the
query. A folder's path would not do, since a checkpoint may be moved, or removed and begun anew in
the same place: then Spark numbers its batches from 0 again, and they must not be taken for the old.

Driver only.
"""

from __future__ import annotations

import json
import uuid
from typing import Final

from kfast.errors import ConfigurationError
from kfast.spark.table_store import TableStore

ID_FILE: Final = "kfast-ingest.json"
_BATCHES: Final = "offsets"


def writer_id(store: TableStore) -> str:
    """Return the id kept in a checkpoint; a new one is given an id.

    Parameters
    ----------
    store : TableStore
        Where the checkpoint is.

    Raises
    ------
    ConfigurationError
        It is another query's.
    """
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
    try:
        return str(json.loads(data)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{store.url}/{ID_FILE} is damaged", cause=str(error), hint="restore the file"
        ) from error


def has_batches(store: TableStore) -> bool:
    """Return whether Spark has planned a batch with this checkpoint."""
    return bool(store.files(_BATCHES))
