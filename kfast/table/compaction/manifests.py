"""CompactionLog: which files of a table were made into one, and how far their exchange is.

Owns two folders that readers ignore. A new file has its name below ``compacted`` as long as readers
may have begun with it, and in the table once it has taken the place of the others::

    _kfast/compacted/date=2026-01-01/t-0-0-50-c1f0a6...              the new file
    _kfast/compactions/00000000000000000000.json                      its manifest
    _kfast/compactions/t-0-0-50-c1f0a6....decision                    ``swap`` or ``cancel``
    _kfast/compactions/t-0-0-50-c1f0a6....done                        mark of the finished exchange

A manifest is created only if there is none with its number, and only after all before it were read:
so of two that name the same file only one is created. What becomes of it is decided once, by the
content of a file that is created only if there is none. The newest manifest is never removed: its
number is not given again.

The ingest neither reads nor writes any of this.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from kfast.errors import TableError
from kfast.table.store import StoredFile, TableStore
from kfast.table.table_log import FOLDER

COMPACTED: Final = f"{FOLDER}/compacted"
COMPACTIONS: Final = f"{FOLDER}/compactions"
_VERSION: Final = 1
_DIGITS: Final = 20
_MANIFEST: Final = ".json"
_DECISION: Final = ".decision"
_DONE: Final = ".done"
_SWAP: Final = b"swap"
_CANCEL: Final = b"cancel"


@dataclass(frozen=True, slots=True)
class ReplacedFile:
    """A file whose rows the new one has."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """The manifest of one new file."""

    path: str
    """Of the new file, once it is in the table; no other file ever has it."""
    bytes: int
    rows: int
    replaced: tuple[ReplacedFile, ...]
    number: int = -1

    @property
    def hidden(self) -> str:
        """The name that the new file has from the beginning, which readers of folders ignore.

        Without the ending of the format: patterns such as ``**/*.parquet`` find hidden folders too.
        """
        return f"{COMPACTED}/{self.path.rpartition('.')[0]}"

    @property
    def name(self) -> str:
        """The name of its decision and mark, without their endings."""
        return f"{COMPACTIONS}/{self.path.rpartition('/')[2]}"

    def is_replaced_in(self, files: Iterable[StoredFile]) -> bool:
        """Whether all files that it replaces are among these, as they were."""
        sizes = {file.path: file.bytes for file in files}
        return all(sizes.get(file.path) == file.bytes for file in self.replaced)


@dataclass(frozen=True, slots=True)
class State:
    """A manifest, and how far its exchange is."""

    compaction: Compaction
    created_ms: int
    """By the clock of the store."""
    decision: str = ""
    """Empty before it is decided, else ``swap`` or ``cancel``."""
    decided_ms: int = 0
    done_ms: int | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether the new file is not used, as a file that it replaces was gone."""
        return self.decision == _CANCEL.decode()

    @property
    def is_swapping(self) -> bool:
        """Whether the new file counts, whatever is left of the others."""
        return self.decision == _SWAP.decode()


class CompactionLog:
    """The compactions of one table."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def states(self) -> list[State]:
        """Return all manifests that are kept, in their order.

        The listing of an object store may be stale: manifests behind the newest are read by name.
        """
        listed = {file.path: file for file in self._store.files(COMPACTIONS)}
        numbers = sorted(int(name) for name in map(_number, listed) if name)
        states = []
        for number in numbers:
            state = self._state(number, listed.get(_path(number)))
            if state is not None:
                states.append(state)
        following = numbers[-1] + 1 if numbers else 0
        while (state := self._state(following, None)) is not None:
            states.append(state)
            following += 1
        return states

    def _state(self, number: int, file: StoredFile | None) -> State | None:
        data = self._store.read(_path(number))
        file = file or self._store.stat(_path(number))
        if data is None or file is None:
            return None
        compaction = _decoded(data, number, f"{self._store.url}/{_path(number)}")
        decision = self._store.read(compaction.name + _DECISION) or b""
        at = self._store.stat(compaction.name + _DECISION)
        done = self._store.stat(compaction.name + _DONE)
        return State(
            compaction,
            file.modified_ms,
            decision.decode(),
            0 if at is None else at.modified_ms,
            None if done is None else done.modified_ms,
        )

    def publish(self, compaction: Compaction) -> bool:
        """Create a manifest; return False if another one has some of its files."""
        paths = {file.path for file in compaction.replaced}
        while True:
            states = self.states()
            for state in states:
                if not state.is_cancelled and paths & {
                    file.path for file in state.compaction.replaced
                }:
                    return False
            number = states[-1].compaction.number + 1 if states else 0
            if self._store.create(_path(number), _encoded(compaction)):
                return True

    def decide(self, compaction: Compaction, *, swaps: bool) -> bool:
        """Decide whether the new file takes the place of the others; return what was decided."""
        path = compaction.name + _DECISION
        if self._store.create(path, _SWAP if swaps else _CANCEL):
            return swaps
        return self._store.read(path) == _SWAP

    def is_done(self, compaction: Compaction) -> bool:
        """Return whether the exchange is finished, and perhaps forgotten."""
        paths = (compaction.name + _DONE, _path(compaction.number))
        is_marked, is_known = (self._store.stat(path) is not None for path in paths)
        return is_marked or not is_known

    def mark_done(self, compaction: Compaction) -> None:
        """Record that the exchange is finished: the new file is the user's from then on."""
        self._store.create(compaction.name + _DONE, b"done")

    def forget(self, state: State, *, is_newest: bool) -> None:
        """Remove what is kept of a finished exchange; of the newest its manifest stays."""
        compaction = state.compaction
        self._store.remove(compaction.hidden)
        if is_newest:
            return
        self._store.remove(_path(compaction.number))
        self._store.remove(compaction.name + _DECISION)
        self._store.remove(compaction.name + _DONE)

    def __repr__(self) -> str:
        return f"<CompactionLog {self._store.url}>"


def _path(number: int) -> str:
    return f"{COMPACTIONS}/{number:0{_DIGITS}d}{_MANIFEST}"


def _number(path: str) -> str:
    """Return the number in the name of a manifest, "" for other files."""
    name = path.rpartition("/")[2].removesuffix(_MANIFEST)
    return name if len(name) == _DIGITS and name.isdigit() else ""


def _encoded(compaction: Compaction) -> bytes:
    body = {
        "version": _VERSION,
        "path": compaction.path,
        "bytes": compaction.bytes,
        "rows": compaction.rows,
        "replaced": [asdict(file) for file in compaction.replaced],
    }
    return (json.dumps(body, indent=1) + "\n").encode()


def _decoded(data: bytes, number: int, path: str) -> Compaction:
    try:
        body: dict[str, Any] = json.loads(data)
        if int(body["version"]) != _VERSION:
            raise TableError(
                f"{path} has version {body['version']} of the form of compactions",
                found=f"this kfast reads version {_VERSION}",
                hint="upgrade kfast",
            )
        return Compaction(
            str(body["path"]),
            int(body["bytes"]),
            int(body["rows"]),
            tuple(ReplacedFile(str(file["path"]), int(file["bytes"])) for file in body["replaced"]),
            number,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TableError(
            f"{path} is not the manifest of a compaction",
            cause=f"{type(error).__name__}: {error}",
            hint="restore the file: without it the content of the table is unknown",
        ) from error
