"""TableStore: the filesystem operations of a table, and LocalStore for local folders.

Owns the interface and its implementation for folders of this machine, or mounted on it; object
stores are ``fsspec_store``'s. Paths are relative to the table and have forward slashes.
Exactly-once rests on `TableStore.create`: of two processes that create the same file exactly one
succeeds, and no reader sees a part of it.

A `LocalStore` opens nothing and can be pickled; it is used on the driver and on workers.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from kfast.errors import StorageError

_NOT_FLUSHED: Final = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOENT)
"""No permission to open a folder, no fsync of folders, a folder removed with the files in it."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Path relative to the table, size and last write of an existing file."""

    path: str
    bytes: int
    modified_ms: int
    """By the clock of the store."""


class TableStore(Protocol):
    """A folder, local or in an object store."""

    url: str
    may_create_late: bool
    """Whether a file may still be created after `create` has raised."""
    is_durable_on_write: bool
    """Whether a written file survives a crash without `fsync`."""

    def create(self, path: str, data: bytes) -> bool:
        """Create a file atomically unless it exists; return whether it was created."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        ...

    def stat(self, path: str) -> StoredFile | None:
        """Return size and time of a file, None if it does not exist."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing one."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Give a file a second name, or copy it; an existing target has the same content."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        ...

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files below a folder; none if there is no folder."""
        ...

    def remove_empty_folders(self, folder: str) -> None:
        """Remove the folders below this one that have no files, if the store has folders."""
        ...

    def open_input(self, path: str) -> Any:
        """Open a file for reading, as pyarrow takes it."""
        ...

    def open_output(self, path: str) -> Any:
        """Open a new file for writing, as pyarrow takes it."""
        ...

    def fsync(self, path: str) -> None:
        """Flush the content of a file to disk. Any thread."""
        ...

    def fsync_names(self, paths: Iterable[str]) -> None:
        """Flush the names of files, new or renamed, to disk."""
        ...


class LocalStore:
    """A folder of a POSIX filesystem, made at the first write.

    A file is created under a temporary name and then linked to its final one, which fails if that
    exists: the filesystem must have hard links, as all but FAT and some FUSE mounts do. Files from
    `create` are durable when it returns, others after `fsync` and `fsync_names`.
    """

    may_create_late: bool = False
    is_durable_on_write: bool = False

    def __init__(self, folder: Path) -> None:
        self.url = str(folder.absolute())

    def create(self, path: str, data: bytes) -> bool:
        """Create a file atomically unless it exists; return whether it was created."""
        target = self._path(path)
        partial = target.with_name(f".{uuid.uuid4().hex}")
        with _file_named(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with partial.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(partial, target)
                except FileExistsError:
                    return False
                self.fsync_names([path])
                return True
            finally:
                partial.unlink(missing_ok=True)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        try:
            return self._path(path).read_bytes()
        except FileNotFoundError:
            return None

    def stat(self, path: str) -> StoredFile | None:
        """Return size and time of a file, None if it does not exist."""
        try:
            status = self._path(path).stat()
        except FileNotFoundError:
            return None
        return StoredFile(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing one."""
        old, new = self._path(source), self._path(target)
        for is_again in (False, True):
            new.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.replace(old, new)
                return
            except FileNotFoundError:
                if is_again or not old.exists():
                    raise
                # The target's folder, empty until now, was removed meanwhile.

    def copy(self, source: str, target: str) -> None:
        """Give a file a second name; an existing target has the same content."""
        new = self._path(target)
        new.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.link(self._path(source), new)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        self._path(path).unlink(missing_ok=True)

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files below a folder; none if there is no folder."""
        files = []
        for parent, _, names in os.walk(self._path(folder)):
            for name in names:
                path = (Path(parent) / name).relative_to(self.url).as_posix()
                if (file := self.stat(path)) is not None:
                    files.append(file)
        return sorted(files, key=lambda file: file.path)

    def remove_empty_folders(self, folder: str) -> None:
        """Remove the folders below this one that have no files."""
        for parent, names, _ in os.walk(self._path(folder), topdown=False):
            for name in names:
                with suppress(OSError):  # it has files
                    Path(parent, name).rmdir()

    def open_input(self, path: str) -> Any:
        """Open a file for reading, as pyarrow takes it."""
        from kfast._base.optional import optional_package  # noqa: PLC0415 - compaction only

        return optional_package("pyarrow", "a table of files").OSFile(str(self._path(path)), "rb")

    def open_output(self, path: str) -> Any:
        """Open a new file for writing, as pyarrow takes it."""
        from kfast._base.optional import optional_package  # noqa: PLC0415 - workers only

        target = self._path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        return optional_package("pyarrow", "a table of files").OSFile(str(target), "wb")

    def fsync(self, path: str) -> None:
        """Flush the content of a file to disk. Any thread."""
        _flush(self._path(path))

    def fsync_names(self, paths: Iterable[str]) -> None:
        """Flush the names of files, new or renamed, to disk."""
        root = Path(self.url)
        folders: set[Path] = set()
        for path in paths:
            above = self._path(path).parents
            folders.update(above[: above.index(root) + 2])  # the table's own name, too
        for folder in sorted(folders, reverse=True):  # each folder before its parent
            _flush_folder(folder)

    def _path(self, path: str) -> Path:
        return Path(self.url, path)

    def __repr__(self) -> str:
        return f"<LocalStore {self.url}>"


@contextmanager
def storage_errors(failure: str) -> Iterator[None]:
    """Raise ``StorageError`` for an ``OSError``; ``failure`` says what could not be done."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            failure, cause=str(error), hint="check the folder and its disk, then start again"
        ) from error


@contextmanager
def _file_named(path: Path) -> Iterator[None]:
    """Give an ``OSError`` the name of a file if it has none, as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with _file_named(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system supports it."""
    try:
        _flush(folder)
    except OSError as error:
        if error.errno not in _NOT_FLUSHED:
            raise
