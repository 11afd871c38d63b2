"""An object store for tests: what S3 and its kin can do, nothing else, and how they fail.

There are keys, no folders and nothing to rename. A put is seen as a whole, once it has come to its
end; a conditional put fails if the key is taken. Reading a key shows the newest object, but a
listing may lag behind. Every request can be made to fail.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fsspec import AbstractFileSystem

Fault = Literal["refused", "answer lost", "late"]
"""Not done; done, but it looks as if it were not; done some time after it looked so."""

CHANGES = ("put", "copy", "delete")
"""The requests that change something."""


class StoreError(OSError):
    """What a store says when it says nothing better."""


@dataclass
class Bucket:
    """The objects of a store, what its listings show of them, and what is to go wrong.

    Parameters
    ----------
    is_lagging : bool
        Whether listings show only what was there at the last `settle`.
    """

    is_lagging: bool = False
    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    listed: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)
    _fault: tuple[Callable[[str, str], bool], Fault] | None = None
    _is_lasting: bool = False

    def fail(
        self, fault: Fault, which: Callable[[str, str], bool], *, is_lasting: bool = False
    ) -> None:
        """Let requests that are meant fail; ``which`` is asked with their kind and key.

        Only the first of them, unless it lasts: then all until `heal`.
        """
        self._fault = (which, fault)
        self._is_lasting = is_lasting

    def fail_nth(self, fault: Fault, number: int) -> None:
        """Let a request fail that is so far away; reads can only be refused."""
        numbers = itertools.count()

        def is_meant(kind: str, _: str) -> bool:
            return next(numbers) == number and (kind in CHANGES or fault == "refused")

        self.fail(fault, is_meant)

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self._fault = None

    def settle(self) -> None:
        """Let what is late be done, and listings show what there is."""
        late, self.late = self.late, []
        for action in late:
            with contextlib.suppress(OSError):  # the client has closed the connection
                action()
        self.listed = dict(self.objects)

    def request(self, kind: str, key: str, action: Callable[[], Any]) -> Any:
        """Carry out a request, or not."""
        self.requests.append((kind, key))
        if self._fault is None or not self._fault[0](kind, key):
            return action()
        fault = self._fault[1]
        if not self._is_lasting:
            self._fault = None
        if fault == "answer lost":
            action()
        elif fault == "late":
            self.late.append(action)
        raise StoreError(f"{kind} {key}: {fault}")

    def put(self, key: str, data: bytes, *, is_new: bool = False) -> None:
        """Keep an object."""
        if is_new and key in self.objects:
            raise FileExistsError(f"{key}: precondition failed")
        self.objects[key] = (data, time.time())

    def found(self, prefix: str) -> dict[str, tuple[bytes, float]]:
        """Return what a listing shows."""
        shown = self.listed if self.is_lagging else self.objects
        return {key: value for key, value in shown.items() if key.startswith(prefix)}


class ObjectStore(AbstractFileSystem):  # type: ignore[misc]
    """`Bucket` as fsspec sees it; instances are all of the same bucket, as of one service."""

    protocol = "s3"
    cachable = False
    bucket: ClassVar[Bucket] = Bucket()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        key = self._key(path)
        is_new = mode == "create"
        self.bucket.request("put", key, lambda: self.bucket.put(key, value, is_new=is_new))

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        data: bytes = self.bucket.request("get", self._key(path), lambda: self._object(path)[0])
        return data[start:end]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        key = self._key(path)
        data, moment = self.bucket.request("head", key, lambda: self._object(path))
        return _info(key, data, moment)

    def find(self, path: str, *_: Any, **__: Any) -> dict[str, dict[str, Any]]:
        prefix = self._key(path) + "/"
        found = self.bucket.request("list", prefix, lambda: self.bucket.found(prefix))
        return {key: _info(key, *value) for key, value in found.items()}

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        key = self._key(path2)
        self.bucket.request("copy", key, lambda: self.bucket.put(key, self._object(path1)[0]))

    def rm_file(self, path: str) -> None:
        key = self._key(path)
        self.bucket.request("delete", key, lambda: self.bucket.objects.pop(key, None))

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        assert mode == "wb"
        return _Upload(self, path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        raise NotImplementedError("there are no folders")

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        raise NotImplementedError("there are no folders")

    def mv(self, path1: str, path2: str, *_: Any, **__: Any) -> None:
        raise NotImplementedError("there is no such request")

    def _object(self, path: str) -> tuple[bytes, float]:
        try:
            return self.bucket.objects[self._key(path)]
        except KeyError:
            raise FileNotFoundError(path) from None

    def _key(self, path: str) -> str:
        return str(self._strip_protocol(path))


class _Upload(io.BytesIO):
    """An object that is there when it is closed."""

    def __init__(self, system: ObjectStore, path: str) -> None:
        super().__init__()
        self._system = system
        self._target = path

    def close(self) -> None:
        if self.closed:
            return
        data = self.getvalue()
        super().close()
        self._system.pipe_file(self._target, data)


def _info(key: str, data: bytes, moment: float) -> dict[str, Any]:
    return {"name": key, "size": len(data), "type": "file", "LastModified": moment}
