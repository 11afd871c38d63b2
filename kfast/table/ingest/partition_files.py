"""PartitionFiles: the records of one partition as one range of files after the other.

Owns where a range ends: at a number of rows, at a number of bytes, or where it is cut from outside.
Ranges follow each other without a gap; offsets that are lost belong to the range they are in.
Ranges that are complete stay here until they are published, so that none is left out. One thread
at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kfast.table.batches import ReadRange
from kfast.table.offset_ranges import OffsetRange
from kfast.table.read_counts import ReadCounts
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kfast.records.partition_records import PartitionRecords
    from kfast.table.range_files import RangeFiles


class PartitionFiles:
    """The files of one partition, which begin at ``from_offset``.

    ``position`` is the end of what was written, ``done`` has the ranges that are complete; ``make``
    opens the files of a range.
    """

    def __init__(
        self,
        tp: TopicPartition,
        from_offset: int,
        make: Callable[[OffsetRange], RangeFiles],
        *,
        rows_per_file: int,
        bytes_per_file: int,
    ) -> None:
        self.topic_partition = tp
        self.position = from_offset
        self.done: list[ReadRange] = []
        self._from_offset = from_offset
        self._make = make
        self._rows_per_file = rows_per_file
        self._bytes_per_file = bytes_per_file
        self._files: RangeFiles | None = None
        self._counts = ReadCounts()
        self._bad: NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def has_records(self) -> bool:
        """Whether the range that was begun has any."""
        return self._files is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of records that are in no file yet."""
        return 0 if self._files is None else self._files.waiting_bytes

    @property
    def open_outputs(self) -> int:
        """Number of open files."""
        return 0 if self._files is None else self._files.open_outputs

    def note_bad(self, offsets: NDArray[np.int64]) -> None:
        """Take the offsets of malformed keys and values, which are null now, or left out.

        They follow those before, and count in the range that they are in.
        """
        self._bad = np.concatenate((self._bad, offsets))

    def write(self, records: PartitionRecords, until: int | None = None) -> bool:
        """Write records that follow those before; return whether a file is complete by now.

        With ``until`` they are before it, though records behind it may be left out.
        """
        is_complete = False
        while len(records):
            files = self._files or self._begin()
            room = max(1, self._rows_per_file - files.most_rows)
            more = len(records) > room
            files.write(records[:room] if more else records)
            self.position = int(records.offsets[room]) if more else records.next_offset
            if until is not None:
                self.position = min(self.position, until)
            if files.most_rows >= self._rows_per_file or files.most_bytes >= self._bytes_per_file:
                self.cut()
                is_complete = True
            if not more:
                break
            records = records[room:]
        return is_complete

    def _begin(self) -> RangeFiles:
        self._files = self._make(
            OffsetRange(*self.topic_partition, self._from_offset, self._from_offset)
        )
        return self._files

    def move_to(self, position: int, *, is_lost: bool = False) -> None:
        """Move to a later position, between which and the present one is no record."""
        if is_lost:
            self._counts.lost_offsets += position - self.position
        self.position = position

    def spill(self) -> None:
        """Write what is in no file yet."""
        if self._files is not None:
            self._files.spill()

    def cut(self) -> None:
        """End the range at the position and begin the next, unless it is empty.

        A range without records has no file.
        """
        if self.position == self._from_offset:
            return
        bad = int(np.searchsorted(self._bad, self.position))
        self._counts.bad_records += bad
        self._bad = self._bad[bad:]
        self.done.append((self._files or self._begin()).close(self._counts, self.position))
        self._files, self._counts = None, ReadCounts()
        self._from_offset = self.position

    def discard(self) -> None:
        """Remove the files of the range that was begun."""
        if self._files is not None:
            self._files.discard()
            self._files = None

    def __repr__(self) -> str:
        return f"<PartitionFiles {self.topic_partition} {self._from_offset}:{self.position}>"
