"""ConsumerInternals: what kfast's own reads and tables use of a consumer besides its public calls.

Not part of the stable API. Application thread, as the public calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.application.arguments import check_topic
from kfast.errors import NoOffsetForPartitionError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kfast.application.shared_parts import SharedParts
    from kfast.client.cluster import TopicMetadata
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

    def end_fetching_at(self, ends: Mapping[TopicPartition, int]) -> None:
        """Fetch nothing from these offsets on; partitions without one have no end."""
        with self._shared.guard:
            self._shared.runtime.subscriptions.end_fetching_at(ends)
            self._shared.runtime.changed()

    def topic_metadata(self, topics: frozenset[str] | None) -> Mapping[str, TopicMetadata]:
        """Return what the cluster has of these topics, or of all, with one request."""
        with self._shared.guard:
            return self._shared.lookups.metadata(topics, self._timeout_ms)

    def required_partitions(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic, or raise that there is none."""
        with self._shared.guard:
            return self._shared.lookups.required_partitions(topic, self._timeout_ms)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each log, under ``isolation_level="read_committed"`` too."""
        with self._shared.guard:
            return self._shared.lookups.high_watermarks(partitions, self._timeout_ms)

    def check_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Raise if a log no longer has what a read of it, up to an end, is waiting for."""
        for tp, end in self.high_watermarks(ends).items():
            if end < ends[tp]:
                raise OffsetOutOfRangeError(
                    f"the log of {tp} ends at {end} now, and was to be read to {ends[tp]}",
                    cause="it was truncated, or the topic was deleted and created anew",
                    hint="read it again from the start",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=end,
                )

    @property
    def _timeout_ms(self) -> int:
        return self._shared.config.default_api_timeout_ms


def created_anew(error: NoOffsetForPartitionError) -> OffsetOutOfRangeError:
    """Return the error of a read whose partitions all had positions: one has lost it."""
    return OffsetOutOfRangeError(
        f"{error.topic} was deleted and created anew while it was read",
        hint="read it again from the start",
        topic=error.topic,
        partition=error.partition,
    )
