"""Types of the compiled module; wire forms and results are documented in ``deserialize.pyx``."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

from kfast._native.buffers import OwnedBuffer

# ndarray has the buffer protocol, but its stubs say so only for Python 3.12 and later.
BufferLike: TypeAlias = Buffer | NDArray[Any]

def big_endian_column(
    data: BufferLike, starts: BufferLike, lengths: BufferLike, width: int, stop_at_first: bool
) -> tuple[OwnedBuffer, OwnedBuffer | None, int]: ...
def block_column(
    data: BufferLike, starts: BufferLike, lengths: BufferLike, width: int, stop_at_first: bool
) -> tuple[OwnedBuffer, OwnedBuffer | None, int]: ...
def uuid_column(
    data: BufferLike, starts: BufferLike, lengths: BufferLike, stop_at_first: bool
) -> tuple[OwnedBuffer, OwnedBuffer | None, int]: ...
def utf8_column(
    data: BufferLike, starts: BufferLike, lengths: BufferLike, stop_at_first: bool
) -> tuple[None, OwnedBuffer | None, int]: ...
