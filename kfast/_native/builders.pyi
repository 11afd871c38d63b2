"""Types of the compiled module; the rules are in ``builders.pyx``."""

from __future__ import annotations

from typing import Any, TypeAlias, final

from kfast._native.buffers import OwnedBuffer

Dictionary: TypeAlias = tuple[int, OwnedBuffer, OwnedBuffer]
"""Number of texts, their int32 offsets, their bytes."""

Built: TypeAlias = tuple[
    int,
    int,
    int,
    OwnedBuffer | None,
    OwnedBuffer | None,
    OwnedBuffer | None,
    Dictionary | None,
    tuple[Any, ...],
]
"""Storage, length, nulls, validity bitmap, data, int32 offsets, dictionary, children."""

@final
class ColumnBuilders:
    is_full: bool
    memory_bytes: int
    most_bytes: int
    most_items: int
    most_row_bytes: int
    def __init__(self) -> None: ...
