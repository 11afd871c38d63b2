"""Types of the compiled module; operations are documented in ``builder_operations.pyx``."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kfast._native.buffers import OwnedBuffer
from kfast._native.builders import Built

def build(
    layout: array[int],
    operations: Iterable[tuple[Any, ...]],
    rows: int = 0,
    value_bytes: int = 0,
    most_row_bytes: int | None = None,
    most_items: int | None = None,
    most_bytes: int | None = None,
    categories: Mapping[int, Sequence[str]] | None = None,
) -> tuple[Built, OwnedBuffer | None, list[int], bool, int]: ...
