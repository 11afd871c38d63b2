"""read_topic and scan_topic: bounded reads of topics, or of some partitions.

Both fix the end of every partition before the first record is read, so that a topic which is
written to meanwhile does not extend the read, and both use an ordinary ``KafkaConsumer`` with
assigned partitions: it joins no group, and commits nothing unless both ``group_id`` and
``enable_auto_commit`` are given. How a range is read is `BoundedRead`'s.
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
from kfast.application.bounded_read import BoundedRead, ReadPolicy, error_of, log_lost
from kfast.application.read_bounds import (
    END,
    START,
    Kind,
    Position,
    Range,
    Ranges,
    resolve_existing,
    resolve_ranges,
)
from kfast.application.record_converter import RecordConverter
from kfast.application.topic_globs import is_glob, topics_like
from kfast.config import ConsumerConfig, sealed
from kfast.consumer.unknown_topic_check import unknown_partition
from kfast.errors import (
    ConfigurationError,
    OffsetOutOfRangeError,
)
from kfast.internals import internals_of
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
_WORDS: Final = {"earliest": START, "latest": END}
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
        Settings of `KafkaConsumer`. A range of which retention removes something raises; with an
        ``auto_offset_reset`` other than ``"none"`` that is skipped, with a warning.

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
    consumer_config = ConsumerConfig(config, **settings)
    skips_lost = (
        consumer_config.was_given("auto_offset_reset")
        and consumer_config.auto_offset_reset != "none"
    )
    if consumer_config.group_id is not None and not consumer_config.was_given("enable_auto_commit"):
        settings["enable_auto_commit"] = False
    converter = RecordConverter(consumer_config)
    converter.select(columns)
    selection = _checked_topics(topics)

    def batches(names: list[str]) -> Generator[PartitionRecords, None, None]:
        first, last = _as_datetime(start), _as_datetime(end)
        with KafkaConsumer(config=config, **settings) as consumer:
            internals_of(consumer).select_columns(columns)
            _check_times(first, last)
            ranges = _resolve_range(consumer, selection, first, last, skips_lost=skips_lost)
            names += sorted({tp.topic for tp in ranges})
            yield from _scan(consumer, ranges, progress, skips_lost=skips_lost)

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
    consumer: KafkaConsumer, ranges: Ranges, progress: Progress, *, skips_lost: bool
) -> Iterator[PartitionRecords]:
    read: BoundedRead[PartitionRecords] = BoundedRead(
        consumer,
        ReadPolicy(skips_lost=skips_lost),
        lambda loss: error_of(loss, _GAP_HINT),
        log_lost,
    )
    with _Reporter(progress, sum(max(0, end - start) for start, end in ranges.values())) as report:
        read.begin(ranges)
        while read.ends:
            for _, batch in read.poll():
                if len(batch):
                    yield batch
            report(read.done)


def _checked_topics(topics: Sequence[Topics]) -> list[str | TopicPartition]:
    """Return names, globs and partitions, of lists too; raise for what is none of these."""
    selection: list[str | TopicPartition] = []
    for topic in topics:
        if isinstance(topic, str | TopicPartition):
            selection.append(topic)
        elif isinstance(topic, Collection) and not isinstance(topic, bytes | bytearray | Mapping):
            selection += [one if isinstance(one, str) else check_partition(one) for one in topic]
        else:
            raise ConfigurationError(
                f"topic = {topic!r}: not a topic name or TopicPartitions",
                hint='pass "orders" or [TopicPartition("orders", 0), ...]',
            )
    if not selection:
        raise ConfigurationError(
            "no partitions to read", hint="name a topic or at least one TopicPartition"
        )
    for one in selection:
        if not isinstance(one, str) or not is_glob(one):
            check_topic(one if isinstance(one, str) else check_partition(one).topic)
    return selection


def _resolve_range(
    consumer: KafkaConsumer,
    selection: Sequence[str | TopicPartition],
    start: object,
    end: object,
    *,
    skips_lost: bool,
) -> Ranges:
    """Return where the read starts and ends in each partition.

    Topics of globs that are deleted meanwhile are left out.
    """
    ranges, lost = resolve_existing(
        lambda: _topic_names(consumer, selection),
        lambda names: resolve_bounds(
            consumer,
            _resolve_partitions(consumer, selection, names),
            start,
            end,
            skips_lost=skips_lost,
        ),
    )
    for tp, count in lost.items():
        first = ranges[tp][0]
        logger.warning("%s: offsets %d to %d are lost", tp, first - count, first - 1)
    return ranges


def _topic_names(consumer: KafkaConsumer, selection: Sequence[str | TopicPartition]) -> set[str]:
    names: set[str] = set()
    for topic in selection:
        if isinstance(topic, str):
            names.update(
                topics_like(topic, consumer.topics(), _GLOB_HINT) if is_glob(topic) else [topic]
            )
    return names


def _resolve_partitions(
    consumer: KafkaConsumer, selection: Sequence[str | TopicPartition], names: set[str]
) -> list[TopicPartition]:
    internals_of(consumer).expect_topics(
        names.union(tp.topic for tp in selection if not isinstance(tp, str))
    )
    partitions = {
        TopicPartition(name, n)
        for name in names
        for n in internals_of(consumer).required_partitions(name)
    }
    named = [check_partition(one) for one in selection if not isinstance(one, str)]
    for name in {tp.topic for tp in named}:
        existing = internals_of(consumer).required_partitions(name)
        for tp in named:
            if tp.topic == name and tp.partition not in existing:
                raise unknown_partition(tp, existing)
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


def resolve_bounds(
    consumer: KafkaConsumer,
    partitions: list[TopicPartition],
    start: object,
    end: object,
    *,
    skips_lost: bool,
) -> tuple[Ranges, dict[TopicPartition, int]]:
    """Return the offsets of start and end in each partition, and how many of these are gone."""
    starts = _positions(_as_datetime(start), partitions, "start", START)
    ends = _positions(_as_datetime(end), partitions, "end", END)
    return resolve_ranges(
        internals_of(consumer),
        {tp: Range(starts[tp], ends[tp]) for tp in partitions},
        skips_lost=skips_lost,
        gone_hint=_GAP_HINT,
        beyond=_beyond,
        is_by_partition=True,
    )


def _positions(
    bound: Any, partitions: list[TopicPartition], name: str, default: Position
) -> dict[TopicPartition, Position]:
    """Return a bound as a position in each partition; ``default`` is that of a mapping."""
    if isinstance(bound, Mapping):
        offsets = _explicit_offsets(bound, partitions, name)
        return {
            tp: Position(Kind.OFFSET, offsets[tp]) if tp in offsets else default
            for tp in partitions
        }
    if isinstance(bound, str) and bound in _WORDS:
        return dict.fromkeys(partitions, _WORDS[bound])
    if _is_time(bound):
        return dict.fromkeys(partitions, Position(Kind.TIME, time_ms(bound, name)))
    raise ConfigurationError(
        f"{name} = {bound!r}: not understood",
        hint='"earliest", "latest", a time (int ms since 1970, datetime) or {partition: offset}',
    )


def _beyond(
    tp: TopicPartition, offset: int, ends: Mapping[TopicPartition, int]
) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"start = {offset} for {tp} is beyond the end of the log, {ends[tp]}",
        hint=f"start at {ends[tp]} or before; was the topic created anew?",
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
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

    def __enter__(self) -> Callable[[int], None]:
        self.report(0)
        return self.report

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
