"""OffsetLookup: the driver's metadata and offset requests to the brokers.

Owns the look-ups of partitions, log starts, log ends and offsets by time, each tried
``fetchOffset.numRetries`` times with ``fetchOffset.retryIntervalMs`` between. Plans are made by
``batch_reader`` and ``stream_offsets``. It has one consumer without assignment, from the first
look-up on; it must not be pickled or used in a forked child. One thread at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Protocol, TypeVar

from kfast._base.logs import get_logger
from kfast.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from kfast.internals import KafkaConsumer, internals_of, unknown_partition
from kfast.spark.source.consumer_cache import CONSUMERS, ConsumerCache
from kfast.spark.source.data_loss import DataLoss
from kfast.spark.source.offset_limits import LimitKind, OffsetLimit
from kfast.spark.source.options import SourceOptions
from kfast.table.offsets_json import EARLIEST, LATEST
from kfast.table.topic_ids import id_text
from kfast.types import ZERO_UUID, OffsetAndTimestamp, TopicPartition

T = TypeVar("T")
Offsets = dict[TopicPartition, int]

logger = get_logger(__name__)

_LOOKUP_DEFAULTS: Final = {"request.timeout.ms": "20000", "default.api.timeout.ms": "20000"}
"""Shorter than a consumer's, as look-ups are retried; the user's settings take precedence."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Lookup(Protocol):
    """The look-ups a plan needs; tests implement them without a broker."""

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Kafka's ids of the topics that `partitions` found last, if the broker has ids (2.8)."""
        ...

    def partitions(self, *, must_exist: bool) -> set[TopicPartition]:
        """Return the existing partitions that the query selects."""
        ...

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the first offset of each."""
        ...

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the end of each, the last stable offset under ``read_committed``."""
        ...

    def resolve(self, limit: OffsetLimit, partitions: set[TopicPartition]) -> Offsets:
        """Return the offset of each at a limit."""
        ...

    def pause(self) -> None:
        """Wait for the interval between two tries."""
        ...


def starts_instead(
    options: SourceOptions, lookup: Lookup, start: Offsets, end: Offsets | None = None
) -> Offsets:
    """Report starts after the end, which would be read as empty; return where to start instead.

    ``end`` is where a batch query ends, None for a stream. Raises ``OffsetOutOfRangeError`` if
    ``failOnDataLoss`` is true. A start that was looked up may be after the end of the log as
    ``read_committed`` has it: its record is that of an open transaction.
    """
    explicit = options.start.explicit_partitions(start)
    doubtful = explicit | {tp for tp in start if end is not None and start[tp] > end[tp]}
    is_log_end = end is not None and options.end.kind is LimitKind.LATEST
    log_ends = end if end is not None and is_log_end else lookup.latest(doubtful)
    loss = DataLoss(options.fail_on_data_loss)
    instead: Offsets = {}
    for tp in sorted(doubtful & log_ends.keys()):
        log_end = log_ends[tp]
        last = log_end if end is None else end[tp]
        is_open = start[tp] > log_end and tp not in explicit
        if start[tp] > min(last, log_end) and not is_open:
            instead[tp] = last
            loss.report_start(tp, start[tp], last, option=options.start.option, log_end=log_end)
    return instead


