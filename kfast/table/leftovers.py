"""Files that a killed process may leave in kfast's folder of a table, and the check that makes one.

Owns ``probe-*`` files, which check that a store creates files exclusively, and the partial files of
`LocalStore.create` (``.`` and 32 hex digits). Both live for milliseconds; what is older than
`_AGE_MS` belongs to no process. Used before a writer begins.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from typing import Final

from kfast.errors import ConfigurationError, KafkaError, StorageError
from kfast.table.store import TableStore
from kfast.table.table_log import FOLDER

_PROBE: Final = "probe-"
_PARTIAL: Final = re.compile(r"\.[0-9a-f]{32}")
_AGE_MS: Final = 600_000


def probe_store(store: TableStore) -> int:
    """Check that files are created exclusively; return the time by the store's clock, in ms.

    Raises ``StorageError`` and ``ConfigurationError``.
    """
    path = f"{FOLDER}/{_PROBE}{uuid.uuid4().hex}"
    try:
        is_new = store.create(path, b"1")
        is_kept = not store.create(path, b"2") and store.read(path) == b"1"
        stored = store.stat(path)
    except OSError as error:
        raise StorageError(
            f"cannot write to {store.url}",
            cause=str(error),
            hint="check the folder and its disk, and for an object store its credentials",
        ) from error
    except KafkaError:
        raise
    except Exception as error:  # packages of filesystems have classes of their own
        raise ConfigurationError(
            f"cannot write to {store.url}",
            cause=str(error),
            hint="check the folder, and for an object store its credentials",
        ) from error
    finally:
        with contextlib.suppress(Exception):
            store.remove(path)
    if not is_new or not is_kept or stored is None:
        raise ConfigurationError(
            f"{store.url} does not prevent a file from being created twice",
            cause="without that a batch could be published twice",
            hint="upgrade the package of this filesystem, or use another one",
        )
    return stored.modified_ms


def sweep_leftovers(store: TableStore, now_ms: int) -> int:
    """Remove what killed processes have left in kfast's folder; return how many files.

    ``now_ms`` is by the store's clock.
    """
    swept = 0
    for file in store.files(FOLDER):
        name = file.path.rpartition("/")[2]
        is_leftover = name.startswith(_PROBE) or _PARTIAL.fullmatch(name)
        if is_leftover and now_ms - file.modified_ms >= _AGE_MS:
            store.remove(file.path)
            swept += 1
    return swept
