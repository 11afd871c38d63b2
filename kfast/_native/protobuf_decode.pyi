"""Types of the compiled module; the rules are documented in ``protobuf_decode.pyx``."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from kfast._native.buffers import OwnedBuffer
from kfast._native.builders import Built
from kfast._native.deserialize import BufferLike

def decode(
    layout: array[int],
    names: Mapping[int, Sequence[str]],
    plan: tuple[array[int], array[int], array[int], array[int], bytes] | None,
    data: BufferLike,
    starts: BufferLike,
    lengths: BufferLike,
    mode: int,
    row_plans: BufferLike | None = None,
    prefixes: BufferLike | None = None,
    max_depth: int = 64,
    most_bytes: int = ...,
) -> tuple[Built, OwnedBuffer | None]: ...
