"""Where each partition of an ingest goes on, and what that leaves out.

Owns the comparison of a table's ends with the logs: a partition that the table has goes on at its
end, another one begins where the ingest is asked to. Offsets that retention has removed are an
error, or counted as lost; a topic that was deleted and created anew is an error always, since its
offsets are of other records.

It asks brokers through a `KafkaConsumer` without assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfast.errors import (
    ConfigurationError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kfast.internals import internals_of, is_glob, topics_like
from kfast.table.batches import ReadRange
from kfast.table.topic_ids import id_text
from kfast.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kfast.internals import KafkaConsumer
    from kfast.table.entries import Entry

_GLOB_HINT: Final = "kfast topics lists them (KafkaConsumer.topics())"

Bounds = tuple[int | None, int | None]
"""Where a partition begins, if the table does not have it, and where the run ends in it. None for
its first offset, and for the end of its log."""
FindBounds = Callable[["KafkaConsumer", Collection[str]], Mapping[TopicPartition, Bounds]]
"""Returns the partitions of some topics that are to be read, and the bounds of each."""


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Offsets of one partition that an ingest is about to write."""

    topic_partition: TopicPartition
    from_offset: int
    until_offset: int
    """The end of the log as of now, or where the run is asked to end."""
    lost_offsets: int = 0
    """Offsets of the range that are gone, at its beginning."""

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        return self.from_offset + self.lost_offsets

    @property
    def without_offsets(self) -> ReadRange:
        """The range that keeps where a partition begins."""
        return ReadRange(*self.topic_partition, self.from_offset, self.from_offset)

    @property
    def offsets(self) -> int:
        """Number of offsets to read: of records at most."""
        return self.until_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of an ingest, as the cluster has them now."""

    partitions: frozenset[TopicPartition]
    ids: Mapping[str, str]
    """Kafka's ids, if the brokers have them (2.8)."""


def find_topics(
    consumer: KafkaConsumer, names: Sequence[str], *, must_exist: bool = True
) -> Topics:
    """Return the topics that some names and globs mean.

    Raises ``UnknownTopicOrPartitionError`` for a name or a glob that no topic has, if they must
    exist.
    """
    globs = [name for name in names if is_glob(name)]
    chosen = {name for name in names if name not in globs}
    if must_exist:
        for name in chosen:
            internals_of(consumer).required_partitions(name)
    metadata = internals_of(consumer).topic_metadata(None if globs else frozenset(chosen))
    seen = {name for name, topic in metadata.items() if not topic.is_internal}
    for glob in globs:
        with nullcontext() if must_exist else suppress(UnknownTopicOrPartitionError):
            chosen.update(topics_like(glob, seen, _GLOB_HINT))
    if must_exist:
        for name in chosen - metadata.keys():  # deleted just now
            raise internals_of(consumer).unknown_topic_error(name)
    chosen &= metadata.keys()
    return Topics(
        frozenset(
            TopicPartition(name, number) for name in chosen for number in metadata[name].partitions
        ),
        {
            name: id_text(topic_id)
            for name in chosen
            if (topic_id := metadata[name].topic_id) != ZERO_UUID
        },
    )


def plan_ranges(
    consumer: KafkaConsumer,
    topics: Topics,
    table: Entry | None,
    url: str,
    bounds: FindBounds | None,
    *,
    skips_lost: bool,
) -> list[PlannedRange]:
    """Return the ranges to write, in order; a partition without new records has an empty one.

    ``table`` is the newest entry of its log, None for a new table. Raises ``OffsetOutOfRangeError``
    for offsets that are gone, unless ``skips_lost``, and for a topic that was created anew;
    ``ConfigurationError`` if ``bounds`` has a start of a partition that the table has.
    """
    ends: Mapping[TopicPartition, int] = table.ends if table is not None else {}
    if table is not None:
        check_ids(topics, table.topic_ids, ends, url)
    chosen: dict[TopicPartition, Bounds] = dict.fromkeys(topics.partitions, (None, None))
    if bounds is not None:
        chosen = {**bounds(consumer, {tp.topic for tp in topics.partitions})}
        for tp in sorted(chosen.keys() & ends.keys()):
            if chosen[tp][0] is None:
                continue
            raise ConfigurationError(
                f"{url} has {tp} up to offset {ends[tp] - 1}: it cannot start elsewhere",
                hint="leave -o (start=) out: the ingest goes on at the table's end",
                topic=tp.topic,
                partition=tp.partition,
            )
    first, last = consumer.beginning_offsets([*chosen]), consumer.end_offsets([*chosen])
    beyond = [tp for tp in chosen if ends.get(tp, 0) > last[tp]]
    for tp, end in sorted(internals_of(consumer).high_watermarks(beyond).items()):
        if ends[tp] > end:  # else the log has it, behind an open transaction
            raise created_anew(
                tp, url, f"the table has it up to {ends[tp] - 1}, its log to {end - 1}"
            )
    planned = []
    for tp in sorted(chosen):
        start, stop = chosen[tp]
        position = ends.get(tp, first[tp] if start is None else start)
        lost = max(0, first[tp] - position)
        if lost and not skips_lost:
            raise offsets_gone(tp, position, first[tp])
        until = last[tp] if stop is None else min(stop, last[tp])
        planned.append(PlannedRange(tp, position, max(until, position + lost), lost))
    return planned


def check_ids(
    topics: Topics,
    table_ids: Mapping[str, str],
    ends: Mapping[TopicPartition, int],
    url: str,
) -> None:
    """Check that no topic was deleted and created anew since the table was written."""
    names = {tp.topic for tp in topics.partitions}
    for tp in sorted(ends):
        if tp.topic not in names or not ends[tp]:  # nothing was read of it
            continue
        if tp not in topics.partitions:
            raise created_anew(tp, url, "the table has it, and the topic has no such partition")
        former, present = table_ids.get(tp.topic), topics.ids.get(tp.topic)
        if former is not None and present is not None and former != present:
            raise created_anew(tp, url, f"its topic id was {former}, and is {present}")


def offsets_gone(tp: TopicPartition, offset: int, log_start: int) -> OffsetOutOfRangeError:
    """Return the error for offsets that the log had and has no more."""
    return OffsetOutOfRangeError(
        f"offsets {offset} to {log_start - 1} of {tp} are gone: the log now starts at {log_start} "
        "(retention)",
        found=f"{log_start - offset} offsets are lost",
        hint='--lost skip (lost="skip") to go on without them',
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        log_start_offset=log_start,
    )


def created_anew(tp: TopicPartition, url: str, cause: str) -> OffsetOutOfRangeError:
    """Return the error for a topic whose offsets are those of other records by now."""
    return OffsetOutOfRangeError(
        f"{tp.topic} was deleted and created anew since {url} was written",
        cause=cause,
        hint="--to another folder",
        topic=tp.topic,
        partition=tp.partition,
    )
