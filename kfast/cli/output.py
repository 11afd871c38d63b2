"""Where a command writes its data: standard output, or a file that is replaced as a whole.

A file is written under no name (``O_TMPFILE``), or where the file system has no such files under
``.NAME.PID.part``, and takes its name when it is complete: readers see the old file or the whole
new one, and a killed process leaves nothing behind. What is not a regular file, or lies below /dev
or /proc but not in the shared memory of /dev/shm, is written in place, never replaced, truncated or
removed; /dev/stdout and the like are what the shell has opened, and go on where that is.

Text that is compressed on its way into a file (``.gz``, ``.zst``) is one stream per file. It is
whole when `CompressedOutput.finish` has been called.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import select
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from kfast.errors import KafkaError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_GZIP: Final = 31
"""What zlib calls the format of gzip with the largest window."""
_LEVEL: Final = 3


def _compressor(ending: str) -> Any:
    if ending == ".gz":
        import zlib  # noqa: PLC0415 - for this ending only

        return zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    import zstandard  # noqa: PLC0415 - for this ending only

    return zstandard.ZstdCompressor(_LEVEL).compressobj()


STANDARD_OUTPUT: Final = "-"
_IN_PLACE: Final = (Path("/dev"), Path("/proc"))
_SHARED_MEMORY: Final = Path("/dev/shm")
_DESCRIPTOR: Final = re.compile(r"/(?:dev/fd|proc/self/fd)/(\d+)", re.ASCII)
_MOST_LINKS: Final = 40
_STREAMS: Final = (os.O_WRONLY, os.O_RDONLY, os.O_RDWR)
"""How /dev/null stands in for a standard stream that is closed: the first two fail as before."""
_UNREAD: Final = select.POLLERR | select.POLLHUP
_NO_TMPFILE: Final = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
"""What ``O_TMPFILE`` gives on file systems and kernels without it."""


_LOCKED: Final = {errno.EWOULDBLOCK, errno.EACCES}


class OutputError(KafkaError):
    """The data could not be written."""


class Output(io.RawIOBase):
    """A file descriptor that takes bytes: every write writes all of them.

    ``name`` is what messages call it; ``nbytes`` counts what has been written.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name
        self.nbytes = 0
        self.is_replaced = False
        """Whether what is written counts only at the end, when it replaces a file."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._fd)

    def write(self, data: ReadableBuffer, /) -> int:
        """Write everything; raises BrokenPipeError without a reader, else OutputError."""
        view = memoryview(data).cast("B")
        left = view
        while left:
            try:
                count = os.write(self._fd, left)
            except BrokenPipeError:
                raise
            except BlockingIOError:  # whoever shares the pipe has made it so
                room = select.poll()
                room.register(self._fd, select.POLLOUT)
                room.poll()
                continue
            except OSError as error:
                raise self.failure(error) from None
            self.nbytes += count
            left = left[count:]
        return len(view)

    def finish(self) -> None:
        """Write what belongs behind the data: nothing, unless it is compressed."""

    def has_reader(self) -> bool:
        """Return whether it is a pipe or socket; raises BrokenPipeError for one not read any more.

        A write fails too, but there may be nothing to write for a long time.
        """
        mode = os.fstat(self._fd).st_mode
        if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
            return False
        waiting = select.poll()
        waiting.register(self._fd, 0)
        if any(events & _UNREAD for _, events in waiting.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        return True

    def failure(self, error: OSError) -> OutputError:
        """Return the error for a write, or the end of writing, that failed."""
        progress = f"{_amount(self.nbytes)} written" if self.nbytes else None
        return OutputError(f"cannot write {self.name}: {error.strerror}", found=progress)


class _Messages(Output):
    """Standard error: what cannot be written to it is dropped, and the exit status says so."""

    def write(self, data: ReadableBuffer, /) -> int:
        with contextlib.suppress(OSError, OutputError):
            super().write(data)
        return memoryview(data).nbytes


def open_messages() -> TextIO:
    """Return standard error as UTF-8, whatever the locale, that never fails."""
    raw = io.BufferedWriter(_Messages(2, "standard error"))
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=True)


def open_closed_streams() -> None:
    """Open /dev/null in the place of standard streams that are closed.

    The next file or socket would get the number, and the data be written into it.
    """
    for number, flags in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # gets the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


@contextlib.contextmanager
def open_output(path: str | None) -> Iterator[Output]:
    """Open ``path``, or standard output for None and ``-``.

    The file has its name when the body has ended, and is as it was if the body raised. Raises
    OutputError, before the body, for a path that cannot be written.
    """
    if path is None or path == STANDARD_OUTPUT:
        yield Output(1, "standard output")
        return
    number = _descriptor(path)
    if number is not None:
        with _duplicate(number, path) as fd:
            yield Output(fd, path)
        return
    target = Path(os.path.realpath(path))
    mode = _mode(target, path)
    if mode is None and path.endswith("/"):
        raise OutputError(f"cannot write {path}: there is no folder {path}", hint=f"mkdir {path}")
    if mode is not None and (not stat.S_ISREG(mode) or _is_in_place(target)):
        with _opened(target, os.O_WRONLY, path) as fd:
            yield Output(fd, path)
        return
    _sweep(target)
    with _unnamed(target, path) as (fd, partial):
        output = Output(fd, path)
        output.is_replaced = True
        yield output
        try:
            _name(fd, partial, target, mode)
        except OSError as error:
            raise output.failure(error) from None


def _mode(target: Path, path: str) -> int | None:
    """Return the mode of a file that is there, None of one that is not."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None
    folder = target.parent
    if mode is not None and stat.S_ISDIR(mode):
        raise OutputError(
            f"cannot write {path}: it is a folder",
            hint=f"--output {path.rstrip('/')}/records.jsonl",
        )
    if not folder.is_dir():
        raise OutputError(
            f"cannot write {path}: there is no folder {folder}", hint=f"mkdir -p {folder}"
        )
    if mode is None and _is_in_place(target):
        raise OutputError(f"cannot write {path}: there is no such file in {folder}")
    return mode


