"""Types of the compiled module; framings and rules are documented in ``wire_ids.pyx``."""

from __future__ import annotations

from typing import Any, TypeAlias, final

from numpy.typing import NDArray
from typing_extensions import Buffer

from kfast._native.buffers import OwnedBuffer

# ndarray has the buffer protocol, but its stubs say so only for Python 3.12 and later.
BufferLike: TypeAlias = Buffer | NDArray[Any]

FRAMINGS: dict[str, int]
KINDS: tuple[str, ...]
STATUSES: tuple[str, ...]

@final
class WireIds:
    @property
    def count(self) -> int: ...
    @property
    def keys(self) -> list[tuple[str, int | bytes, tuple[int, ...] | None]]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> tuple[int, int, int, int, str]: ...
    def key_rows(self) -> list[int]: ...
    def row_keys(self) -> OwnedBuffer: ...

def scan(
    framing: str,
    data: BufferLike,
    starts: BufferLike,
    lengths: BufferLike,
    *,
    headers: tuple[BufferLike, BufferLike, BufferLike] | None = None,
    header_name: bytes = b"",
    has_indexes: bool = False,
) -> WireIds: ...
def plans_of_rows(wire: WireIds, key_plans: BufferLike) -> tuple[OwnedBuffer, OwnedBuffer]: ...
def fingerprint(text: Buffer) -> int: ...
