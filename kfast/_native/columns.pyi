"""Types of the compiled module; layouts and rules are documented in ``columns.pyx``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

from kfast._native.buffers import OwnedBuffer

# ndarray has the buffer protocol, but its stubs say so only for Python 3.12 and later.
BufferLike: TypeAlias = Buffer | NDArray[Any]

def gather(
    data: BufferLike, starts: BufferLike, lengths: BufferLike, wide: bool = False
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer | None, int]: ...
def binary_views(
    data: BufferLike, starts: BufferLike, lengths: BufferLike
) -> tuple[OwnedBuffer, OwnedBuffer | None, int]: ...
def pack_bits(flags: BufferLike, invert: bool = False) -> tuple[OwnedBuffer, int]: ...
def repeat_value(
    value: bytes, count: int, wide: bool = False
) -> tuple[OwnedBuffer, OwnedBuffer]: ...
def pack(
    sources: list[tuple[BufferLike, BufferLike, BufferLike]],
) -> tuple[OwnedBuffer, OwnedBuffer]: ...
def equal_to_any(
    data: BufferLike,
    starts: BufferLike,
    lengths: BufferLike,
    needles: Iterable[bytes],
    invert: bool = False,
    match_nulls: bool = False,
) -> OwnedBuffer: ...
def view_fixed(
    data: BufferLike, starts: BufferLike, lengths: BufferLike, width: int
) -> tuple[OwnedBuffer | None, int]: ...
def gather_padded(
    data: BufferLike, starts: BufferLike, lengths: BufferLike, width: int
) -> OwnedBuffer: ...
def bytes_list(data: BufferLike, starts: BufferLike, lengths: BufferLike) -> list[bytes | None]: ...
def bytes_at(
    data: BufferLike, starts: BufferLike, lengths: BufferLike, row: int
) -> bytes | None: ...
def text_list(
    data: BufferLike, starts: BufferLike, lengths: BufferLike, errors: str = "strict"
) -> list[str | None]: ...
