"""read_topic and scan_topic: bounded reads of topics, or of some partitions.

Both fix the end of every partition before the first record is read, so that a topic which is
written to meanwhile does not extend the read, and both use an ordinary ``KafkaConsumer`` with
assigned partitions: it joins no group, and commits nothing unless both ``group_id`` and
``enable_auto_commit`` are given. A partition is done when the *position* reaches its end, not when
a record does: the last offsets of a compacted or transactional log may hold no record.
"""

from __future__ import annotations

import sys
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard, Unpack

import numpy as np

from kfast._base.logs import get_logger
from kfast.application.arguments import check_partition, check_topic, time_ms
from kfast.application.internals import created_anew
from kfast.application.record_converter import RecordConverter
from kfast.application.topic_globs import is_glob, topics_like
from kfast.config import ConsumerConfig, sealed
from kfast.consumer.unknown_topic_check import unknown_partition
from kfast.errors import (
    ConfigurationError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kfast.kafka_consumer import KafkaConsumer
from kfast.records.consumer_records import ConsumerRecords
from kfast.records.partition_records import PartitionRecords
from kfast.settings.types import ConsumerSettings
from kfast.topic_scan import TopicScan
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

logger = get_logger(__name__)

Bound = (
    Literal["earliest", "latest"]
    | int
    | datetime
    | np.datetime64
    | Mapping[TopicPartition, int]
    | Mapping[int, int]
)
"""Start or end of a read: an end of the log, a time, or an offset per partition."""

Topics = str | TopicPartition | Collection[str | TopicPartition]
"""One topic or partition, or some of them."""

Progress = bool | Callable[[int, int], None]

_GLOB_HINT: Final = "give the name of a topic; KafkaConsumer.topics() has them all"
_POLL_MS: Final = 1_000
_GAP_HINT: Final = 'start at "earliest", or skip what is gone with auto.offset.reset=earliest'


def scan_topic(
    *topics: Topics,
    start: Bound = "earliest",
    end: Bound = "latest",
    columns: Collection[str] | None = None,
    progress: Progress = False,
    config: Mapping[str, object] | None = None,
    **configs: Unpack[ConsumerSettings],
) -> TopicScan:
    """Read a bounded range of topics batch by batch, in constant memory.

    Parameters
    ----------
    *topics : str, TopicPartition or collection of them
        Names of topics, globs such as ``"orders-*"``, partitions, or lists of these, in any
        mixture. A glob leaves internal topics out.
    start, end : {"earliest", "latest"}, int, datetime, numpy.datetime64 or Mapping
        Where to start (inclusive) and to end (exclusive), fixed before the first record is read.
        An int is a time in milliseconds since 1970 and means the first offset whose timestamp is
        at or after it, as does a datetime (naive ones are UTC); one that reads as seconds or as
        a day such as 20260131 is refused. A mapping gives the offset of
        each partition, by ``TopicPartition`` or, for a single topic, by partition number;
        partitions missing from it start at the earliest and end at the latest offset.
        ``"latest"`` as the end is the last stable offset under
        ``isolation_level="read_committed"``, else the high watermark.
    columns : collection of str, optional
        Which of ``"key"``, ``"value"`` and ``"headers"`` to read; the others are not deserialized
        or exported. Default: all.
    progress : bool or callable
        True draws a progress bar on stderr; a callable is called with (offsets done, total
        offsets).
    config : Mapping, optional
        Settings by Kafka's dotted names, such as `kfast.load_config` returns.
    **configs
        Settings of `KafkaConsumer`. ``auto_offset_reset`` is ``"none"`` unless given: a range
        that retention removes while it is read raises instead of leaving a gap.

    Returns
    -------
    TopicScan
        An iterator of `PartitionRecords`, in offset order per partition, as they arrive, never
        empty; a context manager; an Arrow stream.

    Raises
    ------
    UnknownTopicOrPartitionError
        A topic, or one of the partitions, does not exist, or nothing matches a glob.
    OffsetOutOfRangeError
        Part of the range is gone, or a partition starts beyond the end of its log.
    ConfigurationError
        A setting or a bound is invalid.
    KafkaTimeoutError
        The brokers did not answer within ``default_api_timeout_ms``.

    Examples
    --------
    >>> for batch in kfast.scan_topic("orders-*", bootstrap_servers="localhost:9092"):
    ...     print(batch.topic_partition, len(batch))
    orders-old-0 1
    """
    config = None if config is None else sealed(config)
    settings = sealed(configs)
    del configs
    given = ConsumerConfig(config, **settings)
    if not given.was_given("auto_offset_reset"):
        settings["auto_offset_reset"] = "none"
    if given.group_id is not None and not given.was_given("enable_auto_commit"):
        settings["enable_auto_commit"] = False
    converter = RecordConverter(given)
    converter.select(columns)
    wanted = _checked_topics(topics)

    def batches(names: list[str]) -> Generator[PartitionRecords, None, None]:
        first, last = _as_datetime(start), _as_datetime(end)
        with KafkaConsumer(config=config, **settings) as consumer:
            consumer.internals.select_columns(columns)
            _check_times(first, last)
            starts, ends = _resolve_range(consumer, wanted, first, last)
            names += sorted({tp.topic for tp in starts})
            yield from _scan(consumer, starts, ends, progress)

    return TopicScan(batches, converter.template)


def read_topic(
    *topics: Topics,
    start: Bound = "earliest",
    end: Bound = "latest",
    columns: Collection[str] | None = None,
    progress: Progress = False,
    config: Mapping[str, object] | None = None,
    **configs: Unpack[ConsumerSettings],
) -> ConsumerRecords:
    """Read a bounded range of topics into memory.

    The arguments and errors are those of `scan_topic`; use that for more than fits in memory.

    Returns
    -------
    ConsumerRecords
        The records of every partition that has any in the range. Without records its exports have
        the columns and types that records would have.

    Examples
    --------
    >>> found = kfast.read_topic("orders", "orders-old", bootstrap_servers="localhost:9092")
    >>> found.to_arrow().num_rows
    4
    """
    config = None if config is None else sealed(config)
    settings = sealed(configs)
    del configs
    scan = scan_topic(
        *topics,
        start=start,
        end=end,
        columns=columns,
        progress=progress,
        config=config,
        **settings,
    )
    parts: dict[TopicPartition, list[PartitionRecords]] = {}
    with scan:  # a traceback keeps the pass, and must not keep the connections
        for batch in scan:
            # A batch pins its whole frame, of which these columns may be a small part.
            kept = batch if columns is None else batch.compact()
            parts.setdefault(batch.topic_partition, []).append(kept)
    if not parts:
        return ConsumerRecords(template=scan.template)
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
        consumer.internals.end_fetching_at({tp: ends[tp] for tp in left})
        for tp in left:
            consumer.seek(tp, starts[tp])
        done = dict.fromkeys(left, 0)
        while left:
            done_before = sum(done.values())
            try:
                records = consumer.poll(timeout_ms=_POLL_MS)
            except (OffsetOutOfRangeError, LogTruncationError) as error:
                error.hint = _GAP_HINT
                raise
            except NoOffsetForPartitionError as error:
                raise created_anew(error) from None
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
            if sum(done.values()) == done_before:
                consumer.internals.check_ends({tp: ends[tp] for tp in left})
            reporter.report(sum(done.values()))


def _checked_topics(topics: Sequence[Topics]) -> list[str | TopicPartition]:
    """Return names, globs and partitions, of lists too; raise for what is none of these."""
    found: list[str | TopicPartition] = []
    for each in topics:
        if isinstance(each, str | TopicPartition):
            found.append(each)
        elif isinstance(each, Collection) and not isinstance(each, bytes | bytearray | Mapping):
            found += [one if isinstance(one, str) else check_partition(one) for one in each]
        else:
            raise ConfigurationError(
                f"topic = {each!r}: not a topic name or TopicPartitions",
                hint='pass "orders" or [TopicPartition("orders", 0), ...]',
            )
    if not found:
        raise ConfigurationError(
            "no partitions to read", hint="name a topic or at least one TopicPartition"
        )
    for one in found:
        if not isinstance(one, str) or not is_glob(one):
            check_topic(one if isinstance(one, str) else check_partition(one).topic)
    return found


def _resolve_range(
    consumer: KafkaConsumer, wanted: Sequence[str | TopicPartition], start: object, end: object
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return where the read starts and ends in each partition.

    Topics of globs that are deleted meanwhile are left out.
    """
    names = _topic_names(consumer, wanted)
    while True:
        try:
            partitions = _resolve_partitions(consumer, wanted, names)
            return (
                resolve_bound(consumer, partitions, start, is_end=False),
                resolve_bound(consumer, partitions, end, is_end=True),
            )
        except UnknownTopicOrPartitionError:
            left = _topic_names(consumer, wanted)
            if names <= left:
                raise
            names = left


def _topic_names(consumer: KafkaConsumer, wanted: Sequence[str | TopicPartition]) -> set[str]:
    names: set[str] = set()
    for each in wanted:
        if isinstance(each, str):
            names.update(
                topics_like(each, consumer.topics(), _GLOB_HINT) if is_glob(each) else [each]
            )
    return names


def _resolve_partitions(
    consumer: KafkaConsumer, wanted: Sequence[str | TopicPartition], names: set[str]
) -> list[TopicPartition]:
    consumer.internals.expect_topics(
        names.union(each.topic for each in wanted if not isinstance(each, str))
    )
    partitions = {
        TopicPartition(name, n)
        for name in names
        for n in consumer.internals.required_partitions(name)
    }
    named = [check_partition(one) for one in wanted if not isinstance(one, str)]
    for name in {tp.topic for tp in named}:
        known = consumer.internals.required_partitions(name)
        for tp in named:
            if tp.topic == name and tp.partition not in known:
                raise unknown_partition(tp, known)
    return sorted(partitions.union(named))


def _as_datetime(bound: Any) -> Any:
    return bound.astype("M8[us]").item() if isinstance(bound, np.datetime64) else bound


def _is_time(bound: object) -> TypeGuard[int | datetime]:
    return isinstance(bound, int | np.integer | datetime)


def _check_times(start: object, end: object) -> None:
    if _is_time(start) and _is_time(end) and time_ms(start, "start") > time_ms(end, "end"):
        raise ConfigurationError(
            f"start = {start} is later than end = {end}", hint="the end is exclusive"
        )


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
    for tp, end in consumer.internals.high_watermarks(beyond).items():
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
