"""Positions: ``position`` and ``current_lag``, as the application sees them.

Owns the wait for a position that is still being looked up, and the error when none is found.
Records that iteration has polled and not yielded do not count as read. Application thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.consumer.unknown_topic_check import UnknownTopicCheck, unknown_partition
from kfast.errors import KafkaTimeoutError
from kfast.threads.consumer_runtime import OBSTRUCTED_MS

if TYPE_CHECKING:
    from kfast.application.shared_parts import SharedParts
    from kfast.types import TopicPartition


class Positions:
    """The positions of one consumer."""

    __slots__ = ("_iteration", "_lookups", "_runtime")

    def __init__(self, shared: SharedParts) -> None:
        self._runtime = shared.runtime
        self._iteration = shared.iteration
        self._lookups = shared.lookups

    def current(self, tp: TopicPartition) -> int | None:
        """Return the position if there is one now; the partition must be assigned."""
        position = self._runtime.subscriptions.position(tp)
        left = self._iteration.position(tp)
        return left if left is not None or position is None else position.offset

    def wait(self, tp: TopicPartition, timeout_ms: int) -> int:
        """Return the position, waiting for it if need be; raises as ``KafkaConsumer.position``."""
        runtime = self._runtime
        runtime.raise_wakeup()
        position = self.current(tp)
        if position is not None:
            return position
        runtime.start()
        try:
            return self._wait(tp, timeout_ms)
        finally:
            runtime.fetch_buffer.memory.note_caller(is_waiting=False)

    def _wait(self, tp: TopicPartition, timeout_ms: int) -> int:
        runtime = self._runtime
        begun_ms = runtime.clock.now_ms()
        deadline_ms = runtime.clock.deadline_ms(timeout_ms)
        unknown_topic_check = UnknownTopicCheck(runtime.metadata, begun_ms)
        while True:
            runtime.raise_wakeup()
            runtime.collector.raise_errors()
            position = self.current(tp)
            if position is not None:
                return position
            unknown = unknown_topic_check.check((tp,))
            if unknown is not None:
                raise self._lookups.with_nearest_name(unknown, deadline_ms)
            unreachable = runtime.unreachable_since(begun_ms)
            if unreachable is not None:
                raise unreachable
            now_ms = runtime.clock.now_ms()
            if now_ms - begun_ms >= OBSTRUCTED_MS:
                runtime.fetch_buffer.memory.note_caller(is_waiting=True)
            remaining_ms = deadline_ms - now_ms
            if remaining_ms <= 0:
                raise runtime.why_unreachable() or self._not_found(tp, timeout_ms)
            runtime.wait_for_position(remaining_ms)

    def _not_found(self, tp: TopicPartition, timeout_ms: int) -> KafkaTimeoutError:
        """Return the error for a call whose time is up."""
        runtime = self._runtime
        reason = runtime.retries.timeout_reason(runtime.clock.now_ms())
        hint = None if reason is None else reason.error.hint
        return KafkaTimeoutError(
            f"the position of {tp} was not found within {timeout_ms} ms",
            cause=self._why_none(tp) if reason is None else reason.cause,
            found=None if reason is None else reason.error.found,
            hint=hint or "check that the topic exists and that its leader can be reached",
            topic=tp.topic,
            partition=tp.partition,
        )

    def _why_none(self, tp: TopicPartition) -> str | None:
        cluster = self._runtime.metadata.cluster
        numbers = cluster.partitions_for_topic(tp.topic)
        if numbers is None:
            return f'no topic "{tp.topic}" on this cluster' if cluster.brokers else None
        return None if tp.partition in numbers else unknown_partition(tp, numbers).message

    def lag(self, tp: TopicPartition) -> int | None:
        """Return the offsets left to read, None when unknown."""
        lag = self._runtime.subscriptions.current_lag(tp)
        left = self._iteration.position(tp)
        position = self._runtime.subscriptions.position(tp)
        if lag is None or left is None or position is None:
            return lag
        return lag + max(0, position.offset - left)

    def __repr__(self) -> str:
        return f"<Positions {self._iteration!r}>"
