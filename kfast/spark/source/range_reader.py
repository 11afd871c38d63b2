"""RangeReader: reads an offset range of one partition, on a worker.

Owns the loop from the first to the last offset of a range, and the conditions that end it early.
The consumer's own threads fetch and decode ahead while Spark processes the records yielded, bounded
by ``buffer_memory_bytes``. It never yields a record outside the range; independent of Spark and
Arrow.

A range is done when the *position* reaches its end: the last offsets of a compacted or
transactional log may hold no record. A gap between offsets is not data loss; a position before the
log start offset, or an end behind the log's end, is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kfast._base.clock import Clock, SystemClock
from kfast._base.logs import get_logger
from kfast.errors import (
    CorruptRecordError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kfast.kafka_consumer import KafkaConsumer
from kfast.records.partition_records import PartitionRecords
from kfast.spark.source.consumer_cache import CONSUMERS, ConsumerCache, task_settings
from kfast.spark.source.data_loss import DataLoss
from kfast.table.offset_ranges import OffsetRange
from kfast.table.read_counts import ReadCounts, SkippedBatch

logger = get_logger(__name__)

_MORE_BYTES: Final = 32 << 20
_MORE: Final = {
    "max.partition.fetch.bytes": str(_MORE_BYTES),
    "fetch.max.bytes": str(2 * _MORE_BYTES),
}
"""Settings to fetch what is behind a batch together with it."""

POLL_MS: Final = 1_000
"""How long to wait for records before checking that the log still has the range."""


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
        self._loss = DataLoss(settings.fail_on_data_loss)
        self._doubted = -1
        self.counts = ReadCounts()

    def read(self, wanted: OffsetRange) -> Iterator[PartitionRecords]:
        """Yield the records of a range in order, as they arrive, never without a record.

        Raises ``OffsetOutOfRangeError`` if part of the range is gone and ``failOnDataLoss`` is
        true, ``CorruptRecordError`` for a batch that cannot be read unless such are skipped, and
        ``KafkaTimeoutError`` after ``kafkaConsumer.pollTimeoutMs`` without progress.
        """
        if wanted.size <= 0:  # nothing, or a topic that begins anew
            return
        settings = task_settings(self._settings.kafka, wanted.size)
        consumer = self._cache.borrow(settings, is_fresh=self._is_retry)
        self._is_retry = False  # from here on the connections are this task's own
        try:
            consumer.assign([wanted.topic_partition])
            consumer.internals.end_fetching_at({wanted.topic_partition: wanted.until_offset})
            consumer.seek(wanted.topic_partition, wanted.from_offset)
            yield from self._walk(consumer, wanted)
        except GeneratorExit:  # Spark stops reading, as for LIMIT
            self._cache.give_back(settings, consumer)
            raise
        except BaseException:
            consumer.close(timeout_ms=0)
            raise
        self._cache.give_back(settings, consumer)

    def _walk(self, consumer: KafkaConsumer, wanted: OffsetRange) -> Iterator[PartitionRecords]:
        tp, until = wanted.topic_partition, wanted.until_offset
        position = wanted.from_offset
        moved_ms = self._clock.now_ms()
        self._doubted = -1
        while position < until:
            records = None
            try:
                records = consumer.poll(timeout_ms=POLL_MS).get(tp)
            except OffsetOutOfRangeError as error:
                position = self._skip_lost(consumer, wanted, position, error)
                moved_ms = self._clock.now_ms()
                continue
            except CorruptRecordError as error:
                position = self._skip_corrupt(consumer, wanted, position, error)
                moved_ms = self._clock.now_ms()
                continue
            except NoOffsetForPartitionError:
                self._seek_again(consumer, wanted, position)
                self._check_time(wanted, position, moved_ms, None)
                continue
            except (KafkaConnectionError, UnknownTopicOrPartitionError) as error:
                # A broker that restarts, or metadata that lags behind: the time limit decides.
                self._check_time(wanted, position, moved_ms, error)
                continue
            if records is not None:
                position = records.next_offset
                for found in _before(records, until):
                    self.counts.rows += len(found)
                    yield found
                moved_ms = self._clock.now_ms()
                continue
            reached = consumer.position(tp)
            if reached > position:  # transaction markers, aborted or compacted records
                position, moved_ms = reached, self._clock.now_ms()
            elif self._is_cut_short(consumer, wanted, position):
                return
            else:
                self._check_time(wanted, position, moved_ms, None)

    # --- when records do not come -----------------------------------------------------------------

    def _skip_lost(
        self,
        consumer: KafkaConsumer,
        wanted: OffsetRange,
        position: int,
        error: OffsetOutOfRangeError,
    ) -> int:
        """Seek to the log start offset; return it, or the range's end if that comes first."""
        tp = wanted.topic_partition
        start = consumer.beginning_offsets([tp])[tp]
        if start <= position:  # the log is shorter than the range: it was cut, or created anew
            self._loss.report(
                f"offsets {position} to {wanted.until_offset - 1} of {tp} are not there",
                cause=error.cause or "the log ends before them",
                partition=tp,
                offset=position,
                log_start_offset=start,
            )
            self.counts.lost_offsets += wanted.until_offset - position
            return wanted.until_offset
        first = min(start, wanted.until_offset)
        self._loss.report(
            f"offsets {position} to {first - 1} of {tp} are gone: the log now starts at {start}",
            cause="retention or DeleteRecords removed them",
            partition=tp,
            offset=position,
            log_start_offset=start,
        )
        self.counts.lost_offsets += first - position
        if first < wanted.until_offset:
            consumer.seek(tp, first)
        return first

    def _skip_corrupt(
        self,
        consumer: KafkaConsumer,
        wanted: OffsetRange,
        position: int,
        error: CorruptRecordError,
    ) -> int:
        """Seek behind a batch that cannot be read; return that offset.

        It is fetched a second time first: it may be whole on the broker. A batch that is read with
        another setting or package raises other errors and is not skipped.
        """
        if error.next_offset < 0:  # the broker found the damage, and does not say how large it is
            raise error
        if not self._settings.skip_corrupt_batches:
            error.hint = "restore the batch from a replica, or set skipCorruptBatches=true"
            raise error
        tp = wanted.topic_partition
        if self._doubted != position:
            self._doubted = position
            consumer.seek(tp, position)
            return position
        base = position if error.offset is None else min(error.offset, position)
        after = max(error.next_offset, position + 1)
        if error.following_offset <= position:
            after = self._certain_end(wanted, position, error)
            if after == position:
                return position
        batch = SkippedBatch(*tp, base, after - 1, error.cause or "")
        logger.warning("skipped a corrupt batch: %s", batch)
        self.counts.skip(batch)
        if after < wanted.until_offset:
            consumer.seek(tp, after)
        return after

    def _certain_end(self, wanted: OffsetRange, position: int, error: CorruptRecordError) -> int:
        """Return where a corrupt batch ends behind which nothing was received.

        Its header may be what is corrupt, so more is fetched at once. If there is nothing behind it
        even so, it is the last one of the log. Returns ``position`` if the batch is whole now.
        Raises ``error`` where the end stays unknown: no record that can be read is ever skipped.
        """
        tp = wanted.topic_partition
        consumer = self._cache.borrow({**self._settings.kafka, **_MORE}, is_fresh=True)
        try:
            consumer.assign([tp])
            consumer.seek(tp, position)
            began_ms = self._clock.now_ms()
            while not consumer.poll(timeout_ms=POLL_MS):
                self._check_time(wanted, position, began_ms, error)
            return position
        except CorruptRecordError as found:
            log_end = consumer.highwater(tp)
            if found.following_offset > position:
                return max(found.next_offset, position + 1)
            is_last = found.bytes_behind == 0 and found.batch_bytes <= _MORE_BYTES // 2
            if is_last and log_end is not None and log_end > position:
                return log_end
            error.hint = "restore the batch from a replica: where it ends is not known"
            raise error from None
        finally:
            consumer.close(timeout_ms=0)

    def _seek_again(self, consumer: KafkaConsumer, wanted: OffsetRange, position: int) -> None:
        """Seek again to a position that the consumer dropped: the topic was created anew.

        A cached consumer may have metadata of an earlier topic of this name. The plan
        was made for the one there is now, unless part of the range was read already.
        """
        tp = wanted.topic_partition
        if position > wanted.from_offset:
            self._loss.report(
                f"{tp} was created anew while offsets {wanted.from_offset} to "
                f"{wanted.until_offset - 1} of it were read",
                cause=f"offsets from {position} on are another topic's",
                partition=tp,
                offset=position,
            )
        consumer.seek(tp, position)

    def _is_cut_short(self, consumer: KafkaConsumer, wanted: OffsetRange, position: int) -> bool:
        """Report data loss if the log no longer has the rest of the range; False if it has."""
        tp = wanted.topic_partition
        try:
            known = consumer.partitions_for_topic(tp.topic)
            is_there = known is not None and tp.partition in known
            end = consumer.end_offsets([tp])[tp] if is_there else 0
            start = consumer.beginning_offsets([tp])[tp] if is_there else 0
        except KafkaError as error:
            if not error.retriable:
                raise
            return False
        high_watermark = consumer.highwater(tp)
        if is_there and (
            end >= wanted.until_offset
            # An open transaction: the last stable offset is before the high watermark.
            or high_watermark is None
            or high_watermark >= wanted.until_offset
        ):
            return False
        self._loss.report(
            f"offsets {position} to {wanted.until_offset - 1} of {tp} are not there",
            cause=f"the log ends at {end}" if is_there else "the partition is gone",
            partition=tp,
            offset=position,
            log_start_offset=start,
        )
        self.counts.lost_offsets += wanted.until_offset - position
        return True

    def _check_time(
        self, wanted: OffsetRange, position: int, moved_ms: int, error: KafkaError | None
    ) -> None:
        limit_ms = self._settings.poll_timeout_ms
        if self._clock.now_ms() - moved_ms < limit_ms:
            return
        tp = wanted.topic_partition
        raise KafkaTimeoutError(
            f"{tp}: no record at offset {position} for {limit_ms} ms",
            cause=error.message if error else f"the task reads up to {wanted.until_offset}",
            hint="check the brokers, or raise kafkaConsumer.pollTimeoutMs",
            topic=tp.topic,
            partition=tp.partition,
            offset=position,
        ) from error

    def __repr__(self) -> str:
        return f"<RangeReader {self._settings!r}>"


def _before(records: PartitionRecords, until: int) -> Iterator[PartitionRecords]:
    """Yield the records before an offset, if any."""
    if records.next_offset > until:
        records = records[: int(np.searchsorted(records.offsets, until))]
    if len(records):
        yield records
