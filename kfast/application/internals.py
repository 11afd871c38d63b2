"""ConsumerInternals: what kfast's own reads and tables use of a consumer besides its public calls.

Not part of the stable API. Application thread, as the public calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.application.arguments import check_topic
from kfast.settings.offset_reset import RESET_NONE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kfast.application.shared_parts import SharedParts
    from kfast.client.cluster import TopicMetadata
    from kfast.consumer.positions.list_offsets import Offsets as LogOffsets
    from kfast.errors import UnknownTopicOrPartitionError
    from kfast.types import TopicPartition


class ConsumerInternals:
    """Further calls of one consumer."""

    __slots__ = ("_shared",)

    def __init__(self, shared: SharedParts) -> None:
        self._shared = shared

    def select_columns(self, columns: Collection[str] | None) -> None:
        """Choose which of "key", "value" and "headers" are made; None means all."""
        self._shared.converter.select(columns)

    def expect_topics(self, topics: Iterable[str]) -> None:
        """Let the first request for metadata name topics whose offsets are about to be looked up.

        They are known then when the offsets are asked for, one round trip earlier. No effect once
        the consumer has connected, and where naming a topic could create it.
        """
        runtime = self._shared.runtime
        names = {*topics}
        for name in names:
            check_topic(name)
        if not runtime.is_started and not runtime.metadata.allow_auto_topic_creation:
            runtime.metadata.add_transient_topics(names)

    def read_range(self, ends: Mapping[TopicPartition, int]) -> None:
        """Fetch nothing from these offsets on, and reset no position from now on.

        Partitions without an end have none. ``auto.offset.reset`` does not count any more: offsets
        that are gone are an error for the one who reads the range.
        """
        with self._shared.guard:
            self._shared.runtime.subscriptions.default_reset_strategy = RESET_NONE
            self._shared.runtime.subscriptions.end_fetching_at(ends)
            self._shared.runtime.changed()

    def topic_metadata(self, topics: frozenset[str] | None) -> Mapping[str, TopicMetadata]:
        """Return the metadata of those of these topics that exist, or of all, with one request."""
        with self._shared.guard:
            return self._shared.lookups.metadata(topics, self.timeout_ms)

    def required_partitions(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic, or raise that there is none."""
        with self._shared.guard:
            return self._shared.lookups.required_partitions(topic, self.timeout_ms)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic, None if there is none."""
        with self._shared.guard:
            return self._shared.lookups.partitions_of(topic, self.timeout_ms)

    def unknown_topic_error(self, topic: str) -> UnknownTopicOrPartitionError:
        """Return the error for a topic that does not exist, with the nearest name that does."""
        return self._shared.lookups.unknown_topic_error(topic)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each log, under ``isolation_level="read_committed"`` too."""
        with self._shared.guard:
            return self._shared.lookups.high_watermarks(partitions, self.timeout_ms)

    def log_offsets(self, *timestamps: dict[TopicPartition, int]) -> list[LogOffsets]:
        """Look up offsets by timestamp, -2 for the start and -1 for the end; all at once."""
        with self._shared.guard:
            return self._shared.lookups.offsets(timestamps, self.timeout_ms)

    def position(self, tp: TopicPartition) -> int | None:
        """Return the position of an assigned partition, None while there is none."""
        with self._shared.guard:
            position = self._shared.runtime.subscriptions.position(tp)
            return None if position is None else position.offset

    @property
    def timeout_ms(self) -> int:
        """How long a call may take: ``default_api_timeout_ms``."""
        return self._shared.config.default_api_timeout_ms
