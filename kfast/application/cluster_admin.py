"""ClusterAdmin: what administrative commands ask a cluster: topics, offsets, groups.

Owns a runtime without consumer: nothing is assigned, no group is joined, no record is read. Calls
block; one thread. Errors of single groups are values, and partitions that are deleted while offsets
are looked up are left out, so that one of many does not hide the others. What only questions about
groups need is imported when one is asked: commands about topics start sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from kfast._base.clock import SystemClock
from kfast.application.lookups import Lookups
from kfast.client.cluster import NO_LEADER
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.fetch.request import READ_UNCOMMITTED
from kfast.errors import (
    IllegalStateError,
    KafkaError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kfast.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from kfast.threads.consumer_runtime import ConsumerRuntime
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from kfast._native.record_batch import RecordIndex
    from kfast.client.cluster import Cluster, TopicMetadata
    from kfast.config import ConsumerConfig
    from kfast.consumer.admin.admin_requests import Answers
    from kfast.consumer.admin.descriptions import GroupDescription, ListedGroup
    from kfast.consumer.admin.questions import Key, Question
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.records.building import BuildResult
    from kfast.types import OffsetAndMetadata, OffsetAndTimestamp

_CLOSE_MS: Final = 1_000

CommittedOffsets = dict["TopicPartition", "OffsetAndMetadata"]
_Offset = TypeVar("_Offset")


class ClusterAdmin:
    """Administrative look-ups in one cluster; a context manager.

    ``config`` has no ``group_id``. Times out after ``default_api_timeout_ms``.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._timeout_ms = config.default_api_timeout_ms
        self._runtime = ConsumerRuntime(
            config, SystemClock(), _no_records, ApplicationWakeup(), for_admin=True
        )
        self._lookups = Lookups(config, self._runtime)

    # --- topics -----------------------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        """Brokers, as last reported; empty before the first look-up."""
        return self._runtime.metadata.cluster

    def topic_metadata(self, names: Iterable[str] | None = None) -> Mapping[str, TopicMetadata]:
        """Return those of some topics that exist, or all topics, internal ones too."""
        topics = None if names is None else frozenset(names)
        return self._lookups.metadata(topics, self._timeout_ms)

    def topics(self) -> set[str]:
        """Return the names of all topics but internal ones."""
        return self._lookups.topics(self._timeout_ms)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic, None if there is none."""
        return self._lookups.partitions_of(topic, self._timeout_ms)

    def unknown_topic_error(self, topic: str) -> UnknownTopicOrPartitionError:
        """Return the error for a topic that does not exist, with the nearest name that does."""
        return self._lookups.unknown_topic_error(topic)

    # --- offsets ----------------------------------------------------------------------------------

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each log; partitions that are gone are left out."""
        return self._of_existing(
            lambda left: self._lookups.log_ends(left, EARLIEST_TIMESTAMP, self._timeout_ms),
            partitions,
        )

    def log_offsets(
        self, *timestamps: dict[TopicPartition, int]
    ) -> list[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Look up offsets by timestamp, -2 for the start and -1 for the end; all at once."""
        return self._lookups.offsets(timestamps, self._timeout_ms, READ_UNCOMMITTED)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition; those that are gone are left out."""
        return self._of_existing(
            lambda left: self._lookups.high_watermarks(left, self._timeout_ms), partitions
        )

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the same, and raise for those that are gone."""
        return self._lookups.high_watermarks(partitions, self._timeout_ms)

    def newest(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the record with the highest timestamp; None without records.

        Partitions that are gone are left out. Brokers before 3.0 do not answer it: all are None.
        """
        topic_partitions = [*partitions]
        try:
            return self._of_existing(
                lambda left: self._lookups.special_offsets(
                    dict.fromkeys(left, MAX_TIMESTAMP), self._timeout_ms
                ),
                topic_partitions,
            )
        except UnsupportedVersionError:
            return dict.fromkeys(topic_partitions)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a time for each partition."""
        return self._lookups.by_time(timestamps, self._timeout_ms)

    def _of_existing(
        self,
        look_up: Callable[[Collection[TopicPartition]], dict[TopicPartition, _Offset]],
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, _Offset]:
        """Look something up in the logs of partitions, some of which may be deleted meanwhile."""
        left = [*partitions]
        while True:
            try:
                return look_up(left)
            except UnknownTopicOrPartitionError as error:
                topics = self.topic_metadata({tp.topic for tp in left})
                existing = [
                    tp
                    for tp in left
                    if tp.partition in (topics[tp.topic].partitions if tp.topic in topics else ())
                    and (tp.topic != error.topic or error.partition not in {None, tp.partition})
                ]
                if len(existing) == len(left):
                    raise
                left = existing

    # --- groups -----------------------------------------------------------------------------------

    def groups(
        self, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> dict[str, ListedGroup]:
        """Return the groups of all brokers, of some states and types if any are given.

        Raises
        ------
        UnsupportedVersionError
            The brokers cannot filter by state (before 2.6), or by type (before 3.8).
        """
        from kfast.consumer.admin.questions import list_groups  # noqa: PLC0415 - see the module

        answers = self._ask(list_groups(states, types), None)
        groups: dict[str, ListedGroup] = {}
        for answer in answers.values():
            if isinstance(answer, KafkaError):
                raise answer
            groups.update((group.group_id, group) for group in answer)
        return groups

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """Return state and members of groups; one that does not exist is in state Dead."""
        from kfast.consumer.admin.questions import DESCRIBE_GROUPS  # noqa: PLC0415 - as above

        return self._about_groups(DESCRIBE_GROUPS, group_ids)

    def committed(self, group_ids: Iterable[str]) -> dict[str, CommittedOffsets | KafkaError]:
        """Return all committed offsets of groups."""
        from kfast.consumer.admin.questions import COMMITTED_OFFSETS  # noqa: PLC0415 - as above

        return self._about_groups(COMMITTED_OFFSETS, group_ids)

    def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int] | KafkaError:
        """Commit offsets as a non-member; return the error code of each partition."""
        from kfast.consumer.admin.questions import commit_offsets  # noqa: PLC0415 - as above

        answers = self._about_groups(commit_offsets(offsets), [group_id])
        return answers[group_id]  # type: ignore[no-any-return]

    def _about_groups(self, question: Question, group_ids: Iterable[str]) -> dict[str, Any]:
        answers = self._ask(question, [*dict.fromkeys(group_ids)])
        return {str(key): self._worded(answer) for key, answer in answers.items()}

    def _worded(self, answer: object) -> object:
        return self._runtime.word_error(answer) if isinstance(answer, KafkaError) else answer

    def _ask(self, question: Question, keys: Iterable[Key] | None) -> Answers:
        return self._runtime.ask(question, keys, self._timeout_ms)

    # --- life -------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runtime.close(_CLOSE_MS)

    def __repr__(self) -> str:
        return f"<ClusterAdmin {self._runtime!r}>"


def has_leader(topic: TopicMetadata, partition: int) -> bool:
    """Return whether offsets of a partition can be looked up."""
    return topic.partitions[partition].leader_id != NO_LEADER


def _no_records(_fetch: CompletedFetch, _chunk: RecordIndex) -> BuildResult:
    raise IllegalStateError("administrative look-ups read no records")
