"""Types of the compiled module; layout and rules are documented in ``headers.pyx``."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

from kfast._native.buffers import OwnedBuffer

# ndarray has the buffer protocol, but its stubs say so only for Python 3.12 and later.
BufferLike: TypeAlias = Buffer | NDArray[Any]

def parse_headers(
    data: BufferLike, starts: BufferLike, counts: BufferLike
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer]: ...
def header_lengths(data: BufferLike, starts: BufferLike, counts: BufferLike) -> OwnedBuffer: ...
def empty_lists(count: int) -> list[list[Any]]: ...
