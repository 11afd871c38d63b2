"""RangeReader: reads an offset range of one partition, on a worker.

Owns the policy of a task (``failOnDataLoss``), its errors and counts, and batches that are corrupt;
how the range is read is `BoundedRead`'s. The consumer's own threads fetch and decode ahead while
Spark processes the records yielded, bounded by ``buffer_memory_bytes``. It never yields a record
outside the range; independent of Spark and Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kfast._base.clock import Clock, SystemClock
from kfast._base.logs import get_logger
from kfast.errors import (
    CorruptRecordError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
)
from kfast.internals import (
    POLL_MS,
    BoundedRead,
    KafkaConsumer,
    Loss,
    LossKind,
    ReadPolicy,
)
from kfast.records.partition_records import PartitionRecords
from kfast.spark.source.consumer_cache import CONSUMERS, ConsumerCache, task_settings
from kfast.spark.source.data_loss import HINT
from kfast.table.offset_ranges import OffsetRange
from kfast.table.read_counts import ReadCounts, SkippedBatch

logger = get_logger(__name__)

_MORE_BYTES: Final = 32 << 20
_MORE: Final = {
    "max.partition.fetch.bytes": str(_MORE_BYTES),
    "fetch.max.bytes": str(2 * _MORE_BYTES),
}
"""Settings to fetch what is behind a batch together with it."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The consumer's settings by Kafka's names, and the reader's own."""

    kafka: Mapping[str, str] = field(repr=False)
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    """Longest time without progress."""
    skip_corrupt_batches: bool = False


