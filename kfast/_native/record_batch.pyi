"""Types of the compiled module; behaviour and rules are documented in ``record_batch.pyx``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final, overload

from kfast._native.buffers import OwnedBuffer
from kfast._native.record_index import RecordIndex as RecordIndex

@final
class SliceDecoder:
    def __init__(
        self,
        frame: OwnedBuffer,
        start: int,
        end: int,
        *,
        topic: str,
        partition: int,
        position: int,
        aborted_transactions: Iterable[tuple[int, int]] = (),
        read_committed: bool = False,
        check_crcs: bool = True,
        max_decompressed_batch_bytes: int = ...,
    ) -> None: ...
    @property
    def finished(self) -> bool: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @overload
    def decode(self, max_bytes: int, most_bytes: None = None) -> RecordIndex: ...
    @overload
    def decode(self, max_bytes: int, most_bytes: int | None) -> RecordIndex | None: ...
