"""Records as decoded slices, and the text that a format of ``kfast read`` makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kfast._native.record_batch import RecordIndex
from kfast._native.text_writer import TextWriter
from kfast.cli.formats import TextOptions, text_format
from kfast.testing.batches import Headers, Record
from tests.reference.batches import encode_record_batch
from tests.reference.native import decode

START_MS = 1_735_689_600_000  # 2025-01-01


def index_of(
    values: Sequence[bytes | None] = (),
    keys: Sequence[bytes | None] | None = None,
    headers: Headers = (("h", b"1"),),
    timestamps: Sequence[int] | None = None,
    **batch: Any,
) -> RecordIndex:
    """Return decoded records, a millisecond apart."""
    count = len(values)
    records = [
        Record(key, value, headers, timestamp)
        for key, value, timestamp in zip(
            [b"k"] * count if keys is None else keys,
            values,
            range(START_MS, START_MS + count) if timestamps is None else timestamps,
            strict=True,
        )
    ]
    (index,) = decode(encode_record_batch(records, **batch)).chunks
    return index


def written(
    name: str,
    *indexes: RecordIndex,
    on_error: str = "fail",
    is_terminal: bool = False,
    block_bytes: int = 1 << 20,
    topic: str = "t",
    partition: int = 3,
    **options: Any,
) -> bytes:
    """Return the whole output of a format; an undecodable value ends it with ValueError."""
    form = text_format(name, TextOptions(is_terminal=is_terminal, **options))
    writer = TextWriter(
        form.operations,
        on_error=on_error,
        is_terminal=is_terminal,
        block_bytes=block_bytes,
        line_width=form.line_width,
    )
    parts = [form.begin]
    for index in indexes:
        row = 0
        while row < len(index):
            row = writer.write(index, topic.encode(), partition, row, len(index))
            parts.append(bytes(writer))
            writer.clear()
            if writer.bad is not None:
                raise ValueError(*writer.bad)
    return b"".join([*parts, form.end if writer.records else form.end_of_none])