def _descriptor(path: str) -> int | None:
    """Return the number of this process's own descriptor that a path or link leads to."""
    for _ in range(_MOST_LINKS):
        match = _DESCRIPTOR.fullmatch(os.path.abspath(path))
        if match is not None:
            return int(match[1])
        try:
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        except OSError:
            break
    return None


@contextlib.contextmanager
def _duplicate(number: int, path: str) -> Iterator[int]:
    try:
        fd = os.dup(number)
    except (OSError, OverflowError):
        raise OutputError(f"cannot write {path}: {os.strerror(errno.EBADF)}") from None
    try:
        yield fd
    finally:
        os.close(fd)


def _is_in_place(target: Path) -> bool:
    is_below = any(target.is_relative_to(folder) for folder in _IN_PLACE)
    return is_below and not target.is_relative_to(_SHARED_MEMORY)


@contextlib.contextmanager
def _opened(target: Path, flags: int, path: str) -> Iterator[int]:
    try:
        fd = os.open(target, flags | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _unnamed(target: Path, path: str) -> Iterator[tuple[int, Path]]:
    """Open a file without a name, or with one that is removed; yield it and that name."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _opened_unnamed(target.parent, partial, path) as fd:
            yield fd, partial
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


@contextlib.contextmanager
def _opened_unnamed(folder: Path, partial: Path, path: str) -> Iterator[int]:
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise OutputError(f"cannot write {path}: {error.strerror}") from None
        with _opened(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, path) as named:
            with contextlib.suppress(OSError):  # some file systems have no locks
                fcntl.flock(named, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield named
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _name(fd: int, partial: Path, target: Path, mode: int | None) -> None:
    """Give a complete file its name, in the place of an older one whose mode it takes."""
    if mode is not None:
        os.fchmod(fd, stat.S_IMODE(mode))
    os.fsync(fd)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not partial.exists():
            # With a descriptor of the folder this is linkat(), which follows the link in /proc.
            os.link(f"/proc/self/fd/{fd}", partial.name, dst_dir_fd=folder)
        partial.replace(target)
        os.fsync(folder)
    finally:
        os.close(folder)


def _sweep(target: Path) -> None:
    """Remove what killed processes left of this file: under the names of those that are gone."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.(\d+)\.part")
    with contextlib.suppress(OSError):
        for entry in target.parent.iterdir():
            match = pattern.fullmatch(entry.name)
            if match is not None and not _runs(int(match[1])) and not _is_locked(entry):
                entry.unlink()


def _is_locked(partial: Path) -> bool:
    """Return whether a process writes a file: one of another machine or container, perhaps."""
    fd = os.open(partial, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _LOCKED
    finally:
        os.close(fd)
    return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _amount(nbytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.0f} {unit}"
    return f"{nbytes} bytes"


class CompressedOutput(Output):
    """Compresses what another output gets."""

    def __init__(self, output: Output, ending: str) -> None:
        super().__init__(output.fileno(), output.name)
        self._compressor = _compressor(ending)
        self.is_replaced = output.is_replaced

    def write(self, data: ReadableBuffer, /) -> int:
        """Take everything; raises as an `Output`."""
        view = memoryview(data).cast("B")
        super().write(self._compressor.compress(view))
        return len(view)

    def finish(self) -> None:
        """Write the end of the stream."""
        super().write(self._compressor.flush())
