"""Absence: whether the cluster has said for long enough that a partition does not exist.

Brokers learn of a new topic one after the other, so that one answer that knows nothing of it means
little. Owns the count of such answers for one question; reads ``Metadata``, which any thread may,
and changes nothing. A partition is absent when ``ABSENT_ANSWERS`` refreshes made since the question
and spread over ``ABSENT_MS`` have all known nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast.errors import ErrorCode, UnknownTopicOrPartitionError, partition_range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast.client.metadata import Metadata
    from kfast.types import TopicPartition

ABSENT_MS: Final = 1_000
ABSENT_ANSWERS: Final = 3


class Absence:
    """Watches metadata for one question.

    Parameters
    ----------
    metadata : Metadata
        What the cluster says.
    started_ms : int
        When the question was asked; what is older does not count.

    Attributes
    ----------
    suspect : TopicPartition or None
        A partition the last answer knew nothing of. Asking for a refresh is up to the owner.
    """

    __slots__ = ("_answers", "_metadata", "_started_ms", "suspect")

    def __init__(self, metadata: Metadata, started_ms: int) -> None:
        self.suspect: TopicPartition | None = None
        self._metadata = metadata
        self._started_ms = started_ms
        self._answers: list[int] = []

    def look(self, missing: Iterable[TopicPartition]) -> UnknownTopicOrPartitionError | None:
        """Return the error for one of these partitions, once it certainly does not exist."""
        suspect = next((tp for tp in missing if self._is_unknown(tp)), None)
        if suspect != self.suspect:
            self.suspect = suspect
            self._answers.clear()
        answer_ms = self._metadata.last_success_ms
        if suspect is None or answer_ms is None or answer_ms < self._started_ms:
            return None
        if answer_ms not in self._answers[-1:]:
            self._answers.append(answer_ms)
        if len(self._answers) < ABSENT_ANSWERS or answer_ms - self._answers[0] < ABSENT_MS:
            return None
        return self._error(suspect)

    def _is_unknown(self, tp: TopicPartition) -> bool:
        known = self._metadata.cluster.partitions_for_topic(tp.topic)
        if known is None:
            return self._metadata.topic_errors.get(tp.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return tp.partition not in known

    def _error(self, tp: TopicPartition) -> UnknownTopicOrPartitionError:
        known = self._metadata.cluster.partitions_for_topic(tp.topic)
        if known is None:
            return UnknownTopicOrPartitionError(
                f'no topic "{tp.topic}" on this cluster',
                hint="create it first, or check that this user may describe it",
                topic=tp.topic,
            )
        return UnknownTopicOrPartitionError(
            f"{partition_range(tp.topic, known)}: there is no partition {tp.partition}",
            hint=f'partitions_for_topic("{tp.topic}") lists them',
            topic=tp.topic,
            partition=tp.partition,
        )

    def __repr__(self) -> str:
        return f"<Absence of {self.suspect} in {len(self._answers)} answers>"