class RangeReader:
    """Reads ranges one after another.

    ``is_retry``: the task failed before, so cached connections are not reused. ``counts`` are those
    of all ranges read so far.
    """

    def __init__(
        self,
        settings: ReadSettings,
        *,
        is_retry: bool = False,
        cache: ConsumerCache = CONSUMERS,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._is_retry = is_retry
        self._cache = cache
        self._clock = clock or SystemClock()
        may_lose = not settings.fail_on_data_loss
        self._policy = ReadPolicy(
            skips_lost=may_lose,
            ends_early=may_lose,
            # A cached consumer may have metadata of an earlier topic of this name; the plan was
            # made for the one there is now.
            is_of_new_topic=True,
            waits_for_brokers=True,
            silence_ms=settings.poll_timeout_ms,
        )
        self._doubted = -1
        self.counts = ReadCounts()

    def read(self, offsets: OffsetRange) -> Iterator[PartitionRecords]:
        """Yield the records of a range in order, as they arrive, never without a record.

        Raises ``OffsetOutOfRangeError`` if part of the range is gone and ``failOnDataLoss`` is
        true, ``CorruptRecordError`` for a batch that cannot be read unless such are skipped, and
        ``KafkaTimeoutError`` after ``kafkaConsumer.pollTimeoutMs`` without progress.
        """
        if offsets.size <= 0:  # nothing, or a topic that begins anew
            return
        settings = task_settings(self._settings.kafka, offsets.size)
        consumer = self._cache.borrow(settings, is_fresh=self._is_retry)
        self._is_retry = False  # from here on the connections are this task's own
        try:
            yield from self._walk(consumer, offsets)
        except GeneratorExit:  # Spark stops reading, as for LIMIT
            self._cache.give_back(settings, consumer)
            raise
        except BaseException:
            consumer.close(timeout_ms=0)
            raise
        self._cache.give_back(settings, consumer)

    def _walk(self, consumer: KafkaConsumer, offsets: OffsetRange) -> Iterator[PartitionRecords]:
        tp = offsets.topic_partition
        read: BoundedRead[PartitionRecords] = BoundedRead(
            consumer,
            self._policy,
            lambda loss: _error_of(loss, offsets),
            self._count_lost,
            clock=self._clock,
        )
        self._doubted = -1
        read.begin({tp: (offsets.from_offset, offsets.until_offset)})
        while read.ends:
            try:
                batches = read.poll()
            except CorruptRecordError as error:
                read.seek(tp, self._skip_corrupt(offsets, read.positions[tp], error))
                continue
            for _, batch in batches:
                if len(batch):
                    self.counts.rows += len(batch)
                    yield batch

    # --- when records do not come -----------------------------------------------------------------

    def _count_lost(self, loss: Loss, error: KafkaError) -> None:
        assert loss.until is not None  # as of every range
        self.counts.lost_offsets += loss.until - loss.position
        logger.warning("%s%s", error.message, f" ({error.cause})" if error.cause else "")

    def _skip_corrupt(self, offsets: OffsetRange, position: int, error: CorruptRecordError) -> int:
        """Return the offset behind a batch that cannot be read, where to go on.

        It is fetched a second time first: it may be whole on the broker. A batch that is read with
        another setting or package raises other errors and is not skipped.
        """
        if error.next_offset < 0:  # the broker found the damage, and does not say how large it is
            raise error
        if not self._settings.skip_corrupt_batches:
            error.hint = "restore the batch from a replica, or set skipCorruptBatches=true"
            raise error
        tp = offsets.topic_partition
        if self._doubted != position:
            self._doubted = position
            return position
        base = position if error.offset is None else min(error.offset, position)
        after = max(error.next_offset, position + 1)
        if error.following_offset <= position:
            after = self._certain_end(offsets, position, error)
            if after == position:
                return position
        batch = SkippedBatch(*tp, base, after - 1, error.cause or "")
        logger.warning("skipped a corrupt batch: %s", batch)
        self.counts.skip(batch)
        return after

    def _certain_end(self, offsets: OffsetRange, position: int, error: CorruptRecordError) -> int:
        """Return where a corrupt batch ends behind which nothing was received.

        Its header may be what is corrupt, so more is fetched at once. If there is nothing behind it
        even so, it is the last one of the log. Returns ``position`` if the batch is whole now.
        Raises ``error`` where the end stays unknown: no record that can be read is ever skipped.
        """
        tp = offsets.topic_partition
        consumer = self._cache.borrow({**self._settings.kafka, **_MORE}, is_fresh=True)
        try:
            consumer.assign([tp])
            consumer.seek(tp, position)
            limit_ms = self._settings.poll_timeout_ms
            deadline_ms = self._clock.deadline_ms(limit_ms)
            while not consumer.poll(timeout_ms=POLL_MS):
                if self._clock.now_ms() >= deadline_ms:
                    loss = Loss(LossKind.SILENT, tp, position, None, error, silent_ms=limit_ms)
                    raise _error_of(loss, offsets)
            return position
        except CorruptRecordError as again:
            log_end = consumer.highwater(tp)
            if again.following_offset > position:
                return max(again.next_offset, position + 1)
            is_last = again.bytes_behind == 0 and again.batch_bytes <= _MORE_BYTES // 2
            if is_last and log_end is not None and log_end > position:
                return log_end
            error.hint = "restore the batch from a replica: where it ends is not known"
            raise error from None
        finally:
            consumer.close(timeout_ms=0)

    def __repr__(self) -> str:
        return f"<RangeReader {self._settings!r}>"


def _error_of(loss: Loss, offsets: OffsetRange) -> KafkaError:
    tp, position, cause = loss.topic_partition, loss.position, loss.cause
    if loss.kind is LossKind.TRUNCATED:
        assert cause is not None  # which names the place
        return cause
    if loss.kind is LossKind.SILENT:
        return KafkaTimeoutError(
            f"{tp}: no record at offset {position} for {loss.silent_ms} ms",
            cause=cause.message if cause else f"the task reads up to {offsets.until_offset}",
            hint="check the brokers, or raise kafkaConsumer.pollTimeoutMs",
            topic=tp.topic,
            partition=tp.partition,
            offset=position,
        )
    last = offsets.until_offset - 1
    message = f"offsets {position} to {last} of {tp} are not there"
    reason: str | None = f"the log ends at {loss.log_end}"
    if loss.kind is LossKind.GONE:
        last = (loss.until or 0) - 1
        message = (
            f"offsets {position} to {last} of {tp} are gone: the log now starts at {loss.log_start}"
        )
        reason = "retention or DeleteRecords removed them"
    elif loss.kind is LossKind.CREATED_ANEW:
        message = (
            f"{tp} was created anew while offsets {offsets.from_offset} to {last} of it were read"
        )
        reason = f"offsets from {position} on are another topic's"
    elif loss.kind is LossKind.DELETED:
        reason = "the partition is gone"
    elif cause is not None:
        reason = cause.cause or "the log ends before them"
    return OffsetOutOfRangeError(
        message,
        cause=reason,
        hint=HINT,
        topic=tp.topic,
        partition=tp.partition,
        offset=position,
        log_start_offset=loss.log_start,
    )