class OffsetLookup:
    """The look-ups of one query.

    The consumer comes from ``cache`` and is returned to it at the end: the process that plans a
    batch query plans the next one too.
    """

    def __init__(
        self,
        options: SourceOptions,
        sleep: Callable[[float], object] = time.sleep,
        cache: ConsumerCache = CONSUMERS,
    ) -> None:
        self._options = options
        self._sleep = sleep
        self._cache = cache
        self._consumer: KafkaConsumer | None = None
        self.topic_ids: dict[str, str] = {}

    def __enter__(self) -> OffsetLookup:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None and self._consumer is not None:
            self._cache.give_back(self._settings(), self._consumer)
            self._consumer = None
        self.close()

    def close(self) -> None:
        """Close the connections; the next look-up opens them again."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(timeout_ms=1_000)

    # --- look-ups ---------------------------------------------------------------------------------

    def partitions(self, *, must_exist: bool) -> set[TopicPartition]:
        """Return the existing partitions that the query selects.

        With ``must_exist``, ``UnknownTopicOrPartitionError`` is raised if a topic or partition
        named in the options does not exist. A pattern may match no topic.
        """
        selection = self._options.topics
        topics = self._try(
            "partitions", lambda consumer: internals_of(consumer).topic_metadata(selection.names)
        )
        chosen: set[TopicPartition] = set()
        for name, topic in topics.items():
            chosen |= selection.choose(name, topic.partitions, topic.is_internal)
        if must_exist:
            missing = sorted((selection.names or frozenset()) - topics.keys())
            if missing:
                raise self._try(
                    "topics",
                    lambda consumer: internals_of(consumer).unknown_topic_error(missing[0]),
                )
            for tp in selection.partitions:
                if tp not in chosen:
                    raise unknown_partition(tp, set(topics[tp.topic].partitions))
        self.topic_ids = {
            topic: id_text(topic_id)
            for topic in {tp.topic for tp in chosen}
            if (topic_id := topics[topic].topic_id) != ZERO_UUID
        }
        return chosen

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the first offset of each partition; one that was deleted is left out."""
        return self._try_existing("log starts", partitions, KafkaConsumer.beginning_offsets)

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the end of each partition, the last stable offset under ``read_committed``.

        A partition that was deleted is left out.
        """
        return self._try_existing("log ends", partitions, KafkaConsumer.end_offsets)

    def at_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a time for each partition, None for a miss.

        A partition that was deleted is left out.
        """
        moments = {tp: _moment(ms) for tp, ms in times.items()}

        def ask(
            consumer: KafkaConsumer, existing: Collection[TopicPartition]
        ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
            return consumer.offsets_for_times({tp: moments[tp] for tp in existing})

        return self._try_existing("offsets by time", times, ask)

    def resolve(self, limit: OffsetLimit, partitions: set[TopicPartition]) -> Offsets:
        """Return the offset of each partition at a limit; one that was deleted is left out.

        Raises ``ConfigurationError`` if the limit does not name exactly these partitions, and
        ``KafkaError`` if no record is as new as its time.
        """
        limit.check_names_all(partitions)
        if limit.kind is LimitKind.EARLIEST:
            return self.earliest(partitions)
        if limit.kind is LimitKind.LATEST:
            return self.latest(partitions)
        if limit.kind is LimitKind.OFFSETS:
            offsets = limit.by_partition
            first = self.earliest([tp for tp in partitions if offsets[tp] == EARLIEST])
            last = self.latest([tp for tp in partitions if offsets[tp] == LATEST])
            marked = {EARLIEST: first, LATEST: last}
            return {
                tp: marked.get(offsets[tp], offsets)[tp]
                for tp in partitions
                if tp in marked.get(offsets[tp], offsets)
            }
        times = (
            dict(limit.by_partition)
            if limit.kind is LimitKind.TIMESTAMPS
            else dict.fromkeys(partitions, limit.timestamp_ms)
        )
        return self._resolve_times(limit, times)

    def _resolve_times(self, limit: OffsetLimit, times: Mapping[TopicPartition, int]) -> Offsets:
        hits = self.at_times(times)
        missed = sorted(tp for tp, hit in hits.items() if hit is None)
        if missed and not limit.is_miss_latest:
            tp = missed[0]
            raise KafkaError(
                f"{limit.option}: {tp} has no record at or after {times[tp]}",
                cause=f"{len(missed)} of {len(times)} partitions have none",
                hint="set startingOffsetsByTimestampStrategy=latest, or give an earlier time",
                topic=tp.topic,
                partition=tp.partition,
            )
        # The record found may not be readable yet (read_committed): readers wait for it.
        offsets = {tp: hit.offset for tp, hit in hits.items() if hit is not None}
        return {**offsets, **self.latest(missed)}

    # --- retries ----------------------------------------------------------------------------------

    def _try_existing(
        self,
        subject: str,
        partitions: Collection[TopicPartition],
        ask: Callable[[KafkaConsumer, Collection[TopicPartition]], Mapping[TopicPartition, T]],
    ) -> dict[TopicPartition, T]:
        """Look up partitions; those that were deleted after they were listed are left out.

        Deleted means that the topics, looked up again, do not have the partition: one that a broker
        with old metadata does not know is looked up again as it is.
        """
        existing = set(partitions)
        for number in range(1, self._tries + 1):
            if not existing:
                return {}
            remaining = frozenset(existing)
            try:
                return dict(self._try(subject, lambda consumer: ask(consumer, remaining)))  # noqa: B023 - called at once
            except UnknownTopicOrPartitionError as error:
                existing &= self.partitions(must_exist=False)
                if existing == remaining and number == self._tries:
                    raise
                logger.warning("look-up of %s: %s", subject, error.message)
                self.pause()
        raise KafkaTimeoutError(f"no answer to the look-up of {subject}: topics are being deleted")

    @property
    def _tries(self) -> int:
        return max(1, self._options.num_retries)

    def _try(self, subject: str, ask: Callable[[KafkaConsumer], T]) -> T:
        tries = self._tries
        for number in range(1, tries + 1):
            try:
                if self._consumer is None:
                    self._consumer = self._cache.borrow(self._settings(), is_fresh=number > 1)
                return ask(self._consumer)
            except UnknownTopicOrPartitionError:
                raise  # the same partitions would be asked for; see _try_existing
            except KafkaError as error:
                if not error.retriable or number == tries:
                    raise
                logger.warning(
                    "look-up of %s, try %d of %d: %s", subject, number, tries, error.message
                )
                self.close()
                self.pause()
        raise KafkaTimeoutError(f"no answer to the look-up of {subject}")

    def pause(self) -> None:
        """Wait for the interval between two tries."""
        self._sleep(self._options.retry_interval_ms / 1000)

    def _settings(self) -> dict[str, str]:
        kafka = self._options.kafka
        return dict(kafka) if _LOOKUP_DEFAULTS.keys() & kafka else {**_LOOKUP_DEFAULTS, **kafka}

    def __repr__(self) -> str:
        return f"<OffsetLookup {self._options.topics}>"


def _moment(ms: int) -> int | datetime:
    """Return a time in ms so that one of early 1970 is not taken for seconds and refused."""
    return ms if ms >= 1 << 32 else _EPOCH + timedelta(milliseconds=ms)
