"""BoundedRead: partitions read from start offsets to end offsets, which it reaches exactly.

Owns assignment, positions and ends of one read, and what it does where records do not come. Used by
``read_topic`` and ``scan_topic``, ``kfast read``, tasks of Spark and ingests; without ends it
follows the logs. A partition is done when its *position* reaches its end, not when a record does:
the last offsets of a compacted or transactional log may hold no record.

| `LossKind` | where | what the read does |
|---|---|---|
| GONE | the log starts behind the position | goes on there if it `skips_lost`, else an error |
| SHORTENED | the log ends before the end of the range | it ``ends_early``, or an error |
| DELETED | the partition does not exist | as with SHORTENED |
| CREATED_ANEW | the topic has another id | ``is_of_new_topic``, or as with SHORTENED |
| TRUNCATED | the log has other records now (KIP-320) | an error |
| SILENT | no progress for ``silence_ms`` | an error |

The consumer resets no position meanwhile, whatever its ``auto.offset.reset``. The ends of the logs
are looked up after a second without progress. Time that the caller takes for what it was given does
not count. How errors are worded, and how lost offsets are counted, is the caller's.
Application thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from kfast._base.clock import Clock, SystemClock
from kfast._base.logs import get_logger
from kfast.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.application.internals import ConsumerInternals

logger = get_logger(__name__)

POLL_MS: Final = 1_000
"""How long a poll waits for records."""
_WARN_EVERY_MS: Final = 60_000
"""Least time between two warnings that brokers are waited for."""


@dataclass(slots=True, frozen=True)
class ReadPolicy:
    """What a read does where records do not come."""

    skips_lost: bool = False
    """Go on behind offsets that are gone, and count them."""
    ends_early: bool = False
    """End a partition that no longer has the rest of its range, and count that as lost."""
    is_of_new_topic: bool = False
    """The range is of a topic created anew that the metadata lacks yet: seek again at its start."""
    follows_new_topic: bool = False
    """Follow a topic that was created anew from its beginning."""
    waits_for_brokers: bool = False
    """Wait for brokers that restart, and for metadata that lags behind, for ``silence_ms``."""
    silence_ms: int | None = None
    """Longest time without progress; None: ``default_api_timeout_ms``."""


class LossKind(Enum):
    """Why a read does not get what it is to read."""

    GONE = auto()
    SHORTENED = auto()
    DELETED = auto()
    CREATED_ANEW = auto()
    TRUNCATED = auto()
    SILENT = auto()


@dataclass(slots=True, frozen=True)
class Loss:
    """What a read does not get."""

    kind: LossKind
    topic_partition: TopicPartition
    position: int
    until: int | None
    """The end of what is lost; None in a partition that is followed."""
    cause: KafkaError | None = None
    """What the consumer has raised."""
    log_start: int | None = None
    log_end: int | None = None
    silent_ms: int = 0
    """For how long nothing came, at least."""


B = TypeVar("B")
"""Records of one partition with ``offsets`` and ``next_offset``, as columns or as positions."""


class RangeConsumer(Protocol):
    """The methods of ``KafkaConsumer`` that a read uses."""

    @property
    def _internals(self) -> ConsumerInternals: ...
    def poll(self, timeout_ms: int) -> Any: ...
    def assign(self, partitions: Collection[TopicPartition]) -> None: ...
    def assignment(self) -> set[TopicPartition]: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...
    def seek_to_beginning(self, *partitions: TopicPartition) -> None: ...
    def pause(self, *partitions: TopicPartition) -> None: ...
    def resume(self, *partitions: TopicPartition) -> None: ...
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]: ...


class BoundedRead(Generic[B]):
    """One read of some partitions; it may begin again with others.

    ``error_of`` words the error of a loss; ``lost`` is called for one that is skipped, with its
    error. ``watch`` is called with each batch as it was polled, with what is behind its end too.
    """

    def __init__(
        self,
        consumer: RangeConsumer,
        policy: ReadPolicy,
        error_of: Callable[[Loss], KafkaError],
        lost: Callable[[Loss, KafkaError], object],
        *,
        clock: Clock | None = None,
        watch: Callable[[TopicPartition, B], object] | None = None,
    ) -> None:
        self._internals = consumer._internals
        self._consumer = consumer
        self._policy = policy
        self._error_of = error_of
        self._lost = lost
        self._clock = clock or SystemClock()
        self._watch = watch
        self._follows = False
        self._starts: dict[TopicPartition, int] = {}
        self._finished: list[TopicPartition] = []
        """Partitions that have come to their ends in this poll."""
        self._paused: set[TopicPartition] = set()
        self._idle_since_ms: int | None = None
        """When the first poll since the last progress began."""
        self._checked_ms = 0
        self._warn_ms = 0
        self.positions: dict[TopicPartition, int] = {}
        """Behind what was returned of each partition, at most at its end."""
        self.ends: dict[TopicPartition, int] = {}
        """Of the partitions that are not read to their end yet."""

    def begin(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Read from start offsets to end offsets."""
        for tp, (start, end) in sorted(ranges.items()):
            if start > end:
                logger.warning("%s: start %d is beyond end %d", tp, start, end)
        self.ends = {tp: end for tp, (start, end) in ranges.items() if start < end}
        self._assign({tp: start for tp, (start, _) in ranges.items()}, self.ends)

    def follow(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read from these offsets on, without an end."""
        self.ends = {}
        self._assign(starts, starts)
        self._follows = True

    def _assign(
        self, starts: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
    ) -> None:
        self._follows = False
        self._starts, self.positions = dict(starts), dict(starts)
        self._idle_since_ms = None
        if partitions:
            self._consumer.assign(sorted(partitions))
            self._internals.read_range(self.ends)
            for tp in partitions:
                self._consumer.seek(tp, starts[tp])
            self._consumer.resume(*self._paused.intersection(partitions))
            self._paused.clear()

    def add(self, starts: Mapping[TopicPartition, int | None]) -> None:
        """Follow more partitions; None: from the log start offset."""
        self._consumer.assign(sorted({*self._consumer.assignment(), *starts}))
        for tp, start in starts.items():
            self._starts[tp] = self.positions[tp] = start or 0
            if start is None:
                self._consumer.seek_to_beginning(tp)
            else:
                self._consumer.seek(tp, start)

    @property
    def done(self) -> int:
        """The number of offsets that were read."""
        return sum(self.positions[tp] - start for tp, start in self._starts.items())

    def seek(self, tp: TopicPartition, position: int) -> None:
        """Go on at an offset, unless that is the end."""
        if position > self.positions[tp]:
            self._move(tp, position)
        if self._follows or tp in self.ends:
            self._consumer.seek(tp, position)

    def poll(self, timeout_ms: int = POLL_MS) -> list[tuple[TopicPartition, B]]:
        """Return the batches that come within a time, without what is behind the ends.

        At most one per partition, without rows where only the position has moved.
        """
        if self._idle_since_ms is None:
            self._idle_since_ms = self._checked_ms = self._clock.now_ms()
        batches: list[tuple[TopicPartition, B]] = []
        failure: KafkaError | None = None
        try:
            batches = self._take(self._consumer.poll(timeout_ms=timeout_ms))
        except OffsetOutOfRangeError as error:
            self._go_behind_lost(error)
        except NoOffsetForPartitionError as error:
            self._go_on_in_new_topic(error)
        except LogTruncationError as error:
            tp = _partition_of(error)
            if self._policy.skips_lost and tp in self.ends:
                self._check_ends([tp])
            if self._follows or tp in self.ends:
                loss = Loss(LossKind.TRUNCATED, tp, self.positions[tp], None, error)
                self._skip(loss, is_allowed=False)
        except (KafkaConnectionError, KafkaTimeoutError, UnknownTopicOrPartitionError) as error:
            if not self._policy.waits_for_brokers:
                raise
            failure = error
        if self._idle_since_ms is not None:
            self._note_no_progress(failure)
        if self._finished:
            finished, self._finished = self._finished, []
            if self.ends:
                self._consumer.pause(*finished)
                self._paused.update(finished)
        return batches

    def _take(self, polled: Any) -> list[tuple[TopicPartition, B]]:
        batches: list[tuple[TopicPartition, B]] = []
        for tp, last in polled.last_batches():
            end = self.ends.get(tp)
            if end is None and not self._follows:
                continue  # it was read to its end before
            if self._watch is not None:
                self._watch(tp, last)
            batch = polled.get(tp, last)
            if end is not None and last.next_offset > end:
                batch = batch[: bisect_left(batch.offsets, end)]
            self._move(tp, last.next_offset)
            batches.append((tp, batch))
        if not batches:  # interceptors may have left out everything
            for tp in [*(self.positions if self._follows else self.ends)]:
                position = self._internals.position(tp)
                if position is not None and position > self.positions[tp]:
                    self._move(tp, position)
        return batches

    def _move(self, tp: TopicPartition, position: int) -> None:
        self._idle_since_ms = None
        end = self.ends.get(tp)
        if end is not None and position >= end:
            position = end
            del self.ends[tp]
            self._finished.append(tp)
        self.positions[tp] = position

    # --- when records do not come -----------------------------------------------------------------

    def _go_behind_lost(self, error: OffsetOutOfRangeError) -> None:
        tp = _partition_of(error)
        position, until = self.positions[tp], self.ends.get(tp)
        log_start = self._consumer.beginning_offsets([tp])[tp]
        if log_start <= position:  # the log ends before the position
            self._lose(LossKind.SHORTENED, tp, error)
            return
        until = log_start if until is None else min(log_start, until)
        loss = Loss(LossKind.GONE, tp, position, until, error, log_start)
        self._skip(loss, is_allowed=self._policy.skips_lost)
        self.seek(tp, until)

    def _go_on_in_new_topic(self, error: NoOffsetForPartitionError) -> None:
        """Go on where the consumer has dropped a position: the topic was created anew."""
        tp = _partition_of(error)
        is_unread = self.positions[tp] == self._starts[tp]
        if self._policy.is_of_new_topic and is_unread:
            self._consumer.seek(tp, self.positions[tp])
        else:
            self._lose(LossKind.CREATED_ANEW, tp, error)

    def _lose(
        self,
        kind: LossKind,
        tp: TopicPartition,
        cause: KafkaError | None,
        log_end: int | None = None,
    ) -> None:
        """Go on behind the range of a partition that has no more of it, if that is allowed."""
        end = self.ends.get(tp)
        loss = Loss(kind, tp, self.positions[tp], end, cause, log_end=log_end)
        if end is not None:
            self._skip(loss, is_allowed=self._policy.ends_early)
            self._move(tp, end)
        elif self._policy.follows_new_topic:
            logger.warning("%s is read from its beginning: %s", tp, self._error_of(loss).message)
            self._consumer.seek_to_beginning(tp)
            self._starts[tp] = self.positions[tp] = 0
        else:
            self._skip(loss, is_allowed=False)

    def _skip(self, loss: Loss, *, is_allowed: bool) -> None:
        error = self._error_of(loss)
        if not is_allowed:
            raise error from (error.__cause__ if error is loss.cause else loss.cause)
        self._lost(loss, error)

    def _note_no_progress(self, failure: KafkaError | None) -> None:
        """Check the ends of the logs if that is due; raise after too long a time."""
        if self._follows and failure is None:
            self._idle_since_ms = None  # there is nothing new
            return
        now_ms = self._clock.now_ms()
        if self.ends and now_ms - self._checked_ms >= POLL_MS:
            failure = self._check_ends(self.ends) or failure
            now_ms = self._checked_ms = self._clock.now_ms()
        if self._idle_since_ms is None:
            return
        limit_ms = self._policy.silence_ms
        if limit_ms is None:
            limit_ms = self._internals.timeout_ms
        if now_ms - self._idle_since_ms >= limit_ms:
            tp = min(self.ends or self.positions)
            loss = Loss(LossKind.SILENT, tp, self.positions[tp], None, failure, silent_ms=limit_ms)
            self._skip(loss, is_allowed=False)
        if failure is not None and now_ms >= self._warn_ms:
            self._warn_ms = now_ms + _WARN_EVERY_MS
            logger.warning("no records: %s", failure)

    def _check_ends(self, partitions: Iterable[TopicPartition]) -> KafkaError | None:
        """Look for logs that no longer have their range; return why that is not known."""
        try:
            log_ends = self._internals.high_watermarks(partitions)
        except UnknownTopicOrPartitionError as error:
            deleted = [
                tp
                for tp in self.ends
                if tp.topic == error.topic and error.partition in {None, tp.partition}
            ]
            if not deleted:
                raise
            for tp in deleted:
                self._lose(LossKind.DELETED, tp, error)
        except (KafkaConnectionError, KafkaTimeoutError) as error:
            if not self._policy.waits_for_brokers:
                raise
            return error
        else:
            for tp, log_end in sorted(log_ends.items()):
                if log_end < self.ends[tp]:
                    self._lose(LossKind.SHORTENED, tp, None, log_end)
        return None

    def __repr__(self) -> str:
        return f"<BoundedRead {len(self.ends)} of {len(self.positions)} partitions to read>"


def error_of(loss: Loss, hint: str) -> KafkaError:
    """Word the error of a loss for those who read a range; ``hint`` is about offsets."""
    tp, cause = loss.topic_partition, loss.cause
    place: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition}
    if loss.kind is LossKind.CREATED_ANEW:
        return OffsetOutOfRangeError(
            f"{tp.topic} was deleted and created anew while it was read",
            hint="read it again from the start",
            **place,
        )
    if loss.kind is LossKind.SILENT:
        return KafkaTimeoutError(
            f"no records for {loss.silent_ms} ms, though the logs have more",
            cause=None if cause is None else cause.message,
            found=f"{tp} was read up to offset {loss.position}",
            hint="check the brokers, or raise default_api_timeout_ms",
            offset=loss.position,
            **place,
        )
    if cause is None:
        return OffsetOutOfRangeError(
            f"the log of {tp} ends at {loss.log_end} now, and was to be read to {loss.until}",
            cause="it was truncated, or the topic was deleted and created anew",
            hint="read it again from the start",
            offset=loss.log_end,
            **place,
        )
    if loss.kind is not LossKind.DELETED:
        cause.hint = hint
    return cause


def log_lost(loss: Loss, _error: KafkaError) -> None:
    """Log offsets that are skipped."""
    until = 0 if loss.until is None else loss.until
    logger.warning("%s: offsets %d to %d are lost", loss.topic_partition, loss.position, until - 1)


def _partition_of(error: KafkaError) -> TopicPartition:
    return TopicPartition(error.topic or "", error.partition or 0)
