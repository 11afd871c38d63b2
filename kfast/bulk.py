"""read_topic and scan_topic: bounded reads of a topic, or of some partitions.

Both fix the end of every partition before the first record is read, so that a topic which is
written to meanwhile does not extend the read, and both use an ordinary ``KafkaConsumer`` with
assigned partitions: it joins no group, and commits nothing unless both ``group_id`` and
``enable_auto_commit`` are given. A partition is done when the *position* reaches its end, not when
a record does: the last offsets of a compacted or transactional log may hold no record.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard

import numpy as np

from kfast.application.arguments import check_partition, time_ms
from kfast.application.record_converter import RecordConverter
from kfast.config import ConsumerConfig, sealed
from kfast.consumer.unknown_topic_check import unknown_partition
from kfast.errors import ConfigurationError, LogTruncationError, OffsetOutOfRangeError
from kfast.kafka_consumer import KafkaConsumer
from kfast.records.consumer_records import ConsumerRecords
from kfast.records.partition_records import PartitionRecords
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

logger = logging.getLogger(__name__)

Bound = (
    Literal["earliest", "latest"]
    | int
    | datetime
    | np.datetime64
    | Mapping[TopicPartition, int]
    | Mapping[int, int]
)
"""Start or end of a read: an end of the log, a time, or an offset per partition."""

Progress = bool | Callable[[int, int], None]

_POLL_MS: Final = 1_000
_GAP_HINT: Final = 'start at "earliest", or skip what is gone with auto.offset.reset=earliest'


def scan_topic(
    topic: str | TopicPartition | Collection[TopicPartition],
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    columns: Collection[str] | None = None,
    progress: Progress = False,
    **configs: Any,
) -> Iterator[PartitionRecords]:
    """Read a bounded range batch by batch, in constant memory.

    Parameters
    ----------
    topic : str, TopicPartition or collection of TopicPartition
        A whole topic, or some partitions of one or more topics.
    start, end : {"earliest", "latest"}, int, datetime, numpy.datetime64 or Mapping
        Where to start (inclusive) and to end (exclusive), fixed before the first record is read.
        An int is a time in milliseconds since 1970 and means the first offset whose timestamp is
        at or after it, as does a datetime (naive ones are UTC); one that reads as seconds or as
        a day such as 20260131 is refused. A mapping gives the offset of
        each partition, by ``TopicPartition`` or, for a topic name, by partition number;
        partitions missing from it start at the earliest and end at the latest offset.
        ``"latest"`` as the end is the last stable offset under
        ``isolation_level="read_committed"``, else the high watermark.
    columns : collection of str, optional
        Which of ``"key"``, ``"value"`` and ``"headers"`` to read; the others are not deserialized
        or exported. Default: all.
    progress : bool or callable
        True draws a progress bar on stderr; a callable is called with (offsets done, total
        offsets).
    **configs
        Settings of `KafkaConsumer`. ``auto_offset_reset`` is ``"none"`` unless given: a range
        that retention removes while it is read raises instead of leaving a gap.

    Yields
    ------
    PartitionRecords
        Batches in offset order per partition, as they arrive. Never empty.

    Raises
    ------
    UnknownTopicOrPartitionError
        The topic, or one of the partitions, does not exist.
    OffsetOutOfRangeError
        Part of the range is gone, or a partition starts beyond the end of its log.
    ConfigurationError
        A setting or a bound is invalid.
    KafkaTimeoutError
        The brokers did not answer within ``default_api_timeout_ms``.
    """
    configs = sealed(configs)
    given = ConsumerConfig(**configs)
    if not given.was_given("auto_offset_reset"):
        configs["auto_offset_reset"] = "none"
    if given.group_id is not None and not given.was_given("enable_auto_commit"):
        configs["enable_auto_commit"] = False
    with KafkaConsumer(**configs) as consumer:
        consumer.select_columns(columns)
        partitions = _resolve_partitions(consumer, topic)
        start, end = _as_datetime(start), _as_datetime(end)
        if _is_time(start) and _is_time(end) and time_ms(start, "start") > time_ms(end, "end"):
            raise ConfigurationError(
                f"start = {start} is later than end = {end}", hint="the end is exclusive"
            )
        starts = resolve_bound(consumer, partitions, start, is_end=False)
        ends = resolve_bound(consumer, partitions, end, is_end=True)
        yield from _scan(consumer, starts, ends, progress)


def read_topic(
    topic: str | TopicPartition | Collection[TopicPartition],
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    columns: Collection[str] | None = None,
    progress: Progress = False,
    **configs: Any,
) -> ConsumerRecords:
    """Read a bounded range into memory.

    The arguments and errors are those of `scan_topic`; use that for more than fits in memory.

    Returns
    -------
    ConsumerRecords
        The records of every partition that has any in the range. Without records its exports have
        the columns and types that records would have.
    """
    configs = sealed(configs)
    parts: dict[TopicPartition, list[PartitionRecords]] = {}
    for batch in scan_topic(
        topic, start=start, end=end, columns=columns, progress=progress, **configs
    ):
        # A batch pins its whole frame, of which these columns may be a small part.
        kept = batch if columns is None else batch.compact()
        parts.setdefault(batch.topic_partition, []).append(kept)
    if not parts:
        # scan_topic has checked the settings and the columns.
        converter = RecordConverter(ConsumerConfig(**configs))
        converter.select(columns)
        return ConsumerRecords(template=converter.template)
    return ConsumerRecords({tp: parts[tp] for tp in sorted(parts)})


def _scan(
    consumer: KafkaConsumer,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    progress: Progress,
) -> Iterator[PartitionRecords]:
    left = {tp for tp in starts if starts[tp] < ends[tp]}
    for tp in sorted(starts):
        if starts[tp] > ends[tp]:
            logger.warning("%s: start %d is beyond end %d", tp, starts[tp], ends[tp])
    total = sum(ends[tp] - starts[tp] for tp in left)
    with _Reporter(progress, total) as reporter:
        if not left:
            return
        consumer.assign(sorted(left))
        for tp in left:
            consumer.seek(tp, starts[tp])
        done = dict.fromkeys(left, 0)
        while left:
            try:
                records = consumer.poll(timeout_ms=_POLL_MS)
            except (OffsetOutOfRangeError, LogTruncationError) as error:
                error.hint = _GAP_HINT
                raise
            for tp, batch in records.items():
                if tp not in left:
                    continue
                wanted = batch
                if batch.next_offset > ends[tp]:
                    wanted = batch.select(slice(0, int(np.searchsorted(batch.offsets, ends[tp]))))
                if len(wanted):
                    yield wanted
            finished = []
            for tp in left:
                position = consumer.position(tp)
                done[tp] = min(position, ends[tp]) - starts[tp]
                if position >= ends[tp]:
                    finished.append(tp)
            if finished:
                left.difference_update(finished)
                consumer.pause(*finished)
            reporter.report(sum(done.values()))


def _resolve_partitions(
    consumer: KafkaConsumer, topic: str | TopicPartition | Collection[TopicPartition]
) -> list[TopicPartition]:
    if isinstance(topic, str):
        known = consumer.required_partitions(topic)
        return [TopicPartition(topic, number) for number in sorted(known)]
    if isinstance(topic, TopicPartition):
        topic = [topic]
    elif not isinstance(topic, Collection):
        raise ConfigurationError(
            f"topic = {topic!r}: not a topic name or TopicPartitions",
            hint='pass "orders" or [TopicPartition("orders", 0), ...]',
        )
    if not topic:
        raise ConfigurationError(
            "no partitions to read", hint="name a topic or at least one TopicPartition"
        )
    names = [name for name in topic if isinstance(name, str)]
    if names:
        raise ConfigurationError(
            f"topic = {topic!r}: a list of topic names where one topic belongs",
            hint=f'read the topics one by one, or pass [TopicPartition("{names[0]}", 0), ...]',
        )
    partitions = [check_partition(tp) for tp in topic]
    for name in {tp.topic for tp in partitions}:
        known = consumer.required_partitions(name)
        for tp in partitions:
            if tp.topic == name and tp.partition not in known:
                raise unknown_partition(tp, known)
    return sorted(set(partitions))


def _as_datetime(bound: Any) -> Any:
    return bound.astype("M8[us]").item() if isinstance(bound, np.datetime64) else bound


def _is_time(bound: object) -> TypeGuard[int | datetime]:
    return isinstance(bound, int | np.integer | datetime)


def resolve_bound(
    consumer: KafkaConsumer, partitions: list[TopicPartition], bound: object, *, is_end: bool
) -> dict[TopicPartition, int]:
    """Return the offset that the start or the end of a read is in each partition."""
    name = "end" if is_end else "start"
    bound = _as_datetime(bound)
    if isinstance(bound, str):
        if bound == "earliest":
            return consumer.beginning_offsets(partitions)
        if bound == "latest":
            return consumer.end_offsets(partitions)
    elif isinstance(bound, Mapping):
        default = "latest" if is_end else "earliest"
        offsets = _explicit_offsets(bound, partitions, name)
        missing = [tp for tp in partitions if tp not in offsets]
        if missing:
            offsets.update(resolve_bound(consumer, missing, default, is_end=is_end))
        log_ends = consumer.end_offsets(partitions)
        if is_end:  # one past the log's would never be reached
            return {tp: min(offset, log_ends[tp]) for tp, offset in offsets.items()}
        _check_starts(consumer, offsets, log_ends)
        return offsets
    elif _is_time(bound):
        time_ms(bound, name)  # for an error that names the argument
        found = consumer.offsets_for_times(dict.fromkeys(partitions, bound))
        ends = consumer.end_offsets(partitions)
        return {
            tp: ends[tp] if (hit := found[tp]) is None else min(hit.offset, ends[tp])
            for tp in partitions
        }
    raise ConfigurationError(
        f"{name} = {bound!r}: not understood",
        hint='"earliest", "latest", a time (int ms since 1970, datetime) or {partition: offset}',
    )


def _check_starts(
    consumer: KafkaConsumer,
    starts: Mapping[TopicPartition, int],
    log_ends: Mapping[TopicPartition, int],
) -> None:
    """Raise for an offset to start at that the log does not have yet.

    Under read_committed the log has offsets behind the last stable one.
    """
    beyond = [tp for tp, start in starts.items() if start > log_ends[tp]]
    for tp, end in consumer.high_watermarks(beyond).items():
        if starts[tp] > end:
            raise OffsetOutOfRangeError(
                f"start = {starts[tp]} for {tp} is beyond the end of the log, {end}",
                hint=f"start at {end} or before; was the topic created anew?",
                topic=tp.topic,
                partition=tp.partition,
                offset=starts[tp],
            )


def _explicit_offsets(
    bound: Mapping[Any, Any], partitions: list[TopicPartition], name: str
) -> dict[TopicPartition, int]:
    topics = {tp.topic for tp in partitions}
    offsets: dict[TopicPartition, int] = {}
    for key, offset in bound.items():
        if isinstance(key, int | np.integer) and len(topics) == 1:
            tp = TopicPartition(next(iter(topics)), int(key))
        elif isinstance(key, tuple) and len(key) == 2:
            tp = TopicPartition(*key)
        else:
            raise ConfigurationError(
                f"{name} names {key!r}, which is not a TopicPartition",
                hint="use TopicPartition(topic, partition), or for one topic a partition number",
            )
        if tp not in partitions:
            raise ConfigurationError(
                f"{name} names {tp}, which is not among the partitions to read",
                hint=f"leave it out of {name}, or read it as well",
            )
        if isinstance(offset, bool) or not isinstance(offset, int | np.integer) or offset < 0:
            raise ConfigurationError(
                f"{name} gives {tp} the offset {offset!r}: not an int >= 0",
                hint="leave the partition out to read it from its first to its last offset",
            )
        offsets[tp] = int(offset)
    return offsets


class _Reporter:
    """Reports the progress of a scan to a callback, or as a bar on standard error."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._callback = progress if callable(progress) else None
        self._is_bar = progress is True
        self._total = total
        self._percent = -1

    def __enter__(self) -> _Reporter:
        self.report(0)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_bar:
            sys.stderr.write("\n")

    def report(self, done: int) -> None:
        if self._callback is not None:
            self._callback(done, self._total)
        if not self._is_bar:
            return
        percent = 100 * done // self._total if self._total else 100
        if percent != self._percent:
            self._percent = percent
            filled = "#" * (percent // 4)
            sys.stderr.write(f"\r[{filled:<25}] {percent:3d} % of {self._total:,} offsets")
            sys.stderr.flush()
