"""Types of the compiled module; behaviour and rules are documented in ``text_writer.pyx``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, final

from typing_extensions import Buffer

from kfast._native.column_text import ColumnTexts
from kfast._native.record_index import RecordIndex

FIELDS: dict[str, int]
FORMS: dict[str, int]

@final
class TextWriter:
    def __init__(
        self,
        operations: Iterable[tuple[str, str, str, bytes, bytes]],
        *,
        on_error: str = "fail",
        is_terminal: bool = False,
        block_bytes: int = ...,
        line_width: int = 0,
    ) -> None: ...
    @property
    def records(self) -> int: ...
    @property
    def nulled(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def bad(self) -> tuple[int, Literal["key", "value"], int] | None: ...
    def write(
        self,
        index: RecordIndex,
        topic: bytes,
        partition: int,
        start: int,
        stop: int,
        most: int = -1,
        *,
        columns: list[ColumnTexts] | None = None,
        first: int = 0,
        left_out: Buffer | None = None,
    ) -> int: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
