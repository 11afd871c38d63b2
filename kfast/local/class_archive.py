"""ClassArchive: Java class data sharing (CDS) archives, with which a JVM starts in half the time.

Owns the archives: ``<main class>-<key>-<size>.jsa`` in the cache beside the jars, one per program,
where the key is a hash of the Java and the jars it was made with. A JVM maps its archive read-only,
so any number of them share one. They are made on request, as ``make test`` does, by a JVM that runs
the program once; a program without one starts without it. An archive is renamed when it is
complete, and is used only while it has the size in its name: a JVM crashes on a truncated one.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfast.local.jars import cache_folder
from kfast.local.java import Java

_SUFFIX: Final = ".jsa"
_QUIET: Final = "-Xlog:cds*=off"
"""A JVM ignores an archive that does not fit without a message."""


@dataclass(slots=True, frozen=True)
class ClassArchive:
    """The archive of one program, which may not exist."""

    java: Java
    jars: tuple[Path, ...]
    """The class path, or other files whose change invalidates the archive."""
    main_class: str

    def flags(self) -> tuple[str, ...]:
        """Return the options of a JVM that uses the archive; none if there is none."""
        path = self._find()
        return () if path is None else (f"-XX:SharedArchiveFile={path}", _QUIET)

    def make(self, run: Callable[[Sequence[str]], object]) -> bool:
        """Make the archive if there is none; return whether there is one now.

        ``run`` runs the program with further options until it exits normally.
        """
        if self._find() is not None:
            return True
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".archive-", dir=folder) as scratch:
            made = Path(scratch) / f"made{_SUFFIX}"
            run((f"-XX:ArchiveClassesAtExit={made}", _QUIET))
            if not made.exists():  # not every Java supports it
                return False
            for old in folder.glob(f"{self.main_class}-*{_SUFFIX}"):
                old.unlink(missing_ok=True)
            made.rename(folder / f"{self._name()}{made.stat().st_size}{_SUFFIX}")
        return True

    def _find(self) -> Path | None:
        for path in cache_folder().glob(f"{self._name()}*{_SUFFIX}"):
            try:
                if path.stat().st_size == int(path.stem.rpartition("-")[2]):
                    return path
            except (OSError, ValueError):
                continue
        return None

    def _name(self) -> str:
        """Return the beginning of the file's name."""
        files = (self.java.path.resolve(), *self.jars)
        known = [(os.fspath(path), _state_of(path)) for path in files]
        key = hashlib.sha256(repr(known).encode()).hexdigest()[:16]
        return f"{self.main_class}-{key}-"


def _state_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
