"""The first and last records of a batch or a result, as ``repr`` and notebooks show them.

Only the rows that are shown are decoded. Any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from kfast.columns.table_text import (
    ELLIPSIS,
    cell_text,
    html_table,
    number_text,
    size_text,
    text_table,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kfast.records.consumer_record import ConsumerRecord
    from kfast.types import TopicPartition


class Batch(Protocol):
    """What is shown of ``PartitionRecords``."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def columns(self) -> Collection[str]: ...
    @property
    def offsets(self) -> NDArray[np.int64]: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: int) -> ConsumerRecord: ...


_TEXT_ROWS: Final = 5
_HTML_ROWS: Final = 10
"""Most rows shown of the start, and of the end."""
_RIGHT: Final = {"partition", "offset"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def partition_title(batch: Batch) -> str:
    """Return partition, count, offsets and size of a batch in one line."""
    parts = [f"{batch.topic_partition}: {_count(len(batch))}"]
    if len(batch):
        parts += [f"offsets {batch.offsets[0]}-{batch.offsets[-1]}", size_text(batch.nbytes)]
    return ", ".join([*parts, f"next {batch.next_offset}"])


def result_title(batches: Sequence[Batch]) -> str:
    """Return a line per topic, and one for all if there are several."""
    topics: dict[str, list[Batch]] = {}
    for batch in batches:
        topics.setdefault(batch.topic, []).append(batch)
    lines = [_topic_line(topic, some) for topic, some in sorted(topics.items())]
    if len(lines) == 1:
        return lines[0]
    every = f"{_count(sum(map(len, batches)))} of {len(topics)} topics"
    size = sum(batch.nbytes for batch in batches)
    return "\n".join([f"{every}, {size_text(size)}" if topics else "no records", *lines])


def _topic_line(topic: str, batches: Sequence[Batch]) -> str:
    partitions = len({batch.partition for batch in batches})
    size = size_text(sum(batch.nbytes for batch in batches))
    of = "1 partition" if partitions == 1 else f"{number_text(partitions)} partitions"
    return f"{topic}: {_count(sum(map(len, batches)))} in {of}, {size}"


def _count(count: int) -> str:
    return "1 record" if count == 1 else f"{number_text(count)} records"


def text_preview(title: str, batches: Sequence[Batch]) -> str:
    """Return the title and a table of the first and last rows."""
    headings, rows = _table(batches, _TEXT_ROWS)
    if not rows:
        return title
    right = [name in _RIGHT for name in headings]
    return f"{title}\n{text_table(headings, rows, right=right)}"


def html_preview(title: str, batches: Sequence[Batch]) -> str:
    """Return the same, with more rows, as HTML."""
    headings, rows = _table(batches, _HTML_ROWS)
    return html_table(title, headings, rows)


def _table(batches: Sequence[Batch], most: int) -> tuple[list[str], list[list[str]]]:
    topics = {batch.topic for batch in batches}
    partitions = {batch.topic_partition for batch in batches}
    headings = [
        *(["topic"] if len(topics) > 1 else []),
        *(["partition"] if len(partitions) > 1 else []),
        *("offset", "timestamp"),
        *(name for name in ("key", "value") if _is_selected(batches, name)),
    ]
    total = sum(map(len, batches))
    rows = [[_cell(record, name) for name in headings] for record in _first(batches, most)]
    last = min(most, total - len(rows))
    if total > len(rows) + last:
        rows.append([ELLIPSIS] * len(headings))
    rows += [
        [_cell(record, name) for name in headings] for record in reversed([*_last(batches, last)])
    ]
    return headings, rows


def _is_selected(batches: Sequence[Batch], name: str) -> bool:
    return bool(batches) and name in batches[0].columns


def _first(batches: Sequence[Batch], count: int) -> Iterator[ConsumerRecord]:
    for batch in batches:
        for row in range(min(count, len(batch))):
            yield batch[row]
        count -= len(batch)
        if count <= 0:
            return


def _last(batches: Sequence[Batch], count: int) -> Iterator[ConsumerRecord]:
    for batch in reversed(batches):
        for row in range(1, min(count, len(batch)) + 1):
            yield batch[-row]
        count -= len(batch)
        if count <= 0:
            return


def _cell(record: ConsumerRecord, name: str) -> str:
    if name == "timestamp":
        return _time(record.timestamp)
    value: Any = getattr(record, name)
    return str(value) if name in _RIGHT else cell_text(value)


def _time(ms: int) -> str:
    if ms < 0:
        return "null"
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{ms % 1000:03}"
