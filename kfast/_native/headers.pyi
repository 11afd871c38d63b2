"""Types of the compiled module; layout and rules are documented in ``headers.pyx``."""

from __future__ import annotations

from typing_extensions import Buffer

from kfast._native.buffers import OwnedBuffer

def parse_headers(
    data: Buffer, starts: Buffer, counts: Buffer
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer]: ...
def header_lengths(data: Buffer, starts: Buffer, counts: Buffer) -> OwnedBuffer: ...
