"""Table stores: the few things an ingest needs of a filesystem.

Owns the interface and its implementation for folders of this machine, or mounted on it; object
stores are ``fsspec_store``'s. Paths are relative to the table and have forward slashes. What the
whole pipeline rests on is `TableStore.create`: of two that create the same file exactly one
succeeds, and nobody ever sees half of it.

A `LocalStore` opens nothing and can be pickled; it is used on the driver and on workers.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from kfast.errors import ConfigurationError

_FILE: Final = "file://"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file there is.

    Parameters
    ----------
    path : str
        Relative to the table.
    bytes : int
        Its size.
    modified_ms : int
        When it was last written, by the clock of the store.
    """

    path: str
    bytes: int
    modified_ms: int


class TableStore(Protocol):
    """A folder somewhere.

    Attributes
    ----------
    url : str
        What it is called.
    may_create_late : bool
        Whether a file may still come to be after `create` has raised.
    keeps_at_once : bool
        Whether there is nothing for `keep` to do.
    """

    url: str
    may_create_late: bool
    keeps_at_once: bool

    def create(self, path: str, data: bytes) -> bool:
        """Make a file as a whole unless there is one; return whether it was made."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return what a file has, None if there is none."""
        ...

    def stat(self, path: str) -> StoredFile | None:
        """Return what is known of a file, None if there is none."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, in place of one that may have it."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; none is fine."""
        ...

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files below a folder; none if there is no folder."""
        ...

    def open_output(self, path: str) -> Any:
        """Open a new file for writing, as pyarrow takes it."""
        ...

    def keep(self, path: str) -> None:
        """Let what was written to a file survive the death of the machine. Any thread."""
        ...

    def keep_names(self, paths: Iterable[str]) -> None:
        """Let files have these names, whatever they were before, if the machine dies."""
        ...


class LocalStore:
    """A folder of a POSIX filesystem.

    Parameters
    ----------
    folder : Path
        It is made when something is written.

    Notes
    -----
    A file is created under a name of its own and then linked to its true one, which fails if that
    is taken: the filesystem must have hard links, as all but FAT and some FUSE mounts do. What
    `create` made is on the disk when it returns; other files are after `keep` and `keep_names`.
    """

    may_create_late: bool = False
    keeps_at_once: bool = False

    def __init__(self, folder: Path) -> None:
        self.url = str(folder.absolute())

    def create(self, path: str, data: bytes) -> bool:
        """Make a file as a whole unless there is one; return whether it was made."""
        target = self._path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{uuid.uuid4().hex}")
        try:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(partial, target)
            except FileExistsError:
                return False
            self.keep_names([path])
            return True
        finally:
            partial.unlink(missing_ok=True)

    def read(self, path: str) -> bytes | None:
        """Return what a file has, None if there is none."""
        try:
            return self._path(path).read_bytes()
        except FileNotFoundError:
            return None

    def stat(self, path: str) -> StoredFile | None:
        """Return what is known of a file, None if there is none."""
        try:
            found = self._path(path).stat()
        except FileNotFoundError:
            return None
        return StoredFile(path, found.st_size, found.st_mtime_ns // 1_000_000)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, in place of one that may have it."""
        into = self._path(target)
        into.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._path(source), into)

    def remove(self, path: str) -> None:
        """Remove a file; none is fine."""
        self._path(path).unlink(missing_ok=True)

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files below a folder; none if there is no folder."""
        found = []
        for parent, _, names in os.walk(self._path(folder)):
            for name in names:
                path = (Path(parent) / name).relative_to(self.url).as_posix()
                if (file := self.stat(path)) is not None:
                    found.append(file)
        return sorted(found, key=lambda file: file.path)

    def open_output(self, path: str) -> Any:
        """Open a new file for writing, as pyarrow takes it."""
        from kfast._optional import optional_package  # noqa: PLC0415 - workers only

        target = self._path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        return optional_package("pyarrow", "kfast.spark.ingest").OSFile(str(target), "wb")

    def keep(self, path: str) -> None:
        """Let what was written to a file survive the death of the machine."""
        _flush(self._path(path))

    def keep_names(self, paths: Iterable[str]) -> None:
        """Let files have these names, whatever they were before, if the machine dies."""
        root = Path(self.url)
        folders: set[Path] = set()
        for path in paths:
            above = self._path(path).parents
            folders.update(above[: above.index(root) + 2])  # the table's own name, too
        for folder in sorted(folders, reverse=True):  # a folder after those in it
            _flush_folder(folder)

    def _path(self, path: str) -> Path:
        return Path(self.url, path)

    def __repr__(self) -> str:
        return f"<LocalStore {self.url}>"


def is_local(url: str) -> bool:
    """Return whether a folder is one of this machine."""
    return "://" not in url or url.startswith(_FILE)


def local_path(url: str) -> Path:
    """Return the absolute path of a folder of this machine."""
    text = url.removeprefix(_FILE)
    if not text.strip():
        raise ConfigurationError("the folder has no name", hint="give a path or a URL")
    return Path(text).absolute()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where that can be done."""
    try:
        _flush(folder)
    except OSError as error:
        # One that may not be read, or a filesystem that keeps names in its own way.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP):
            raise
