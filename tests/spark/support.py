"""What tests of this folder share: options without a cluster, answers without a broker."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kfast.errors import KafkaError
from kfast.spark.source.offset_limits import LimitKind, OffsetLimit
from kfast.spark.source.options import SourceOptions, parse_options
from kfast.table.offsets_json import EARLIEST, LATEST
from kfast.types import OffsetAndTimestamp, TopicPartition

GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def tp(number: int, topic: str = "t") -> TopicPartition:
    """Return a partition."""
    return TopicPartition(topic, number)


def at(*offsets: int) -> dict[TopicPartition, int]:
    """Return these offsets for partitions 0, 1, ... of one topic."""
    return {tp(number): offset for number, offset in enumerate(offsets)}


def options(is_stream: bool = False, **more: Any) -> SourceOptions:
    """Return the options of a query of one topic."""
    names = {name.replace("__", "."): value for name, value in more.items()}
    return parse_options({**GIVEN, **names}, is_stream=is_stream)


class FakeLookup:
    """Answers from two dictionaries a test may change, and counts the questions."""

    def __init__(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]):
        self.starts = dict(starts)
        self.ends = dict(ends)
        self.looks = 0
        self.pauses = 0
        self.topic_ids: dict[str, str] = {}
        self.times: dict[TopicPartition, OffsetAndTimestamp | None] = {}

    def partitions(self, *, must_exist: bool) -> set[TopicPartition]:
        """Return all there are."""
        if must_exist and not self.ends:
            raise KafkaError("no topic")
        return set(self.ends)

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return starts."""
        return {each: self.starts[each] for each in partitions}

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return ends."""
        self.looks += 1
        return {each: self.ends[each] for each in partitions}

    def pause(self) -> None:
        """Count a wait."""
        self.pauses += 1

    def resolve(
        self, limit: OffsetLimit, partitions: set[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return what the simple limits mean."""
        limit.check_names_all(partitions)
        if limit.kind is LimitKind.OFFSETS:
            marks = {EARLIEST: self.starts, LATEST: self.ends}
            return {
                each: marks.get(given, {each: given})[each]
                for each, given in limit.by_partition.items()
            }
        return self.earliest(partitions) if limit.kind is LimitKind.EARLIEST else dict(self.ends)
