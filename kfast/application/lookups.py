"""Lookups: topics, partitions and offsets of the cluster, independent of any assignment.

Owns the look-ups that move no position, and the error for an unknown topic. Application thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.application.arguments import as_iterable, check_partition, check_times, check_topic
from kfast.consumer.fetch.request import READ_UNCOMMITTED
from kfast.consumer.topic_lookup import NAMES_MS
from kfast.errors import KafkaError, UnknownTopicOrPartitionError, WakeupError, did_you_mean
from kfast.settings.offset_reset import LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from kfast.client.cluster import TopicMetadata
    from kfast.config import ConsumerConfig
    from kfast.threads.consumer_runtime import ConsumerRuntime
    from kfast.types import OffsetAndTimestamp, TopicPartition


class Lookups:
    """The look-ups of one consumer."""

    __slots__ = ("_config", "_runtime")

    def __init__(self, config: ConsumerConfig, runtime: ConsumerRuntime) -> None:
        self._config = config
        self._runtime = runtime

    def log_ends(
        self, partitions: Iterable[TopicPartition], timestamp: int, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        """Return one end of each log: timestamp -2 for the first offset, -1 for the last."""
        timestamps = dict.fromkeys(map(check_partition, as_iterable(partitions)), timestamp)
        hits = self._offsets(timestamps, timeout_ms)
        return {tp: hit.offset for tp, hit in hits.items() if hit is not None}

    def high_watermarks(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the end of each log, whatever the isolation level."""
        timestamps = dict.fromkeys(partitions, LATEST_TIMESTAMP)
        hits = self._offsets(timestamps, timeout_ms, READ_UNCOMMITTED)
        return {tp: hit.offset for tp, hit in hits.items() if hit is not None}

    def by_time(
        self, timestamps: Mapping[TopicPartition, int | datetime], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a time for each partition."""
        return self._offsets(check_times(timestamps), timeout_ms)

    def special_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return offsets by the protocol's negative timestamps, whatever the isolation level."""
        return self._offsets(dict(timestamps), timeout_ms, READ_UNCOMMITTED)

    def _offsets(
        self,
        timestamps: dict[TopicPartition, int],
        timeout_ms: int,
        isolation_level: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self.offsets([timestamps], timeout_ms, isolation_level)[0]

    def offsets(
        self,
        timestamps: Sequence[dict[TopicPartition, int]],
        timeout_ms: int,
        isolation_level: int | None = None,
    ) -> list[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Return the offsets at or after timestamps, of several look-ups made at once.

        Timestamps may be the protocol's negative ones. The isolation level is that of the
        configuration if None.
        """
        if not any(timestamps):
            return [{} for _ in timestamps]
        deadline_ms = self._runtime.clock.deadline_ms(timeout_ms)
        try:
            return self._runtime.list_offsets(timestamps, timeout_ms, isolation_level)
        except UnknownTopicOrPartitionError as error:
            raise self.with_nearest_name(error, deadline_ms) from None

    def partitions_of(self, topic: str, timeout_ms: int) -> set[int] | None:
        """Return the partition numbers of a topic, None if there is none."""
        topic = check_topic(topic)
        topics = self._runtime.look_up_topics(frozenset({topic}), timeout_ms)
        return set(topics[topic].partitions) if topic in topics else None

    def required_partitions(self, topic: str, timeout_ms: int) -> set[int]:
        """Return the partition numbers of a topic; raise if it is certain that there is none."""
        topic = check_topic(topic)
        deadline_ms = self._runtime.clock.deadline_ms(timeout_ms)
        topics = self._runtime.look_up_topics(frozenset({topic}), timeout_ms, must_exist=True)
        if topic not in topics:
            raise self.unknown_topic_error(topic, deadline_ms)
        return set(topics[topic].partitions)

    def metadata(
        self, topics: frozenset[str] | None, timeout_ms: int
    ) -> Mapping[str, TopicMetadata]:
        """Return the metadata of those of these topics that exist, or of all, with one request."""
        return self._runtime.look_up_topics(topics, timeout_ms)

    def topics(self, timeout_ms: int) -> set[str]:
        """Return the names of all topics."""
        hides_internal = self._config.exclude_internal_topics
        topics = self._runtime.look_up_topics(None, timeout_ms)
        return {n for n, topic in topics.items() if not (topic.is_internal and hides_internal)}

    def with_nearest_name(
        self, error: UnknownTopicOrPartitionError, deadline_ms: int
    ) -> UnknownTopicOrPartitionError:
        """Return the same error, for a topic with the nearest name that exists.

        That is looked up until the deadline of the call, at most. Raises `WakeupError`.
        """
        if error.topic is None or error.partition is not None:
            return error
        return self.unknown_topic_error(error.topic, deadline_ms)

    def unknown_topic_error(
        self, topic: str, deadline_ms: int | None = None
    ) -> UnknownTopicOrPartitionError:
        """Return the error for a topic that does not exist, with the nearest name that does."""
        runtime = self._runtime
        left_ms = NAMES_MS
        if deadline_ms is not None:
            left_ms = min(left_ms, deadline_ms - runtime.clock.now_ms())
        topics = runtime.metadata.cluster.topics
        if left_ms > 0:
            try:
                topics = runtime.look_up_topics(None, left_ms)
            except WakeupError:
                raise
            except KafkaError:
                pass  # of the topics of the last metadata one may be near
        return _unknown_topic(topic, topics)

    def missing_topic_error(
        self, error: UnknownTopicOrPartitionError, *, is_urgent: bool
    ) -> UnknownTopicOrPartitionError | None:
        """Return, without waiting, the same error for a topic that is subscribed to.

        None while the nearest name is being looked up, unless it ``is_urgent``.
        """
        if error.topic is None or error.partition is not None:
            return error
        topics = self._runtime.topics_beside_missing
        if topics is None and not is_urgent:
            return None
        return _unknown_topic(error.topic, topics or self._runtime.metadata.cluster.topics)

    def __repr__(self) -> str:
        return f"<Lookups {self._runtime!r}>"


def _unknown_topic(topic: str, topics: Mapping[str, TopicMetadata]) -> UnknownTopicOrPartitionError:
    near = did_you_mean(topic, [name for name in topics if name != topic])
    visible = sum(not metadata.is_internal for metadata in topics.values())
    count = "1 topic" if visible == 1 else f"{visible} topics"
    return UnknownTopicOrPartitionError(
        f'no topic "{topic}" on this cluster ({count})',
        hint=f'did you mean "{near}"?'
        if near
        else "create it first, or check that this user may describe it; reading creates none",
        topic=topic,
    )
