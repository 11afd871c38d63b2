"""What ``kfast read`` reads, slice by slice: a range, the newest records, new ones, or a group's.

One consumer does all of it: it looks up the range, reads it, and follows. Records of a partition
come in offset order. Application thread.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

from kfast._base.clock import SystemClock
from kfast._base.logs import get_logger
from kfast.cli.positions import Selection
from kfast.cli.ranges import GONE_HINT, matching_topics, resolve
from kfast.errors import (
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    WakeupError,
)
from kfast.internals import (
    BoundedRead,
    Loss,
    Ranges,
    ReadPolicy,
    error_of,
    internals_of,
    is_glob,
)
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.cli.slices import Slice, SliceConsumer

logger = get_logger(__name__)

FOLLOWED_ROWS: Final = 10
"""How many records a read that follows begins with, if it is given no start."""
_REFRESH_MS: Final = 10_000
"""How often new partitions and topics are looked for."""
_WINDOW_GROWTH: Final = 8


@dataclass(slots=True, frozen=True)
class ReadRequest:
    """Topics, and the offsets of them, that a command reads."""

    topics: tuple[str, ...]
    selection: Selection = field(default_factory=Selection)
    partitions: tuple[int, ...] | None = None
    tail: int | None = None
    follows: bool = False
    skips_lost: bool = False
    has_group: bool = False


class Reading:
    """A read under way.

    ``max_wait_ms`` says how long a poll may wait, since what has been written must not wait for it;
    ``stopped`` whether the read is to end.
    """

    def __init__(
        self,
        consumer: SliceConsumer,
        request: ReadRequest,
        *,
        max_wait_ms: Callable[[], int],
        stopped: Callable[[], bool],
    ) -> None:
        self._consumer = consumer
        self._request = request
        self._max_wait_ms = max_wait_ms
        self._stopped = stopped
        self._clock = SystemClock()
        policy = ReadPolicy(
            skips_lost=request.skips_lost,
            follows_new_topic=request.skips_lost,
        )
        self._read: BoundedRead[Slice] = BoundedRead(
            consumer, policy, lambda loss: error_of(loss, GONE_HINT), self._note_lost
        )
        self.ranges: Ranges = {}
        """Of a read that is not a group's."""
        self.skipped: dict[TopicPartition, int] = {}
        """How many of the offsets asked for are gone."""

    def find(self) -> None:
        """Look up what there is to read, and begin to fetch it; the newest by `slices` only."""
        if self._request.has_group:
            return
        names = self._request.topics
        internals_of(self._consumer).expect_topics(name for name in names if not is_glob(name))
        self.ranges, self.skipped = resolve(
            internals_of(self._consumer),
            lambda: matching_topics(self._consumer, names),
            self._request.selection,
            self._request.partitions,
            skips_lost=self._request.skips_lost,
        )
        if self._request.tail is None:
            self._read.begin(self.ranges)

    @property
    def total(self) -> int:
        """The number of offsets to read."""
        return sum(end - start for start, end in self.ranges.values())

    @property
    def done(self) -> int:
        """The number of offsets that have been read."""
        positions = self._read.positions
        return sum(
            min(max(positions.get(tp, start), start), end) - start
            for tp, (start, end) in self.ranges.items()
        )

    @property
    def lag(self) -> int | None:
        """The number of offsets that are yet to be read in what is followed, None if unknown."""
        lags = [self._consumer.current_lag(tp) for tp in self._consumer.assignment()]
        counted = [lag for lag in lags if lag is not None]
        return sum(counted) if lags and len(counted) == len(lags) else None

    @property
    def problem(self) -> str | None:
        """What keeps the consumer from reading, None if nothing does."""
        return self._consumer.health().problem

    def slices(self) -> Iterator[Slice]:
        """Yield the records to read. Ends early when the read is stopped."""
        if self._request.has_group:
            yield from self._group()
            return
        if self._request.tail is None:
            yield from self._range()
        else:
            yield from self._tail(self._request.tail)
        if self._request.follows and not self._stopped():
            yield from self._follow()

    def _note_lost(self, loss: Loss, _error: object) -> None:
        tp = loss.topic_partition
        assert loss.until is not None  # of what is skipped
        self.skipped[tp] = self.skipped.get(tp, 0) + loss.until - loss.position

    def _poll(self) -> list[Slice]:
        """Poll once; nothing when a signal has come."""
        try:
            return [rows for _, rows in self._read.poll(self._max_wait_ms()) if len(rows)]
        except WakeupError:
            return []

    # --- a range ----------------------------------------------------------------------------------

    def _range(self) -> Iterator[Slice]:
        while self._read.ends and not self._stopped():
            yield from self._poll()

    # --- the newest -------------------------------------------------------------------------------

    def _tail(self, count: int) -> Iterator[Slice]:
        """Yield the newest records of the ranges one by one, oldest first.

        In each partition the last offsets are read; where many of them have no record, more.
        """
        rows: dict[TopicPartition, list[tuple[Any, ...]]] = {tp: [] for tp in self.ranges}
        starts = {tp: end for tp, (_, end) in self.ranges.items()}
        window = count
        while not self._stopped():
            windows = {
                tp: (max(self.ranges[tp][0], start - window), start)
                for tp, start in starts.items()
                if len(rows[tp]) < count and start > self.ranges[tp][0]
            }
            if not windows:
                break
            self._read.begin(windows)
            for batch in self._range():
                tp = batch.topic_partition
                rows[tp] += (
                    (timestamp, tp, offset, batch[row : row + 1])
                    for row, (timestamp, offset) in enumerate(
                        zip(batch.timestamps, batch.offsets, strict=True)
                    )
                )
                if len(rows[tp]) > 2 * count:
                    rows[tp] = _newest(count, rows[tp])
            starts.update((tp, start) for tp, (start, _) in windows.items())
            window *= _WINDOW_GROWTH
        everything = [row for newest in rows.values() for row in _newest(count, newest)]
        self._read.begin({tp: (end, end) for tp, (_, end) in self.ranges.items()})
        for row in reversed(_newest(count, everything)):
            yield row[-1]

    # --- what is new ------------------------------------------------------------------------------

    def _follow(self) -> Iterator[Slice]:
        self._read.follow(self._read.positions)
        refresh_ms = self._clock.now_ms() + _REFRESH_MS
        while not self._stopped():
            yield from self._poll()
            if self._clock.now_ms() >= refresh_ms:
                self._add_new()
                refresh_ms = self._clock.now_ms() + _REFRESH_MS

    def _add_new(self) -> None:
        """Read partitions and topics that have come since, from their first record on."""
        if self._request.partitions is not None or self._request.selection.partitions is not None:
            return
        consumer = self._consumer
        new: set[TopicPartition] = set()
        for name in self._request.topics:
            try:
                for topic in matching_topics(consumer, [name]) if is_glob(name) else [name]:
                    numbers = consumer.partitions_for_topic(topic) or ()
                    new.update(TopicPartition(topic, number) for number in numbers)
            except KafkaError as error:
                logger.info("new partitions cannot be looked up now: %s", error.message)
        new -= consumer.assignment()
        if new:
            self._read.add(dict.fromkeys(new))

    # --- a group ----------------------------------------------------------------------------------

    def _group(self) -> Iterator[Slice]:
        while not self._stopped():
            try:
                polled: Any = self._consumer.poll(timeout_ms=self._max_wait_ms())
            except WakeupError:
                continue
            except (OffsetOutOfRangeError, LogTruncationError) as error:
                error.hint = GONE_HINT
                raise
            yield from (rows for rows in polled.values() if len(rows))


def _newest(count: int, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return nlargest(count, rows, key=lambda row: row[:-1])


def pattern_of(topics: Collection[str]) -> str | None:
    """Return names and globs as one regular expression for topics; None if all are names."""
    if not any(map(is_glob, topics)):
        return None
    return "|".join(f"(?:{fnmatch.translate(name)})" for name in topics)
