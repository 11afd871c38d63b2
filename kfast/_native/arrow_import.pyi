"""Types of the compiled module; ownership is documented in ``arrow_import.pyx``."""

from __future__ import annotations

from typing import final

from kfast._native.buffers import OwnedBuffer

@final
class ImportedBytes:
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def nbytes(self) -> int: ...

def import_bytes(
    capsule: object, is_wide: bool
) -> tuple[ImportedBytes, OwnedBuffer, OwnedBuffer]: ...
