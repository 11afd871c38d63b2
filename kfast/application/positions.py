"""Positions: where the consumer stands, as the application asks for it.

Owns the wait for a position that is still being looked up, and what is said when it does not come.
Records that iteration has polled and not yielded do not count as read. Application thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.application.arguments import unknown_partition
from kfast.consumer.unknown_topic_check import Absence
from kfast.errors import KafkaTimeoutError

if TYPE_CHECKING:
    from kfast.application.iteration import RecordIteration
    from kfast.application.lookups import Lookups
    from kfast.threads.consumer_runtime import ConsumerRuntime
    from kfast.types import TopicPartition


class Positions:
    """Answers ``position`` and ``current_lag``.

    Parameters
    ----------
    runtime : ConsumerRuntime
        Finds positions.
    iteration : RecordIteration
        Knows what was polled and not yielded.
    lookups : Lookups
        Finds the nearest name of a topic that is not there.
    """

    __slots__ = ("_iteration", "_lookups", "_runtime")

    def __init__(
        self, runtime: ConsumerRuntime, iteration: RecordIteration, lookups: Lookups
    ) -> None:
        self._runtime = runtime
        self._iteration = iteration
        self._lookups = lookups

    def current(self, tp: TopicPartition) -> int | None:
        """Return the position if there is one now.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        """
        found = self._runtime.subscriptions.position(tp)
        left = self._iteration.position(tp)
        return left if left is not None or found is None else found.offset

    def wait(self, tp: TopicPartition, timeout_ms: int) -> int:
        """Return the position, waiting for it if need be.

        Raises
        ------
        IllegalStateError
            The partition is not assigned.
        UnknownTopicOrPartitionError
            The cluster has said for a second that there is no such topic or partition.
        KafkaTimeoutError
            It could not be found out in time.
        """
        runtime = self._runtime
        runtime.raise_wakeup()
        found = self.current(tp)
        if found is not None:
            return found
        begun_ms = runtime.clock.now_ms()
        deadline_ms = begun_ms + timeout_ms
        absence = Absence(runtime.metadata, begun_ms)
        runtime.start()
        while True:
            runtime.raise_wakeup()
            runtime.raise_errors()
            found = self.current(tp)
            if found is not None:
                return found
            absent = absence.look((tp,))
            if absent is not None:
                raise self._lookups.named(absent)
            unreachable = runtime.unreachable_since(begun_ms)
            if unreachable is not None:
                raise unreachable
            remaining_ms = deadline_ms - runtime.clock.now_ms()
            if remaining_ms <= 0:
                raise runtime.why_unreachable() or KafkaTimeoutError(
                    f"the position of {tp} could not be found out within {timeout_ms} ms",
                    cause=self._why_none(tp),
                    hint="check that the topic exists and that its leader can be reached",
                    topic=tp.topic,
                    partition=tp.partition,
                )
            runtime.wait_for_position(remaining_ms)

    def _why_none(self, tp: TopicPartition) -> str | None:
        cluster = self._runtime.metadata.cluster
        known = cluster.partitions_for_topic(tp.topic)
        if known is None:
            return f'no topic "{tp.topic}" on this cluster' if cluster.brokers else None
        return None if tp.partition in known else unknown_partition(tp, known).message

    def lag(self, tp: TopicPartition) -> int | None:
        """Return the offsets left to read, None when unknown."""
        lag = self._runtime.subscriptions.current_lag(tp)
        left = self._iteration.position(tp)
        found = self._runtime.subscriptions.position(tp)
        if lag is None or left is None or found is None:
            return lag
        return lag + max(0, found.offset - left)

    def __repr__(self) -> str:
        return f"<Positions {self._iteration!r}>"
