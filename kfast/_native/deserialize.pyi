"""Types of the compiled module; wire forms and results are documented in ``deserialize.pyx``."""

from __future__ import annotations

from typing_extensions import Buffer

from kfast._native.buffers import OwnedBuffer

def big_endian_column(
    data: Buffer, starts: Buffer, lengths: Buffer, width: int, stop_at_first: bool
) -> tuple[OwnedBuffer, OwnedBuffer | None, int]: ...
def block_column(
    data: Buffer, starts: Buffer, lengths: Buffer, width: int, stop_at_first: bool
) -> tuple[OwnedBuffer, OwnedBuffer | None, int]: ...
def uuid_column(
    data: Buffer, starts: Buffer, lengths: Buffer, stop_at_first: bool
) -> tuple[OwnedBuffer, OwnedBuffer | None, int]: ...
def utf8_column(
    data: Buffer, starts: Buffer, lengths: Buffer, stop_at_first: bool
) -> tuple[None, OwnedBuffer | None, int]: ...
