"""Types of the compiled module; behaviour and rules are documented in ``codecs.pyx``."""

from __future__ import annotations

from typing_extensions import Buffer

from kfast._native.buffers import OwnedBuffer

def decompress(codec_id: int, data: Buffer, max_bytes: int, magic: int = 2) -> OwnedBuffer: ...
