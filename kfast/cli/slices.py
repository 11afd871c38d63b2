"""A consumer whose polls return decoded slices as they are: no columns, no NumPy.

A `Slice` has some rows of one partition, as positions in the bytes that were received; the text
writer reads them there. Application thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kfast.internals import KafkaConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast.internals import CompletedFetch, RecordIndex
    from kfast.types import TopicPartition


class Slice:
    """Rows ``start`` to ``stop`` of a decoded chunk.

    ``next_offset`` is the position behind them: that of the chunk if it ends with them.
    """

    __slots__ = ("index", "start", "stop", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, index: RecordIndex, start: int, stop: int
    ) -> None:
        self.topic_partition = topic_partition
        self.index = index
        self.start = start
        self.stop = stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, rows: slice) -> Slice:
        start, stop, _ = rows.indices(len(self))
        return Slice(
            self.topic_partition, self.index, self.start + start, self.start + max(start, stop)
        )

    @property
    def offsets(self) -> memoryview:
        """The offsets of the rows, ascending."""
        return memoryview(self.index.offsets).cast("q")[self.start : self.stop]

    @property
    def timestamps(self) -> memoryview:
        """Milliseconds since 1970, -1 for none."""
        return memoryview(self.index.timestamps).cast("q")[self.start : self.stop]

    @property
    def last_timestamp(self) -> int:
        """That of the last row; there is one."""
        return int(self.timestamps[-1])

    @property
    def next_offset(self) -> int:
        """The position behind the rows."""
        if self.stop == len(self.index):
            return self.index.next_offset
        return int(memoryview(self.index.offsets).cast("q")[self.stop])

    @property
    def leader_epoch(self) -> int:
        """That of all rows, -1 if unknown."""
        return self.index.leader_epoch

    @property
    def nbytes(self) -> int:
        """About as many bytes of records, decompressed."""
        return self.index.nbytes * len(self) // max(1, len(self.index))

    def __repr__(self) -> str:
        return f"<Slice {self.topic_partition} {len(self)} rows>"


class PolledSlices(dict["TopicPartition", Slice]):
    """The result of a poll. A slice without rows has moved its partition's position."""

    def count(self) -> int:
        """Return the number of rows."""
        return sum(map(len, self.values()))

    def last_batches(self) -> Iterable[tuple[TopicPartition, Slice]]:
        """Return the last slice of each partition, which is its only one."""
        return self.items()


class _Converted:
    """A chunk that is handed out as it is."""

    __slots__ = ("records",)
    error = None
    rest = None
    column_bytes = 0

    def __init__(self, records: Slice) -> None:
        self.records = records


class SliceConverter:
    """Stands in for the `RecordConverter` of a consumer."""

    runs_ahead = False

    def __call__(self, fetch: CompletedFetch, chunk: RecordIndex) -> _Converted:
        """Return all rows of a chunk."""
        return _Converted(Slice(fetch.topic_partition, chunk, 0, len(chunk)))

    def records(self, collected: Mapping[TopicPartition, Slice] | Iterable[Slice]) -> PolledSlices:
        """Return the result of a poll."""
        if isinstance(collected, Mapping):
            return PolledSlices(collected)
        return PolledSlices({rows.topic_partition: rows for rows in collected})


class SliceConsumer(KafkaConsumer):
    """A `KafkaConsumer` whose `poll` returns `PolledSlices`."""

    def _converter(self, _wake: Callable[[], object]) -> SliceConverter:
        return SliceConverter()
