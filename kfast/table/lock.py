"""The locks of a table: a second ingest, or compaction, on this machine is refused at once.

Owns ``_kfast/lock`` and ``_kfast/compact-lock`` and their ``flock``, which the system releases when
the process ends, however it does. They are a courtesy: exactly-once rests on the logs, also where
there are no such locks (object stores, some network file systems) and between machines.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kfast.errors import KafkaError
from kfast.table.location import is_local
from kfast.table.store import TableStore, storage_errors
from kfast.table.table_log import FOLDER

_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


INGEST: Final = "lock"
COMPACTION: Final = "compact-lock"
_HELD: Final = {INGEST: "another ingest writes", COMPACTION: "another process compacts"}


@contextlib.contextmanager
def table_lock(store: TableStore, name: str = INGEST) -> Iterator[None]:
    """Hold a lock of a table, if it is in a local folder.

    Raises ``KafkaError`` if another process has it, and ``StorageError`` if the folder cannot be
    written.
    """
    if not is_local(store.url):
        yield
        return
    path = Path(store.url, FOLDER, name)
    with storage_errors(f"cannot write to {store.url}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(descriptor, store.url, _HELD[name])
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, url: str, held: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise KafkaError(
            f"{held} {url}",
            found=_owner(descriptor),
            hint="wait until it has ended, or stop it",
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return
    owner = json.dumps({"pid": os.getpid(), "host": os.uname().nodename})
    with storage_errors(f"cannot write to {url}"):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, owner.encode(), 0)


def _owner(descriptor: int) -> str | None:
    try:
        owner = json.loads(os.pread(descriptor, 1_000, 0))
        return f"process {int(owner['pid'])} on {owner['host']}"
    except (ValueError, KeyError, TypeError):  # it has just taken the lock
        return None
