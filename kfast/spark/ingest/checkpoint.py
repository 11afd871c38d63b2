"""What an ingest keeps in the checkpoint of its query, and fsync of Spark's files there.

Owns two files beside Spark's own. One has the id by which the table identifies its writer. The path
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

from kfast.errors import ConfigurationError
from kfast.table.offsets_json import from_json_dict, to_json_dict
from kfast.table.store import TableStore
from kfast.types import TopicPartition

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
