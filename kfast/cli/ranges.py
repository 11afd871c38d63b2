"""The offsets that a selection of positions means on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from kfast._base.spelling import partition_range
from kfast.cli.positions import Selection, time_meant_by
from kfast.errors import ConfigurationError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kfast.internals import (
    KafkaConsumer,
    OffsetLookups,
    Range,
    Ranges,
    internals_of,
    is_glob,
    resolve_existing,
    resolve_ranges,
    topics_like,
)
from kfast.types import TopicPartition

GONE_HINT: Final = "-o start, or --lost skip"


class Lookups(OffsetLookups, Protocol):
    """Look-ups of topics and offsets: a consumer's ``internals``, or an administrative client."""

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic, None if there is none."""
        ...


TopicPartitions = Mapping[str, set[int] | None]
"""Topics with the numbers of their partitions, None where they were not looked up."""


def matching_topics(consumer: KafkaConsumer, names: Sequence[str]) -> TopicPartitions:
    """Return the topics that some names and globs mean, each once.

    Raises UnknownTopicOrPartitionError for a name or glob that no topic has.
    """
    topics: dict[str, set[int] | None] = {}
    for name in names:
        if not is_glob(name):
            topics[name] = consumer.partitions_for_topic(name)
            if topics[name] is None:
                raise internals_of(consumer).unknown_topic_error(name)
            continue
        topics.update(
            dict.fromkeys(topics_like(name, consumer.topics(), "kfast topics lists them"))
        )
    return topics


def resolve(
    lookups: Lookups,
    list_topics: Callable[[], TopicPartitions],
    selection: Selection,
    numbers: Collection[int] | None,
    *,
    skips_lost: bool,
) -> tuple[Ranges, dict[TopicPartition, int]]:
    """Return the range to read of each partition, and how many of its offsets are gone.

    ``list_topics`` is asked again if one of the topics was deleted meanwhile; ``numbers`` are the
    partitions of ``--partitions``. No end is before its start. Raises as `resolve_ranges`.
    """

    def resolve_topics(topics: TopicPartitions) -> tuple[Ranges, dict[TopicPartition, int]]:
        ranges: dict[TopicPartition, Range] = {}
        for topic, numbers_known in topics.items():
            partition_numbers = numbers_known or lookups.partitions_for_topic(topic) or set()
            for number, bounds in _chosen(topic, partition_numbers, selection, numbers).items():
                ranges[TopicPartition(topic, number)] = bounds
        return resolve_ranges(
            lookups,
            ranges,
            skips_lost=skips_lost,
            gone_hint=GONE_HINT,
            beyond=_beyond,
            is_by_partition=selection.partitions is not None,
        )

    resolved, lost = resolve_existing(list_topics, resolve_topics)
    return {tp: (start, max(start, end)) for tp, (start, end) in resolved.items()}, lost


def _chosen(
    topic: str, existing: set[int], selection: Selection, numbers: Collection[int] | None
) -> Mapping[int, Range]:
    """Return the range of every partition that is to be read."""
    chosen = selection.partitions
    if chosen is None:
        chosen = dict.fromkeys(existing if numbers is None else numbers, selection.range)
    elif numbers is not None and set(numbers) != set(chosen):
        named = ",".join(map(str, sorted(chosen)))
        raise ConfigurationError(
            "--partitions disagrees with the partitions of the range",
            hint=f"-p {named}, or leave it out",
        )
    for number in sorted(chosen):
        if number not in existing:
            raise UnknownTopicOrPartitionError(
                f"{partition_range(topic, existing)}: there is no partition {number}",
                hint=f"kfast topics describe {topic}",
                topic=topic,
                partition=number,
            )
    return chosen


def _beyond(
    tp: TopicPartition, offset: int, ends: Mapping[TopicPartition, int]
) -> OffsetOutOfRangeError:
    last = max(ends, key=ends.__getitem__)
    return OffsetOutOfRangeError(
        f"there is no offset {offset} yet: {last} ends at {ends[last]}",
        hint=time_meant_by(offset) or "-o -10 for the newest ones",
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
    )
