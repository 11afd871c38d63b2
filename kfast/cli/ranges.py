"""The offsets that a selection of positions means on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from kfast._base.spelling import partition_range
from kfast.application.topic_globs import is_glob, topics_like
from kfast.cli.positions import Kind, Position, Range, Selection, time_meant_by
from kfast.errors import (
    ConfigurationError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kfast.kafka_consumer import KafkaConsumer
from kfast.settings.offset_reset import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kfast.types import OffsetAndTimestamp, TopicPartition

_WITHIN_THE_LOG: Final = frozenset({Kind.TIME, Kind.END})
"""What needs no first offset: brokers answer with offsets that are there."""

Ranges = dict[TopicPartition, tuple[int, int]]
"""First offset and end offset of each partition; they are equal where nothing is to be read."""


class Offsets(Protocol):
    """Look-ups of topics and offsets, of a consumer or for an administrative command."""

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic, None if there is none."""
        ...

    def log_offsets(
        self, *wanted: dict[TopicPartition, int]
    ) -> list[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Return what several look-ups by timestamp find, made at once: -2 start, -1 end."""
        ...


Found = Mapping[str, set[int] | None]
"""Topics with the numbers of their partitions, None where they were not looked up."""


def matching_topics(consumer: KafkaConsumer, names: Sequence[str]) -> Found:
    """Return the topics that some names and globs mean, each once.

    Raises UnknownTopicOrPartitionError for a name or glob that no topic has.
    """
    found: dict[str, set[int] | None] = {}
    for name in names:
        if not is_glob(name):
            found[name] = consumer.partitions_for_topic(name)
            if found[name] is None:
                raise consumer.unknown_topic_error(name)
            continue
        found.update(dict.fromkeys(topics_like(name, consumer.topics(), "kfast topics lists them")))
    return found


def resolve_listed(
    consumer: Offsets,
    list_topics: Callable[[], Collection[str] | Found],
    selection: Selection,
    numbers: Collection[int] | None,
    *,
    skips_lost: bool,
) -> tuple[Ranges, dict[TopicPartition, int]]:
    """Return what `resolve` does for some topics, of which some may be deleted meanwhile.

    ``list_topics`` says which topics they are, and is asked again after an unknown topic.
    """
    topics = list_topics()
    while True:
        try:
            return resolve(consumer, topics, selection, numbers, skips_lost=skips_lost)
        except UnknownTopicOrPartitionError:
            left = list_topics()
            if {*left}.issuperset(topics):
                raise
            topics = left


def resolve(
    consumer: Offsets,
    topics: Collection[str] | Found,
    selection: Selection,
    numbers: Collection[int] | None,
    *,
    skips_lost: bool,
) -> tuple[Ranges, dict[TopicPartition, int]]:
    """Return what to read of each partition, and how many of the offsets asked for are gone.

    ``numbers`` are the partitions of ``--partitions``. Ends are those of the logs as of now, or
    before. Raises OffsetOutOfRangeError for offsets that are gone, unless ``skips_lost``, and for
    a start that no partition has.
    """
    ranges: dict[TopicPartition, Range] = {}
    looked_up = topics if isinstance(topics, Mapping) else {}
    for topic in topics:
        known = looked_up.get(topic) or consumer.partitions_for_topic(topic) or set()
        for number, each in _wanted(topic, known, selection, numbers).items():
            ranges[TopicPartition(topic, number)] = each
    kinds = {position.kind for each in ranges.values() for position in (each.start, each.end)}
    has_starts = bool(kinds - _WITHIN_THE_LOG)
    asked = {LATEST_TIMESTAMP: [*ranges]} | _times(ranges)
    if has_starts:
        asked[EARLIEST_TIMESTAMP] = [*ranges]
    listed = consumer.log_offsets(*(dict.fromkeys(tps, ms) for ms, tps in asked.items()))
    at = dict(zip(asked, listed, strict=True))
    ends = _known(at.pop(LATEST_TIMESTAMP))
    starts = _known(at.pop(EARLIEST_TIMESTAMP)) if has_starts else dict.fromkeys(ranges, 0)
    times = {
        (tp, ms): ends[tp] if hit is None else hit.offset
        for ms, found_at in at.items()
        for tp, hit in found_at.items()
    }
    found: Ranges = {}
    lost: dict[TopicPartition, int] = {}
    for tp, wanted in ranges.items():
        first = _offset(tp, wanted.start, starts[tp], ends[tp], times)
        last = _offset(tp, wanted.end, starts[tp], ends[tp], times)
        if wanted.start.kind is Kind.OFFSET and first < starts[tp]:
            lost[tp] = starts[tp] - first
            if not skips_lost:
                raise OffsetOutOfRangeError(
                    f"offset {first} of {tp} is gone: the log now starts at {starts[tp]} "
                    f"(retention)\nlost: {lost[tp]} records",
                    hint="-o start, or --lost skip",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=first,
                )
        start = min(max(first, starts[tp]), ends[tp])
        found[tp] = start, max(start, min(last, ends[tp]))
    _check_starts(ranges, ends)
    return found, lost


def _wanted(
    topic: str, known: set[int], selection: Selection, numbers: Collection[int] | None
) -> Mapping[int, Range]:
    """Return the range of every partition that is to be read."""
    chosen = selection.partitions
    if chosen is None:
        chosen = dict.fromkeys(known if numbers is None else numbers, selection.range)
    elif numbers is not None and set(numbers) != set(chosen):
        named = ",".join(map(str, sorted(chosen)))
        raise ConfigurationError(
            "--partitions disagrees with the partitions of the range",
            hint=f"-p {named}, or leave it out",
        )
    for number in sorted(chosen):
        if number not in known:
            raise UnknownTopicOrPartitionError(
                f"{partition_range(topic, known)}: there is no partition {number}",
                hint=f"kfast topics describe {topic}",
                topic=topic,
                partition=number,
            )
    return chosen


def _known(listed: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> dict[TopicPartition, int]:
    return {tp: hit.offset for tp, hit in listed.items() if hit is not None}


def _times(ranges: Mapping[TopicPartition, Range]) -> dict[int, list[TopicPartition]]:
    """Return the times that positions name, in ms, with the partitions to look them up in."""
    wanted: dict[int, list[TopicPartition]] = {}
    for tp, each in ranges.items():
        for position in (each.start, each.end):
            if position.kind is Kind.TIME:
                wanted.setdefault(max(position.value, 0), []).append(tp)
    return wanted


def _offset(
    tp: TopicPartition,
    position: Position,
    start: int,
    end: int,
    times: Mapping[tuple[TopicPartition, int], int],
) -> int:
    kind, value = position.kind, position.value
    if kind is Kind.TIME:
        return times[tp, max(value, 0)]
    if kind is Kind.BEFORE_END:
        return max(start, end - value)
    return {
        Kind.START: start,
        Kind.END: end,
        Kind.OFFSET: value,
        Kind.AFTER_START: start + value,
    }[kind]


def _check_starts(
    ranges: Mapping[TopicPartition, Range], ends: Mapping[TopicPartition, int]
) -> None:
    """Raise if every partition is to start at an offset behind its end."""
    starts = {tp: each.start for tp, each in ranges.items()}
    if not starts or not all(
        start.kind is Kind.OFFSET and start.value > ends[tp] for tp, start in starts.items()
    ):
        return
    tp, start = next(iter(starts.items()))
    last = max(ends, key=ends.__getitem__)
    raise OffsetOutOfRangeError(
        f"there is no offset {start.value} yet: {last} ends at {ends[last]}",
        hint=time_meant_by(start.value) or "-o -10 for the newest ones",
        topic=tp.topic,
        partition=tp.partition,
        offset=start.value,
    )
