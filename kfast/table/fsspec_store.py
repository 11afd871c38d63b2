"""FsspecStore: tables in object stores, through fsspec.

Owns the choice of a store for a URL (`open_store`) and the supported filesystems. fsspec has
exclusive creation for all of its filesystems, but by default it checks and then writes, in which
two writers can race. Those of `ATOMIC` do it in one step:

=====================  =================  =======================================================
URL                    package            how
=====================  =================  =======================================================
path, ``file://``      none               hard link (``LocalStore``)
``s3://``, ``s3a://``  s3fs               conditional PUT (``If-None-Match``), on AWS S3 and
                                          compatible stores that have it
``gs://``, ``gcs://``  gcsfs              generation match
``abfs[s]://, az://``  adlfs              upload without overwriting
``memory://``          fsspec             for tests of one process
=====================  =================  =======================================================

Releases of these packages before 2025 may not support it; `TableLog.probe` tests it before an
ingest begins. HDFS, WebHDFS and pyarrow's own object stores have no such call in Python: they are
rejected. Renaming in an object store is a copy inside the store, one request per file.

A store can be pickled; the filesystem is opened again where it is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from kfast.errors import MissingDependencyError
from kfast.table.location import checked_url, is_local, local_path
from kfast.table.store import LocalStore, StoredFile, TableStore

ATOMIC: Final = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
"""URL schemes whose filesystems create a file exclusively in one step."""


def open_store(url: str, options: Mapping[str, str] | None = None) -> TableStore:
    """Return the store of a folder, given as a path or a URL such as ``s3://bucket/folder``.

    ``options`` are the filesystem's, such as credentials. Raises ``ConfigurationError`` if it is
    neither a path nor such a URL (`location`), or the filesystem cannot create a file atomically.
    """
    if is_local(url):
        return LocalStore(local_path(url))
    return FsspecStore(checked_url(url, ATOMIC), dict(options or {}))


class FsspecStore:
    """A folder of an object store."""

    may_create_late: bool = True
    """A request without an answer may still be carried out later."""
    is_durable_on_write: bool = True

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url = url.rstrip("/")
        self.options = dict(options)
        """Those of its filesystem, such as credentials."""
        self._opened: tuple[Any, str] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_opened": None}

    @property
    def _files(self) -> tuple[Any, str]:
        """The filesystem, and the folder's path in it."""
        if self._opened is None:
            try:
                from fsspec.core import url_to_fs  # noqa: PLC0415 - optional

                system, root = url_to_fs(self.url, **self.options)
            except ImportError as error:
                raise MissingDependencyError(
                    f"{self.url} needs a package: {error}",
                    hint="pip install fsspec, and s3fs, gcsfs or adlfs for the store",
                ) from error
            self._opened = system, root.rstrip("/")
        return self._opened

    def create(self, path: str, data: bytes) -> bool:
        """Create a file atomically unless it exists; return whether it was created."""
        system, full = self._at(path)
        for is_again in (False, True):
            try:
                system.pipe_file(full, data, mode="create")
                break
            except Exception:
                # Stores raise different errors for an existing file, and a response may have been
                # lost: the file itself decides. Entries name their writer and files, so an equal
                # content is this writer's.
                stored = self.read(path)
                if stored is not None:
                    return stored == data
                # Or the request is still in flight: repeating it is harmless. If both fail, the
                # file may still be created later (`may_create_late`).
                if is_again:
                    raise
        return True

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        system, full = self._at(path)
        try:
            data: bytes = system.cat_file(full)
        except FileNotFoundError:
            return None
        return data

    def stat(self, path: str) -> StoredFile | None:
        """Return size and time of a file, None if it does not exist."""
        system, full = self._at(path)
        try:
            return _stored(path, system.info(full))
        except FileNotFoundError:
            return None

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing one."""
        system, old = self._at(source)
        # Not mv(), which takes brackets for patterns. Copied first: a crash in between leaves both.
        try:
            system.cp_file(old, self._at(target)[1])
        except Exception as error:
            # Stores raise different errors for a missing file, too.
            if self.stat(source) is None:
                raise FileNotFoundError(old) from error
            raise
        system.rm_file(old)

    def copy(self, source: str, target: str) -> None:
        """Copy a file inside of the store; an existing target has the same content."""
        system, old = self._at(source)
        system.cp_file(old, self._at(target)[1])

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        system, full = self._at(path)
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(full)

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files below a folder; none if there is no folder."""
        system, full = self._at(folder)
        root = self._files[1]
        try:
            listing = system.find(full, detail=True)
        except FileNotFoundError:
            return []
        named = {name.removeprefix(root).lstrip("/"): info for name, info in listing.items()}
        return [_stored(path, info) for path, info in sorted(named.items())]

    def remove_empty_folders(self, folder: str) -> None:
        """Do nothing: an object store has no folders."""

    def open_input(self, path: str) -> Any:
        """Open a file for reading, as pyarrow takes it."""
        system, full = self._at(path)
        return system.open(full, "rb")

    def open_output(self, path: str) -> Any:
        """Open a new file for writing, as pyarrow takes it."""
        system, full = self._at(path)
        return system.open(full, "wb")

    def fsync(self, path: str) -> None:
        """Do nothing: a stored object is durable."""

    def fsync_names(self, paths: Iterable[str]) -> None:
        """Do nothing: an object store has no folders to flush."""

    def _at(self, path: str) -> tuple[Any, str]:
        """Return the filesystem, without what it remembers, and the full path."""
        system, root = self._files
        # s3fs believes a listing it has made before, even when it reads a file: what other
        # processes have created since would not exist.
        system.invalidate_cache()
        return system, f"{root}/{path}" if path else root

    def __repr__(self) -> str:
        return f"<FsspecStore {self.url}>"


def _stored(path: str, info: Mapping[str, Any]) -> StoredFile:
    moment = next(
        (
            info[name]
            for name in ("LastModified", "last_modified", "mtime", "updated", "created")
            if info.get(name) is not None
        ),
        0,
    )
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    seconds = moment.timestamp() if isinstance(moment, datetime) else float(moment)
    return StoredFile(path, int(info.get("size") or 0), int(seconds * 1000))
