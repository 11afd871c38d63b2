"""ReadOffsets: under which topic id and leader epoch the offsets of each partition were read.

An offset that the application commits may be a bare number, and one of an earlier poll, of an
earlier assignment, or of a topic that was deleted and created again since. Owns what is known of
it: ranges of offsets that were read under one position, one leader epoch and one topic id. Those of
the current position are kept by its `TopicPartitionState` (``epoch_starts``), which an advance
touches only when the epoch changes; they are added here when another position replaces it. Ranges
stay when a partition is unassigned, the latest of each partition and of so many partitions.

A range covers the offsets to commit behind its records: from after ``start`` up to ``end``. The
latest range that covers an offset counts. Offset 0 has no record before it and belongs to no topic:
committed to any, it skips nothing. It has no lock of its own: every access happens under
that of the `SubscriptionState` that owns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfast.consumer.topic_partition_state import TopicPartitionState
    from kfast.types import TopicPartition

MOST_RANGES: Final = 32
"""Of one partition; it takes a seek or a change of leader to begin one."""

MOST_PARTITIONS: Final = 10_000
"""With ranges of earlier positions."""


class OffsetOrigin(NamedTuple):
    """Where an offset was read; None: unknown."""

    topic_id: bytes | None
    leader_epoch: int | None


class _Range(NamedTuple):
    start: int
    end: int
    topic_id: bytes | None
    leader_epoch: int | None


class ReadOffsets:
    """What was read of the partitions of one consumer. Not locked."""

    __slots__ = ("_earlier",)

    def __init__(self) -> None:
        self._earlier: dict[TopicPartition, tuple[_Range, ...]] = {}

    def end(self, state: TopicPartitionState) -> None:
        """Keep what was read under a position that is about to be replaced or dropped."""
        tp = state.topic_partition
        ranges = list(self._earlier.get(tp, ()))
        for span in _ranges(state):
            last = ranges[-1] if ranges else None
            if last is not None and last[2:] == span[2:] and last.start <= span.start <= last.end:
                ranges[-1] = last._replace(end=max(last.end, span.end))
            else:
                ranges.append(span)
        if ranges:
            self._earlier.pop(tp, None)  # the latest last
            self._earlier[tp] = tuple(ranges[-MOST_RANGES:])
        if len(self._earlier) > MOST_PARTITIONS:
            del self._earlier[next(iter(self._earlier))]

    def origin(
        self, tp: TopicPartition, offset: int, state: TopicPartitionState | None
    ) -> OffsetOrigin | None:
        """Return where an offset was read, None if it is not known to have been.

        ``state`` is that of the partition now, if it is assigned.
        """
        current = [] if state is None else list(_ranges(state))
        topic_id: bytes | None = None
        is_read = False
        for span in reversed([*self._earlier.get(tp, ()), *current]):
            if not span.start < offset <= span.end:
                continue
            if is_read and span.topic_id != topic_id:
                break
            is_read, topic_id = True, span.topic_id
            if span.leader_epoch is not None:  # that of a mere seek to the offset is unknown
                return OffsetOrigin(topic_id, span.leader_epoch)
        return OffsetOrigin(topic_id, None) if is_read else None

    def __repr__(self) -> str:
        return f"<ReadOffsets of {len(self._earlier)} partitions>"


def _ranges(state: TopicPartitionState) -> Iterator[_Range]:
    """Yield the ranges of offsets that were read under the current position."""
    position, starts = state.position, state.epoch_starts
    if position is None:
        return
    ends = [*(start for start, _ in starts[1:]), position.offset]
    for (start, epoch), end in zip(starts, ends, strict=False):
        if start < end:
            yield _Range(start, end, state.topic_id, epoch)
