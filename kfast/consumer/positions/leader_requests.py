"""LeaderRequests: questions about partitions, on their way to the partitions' leaders.

Owns, for one kind of question, which partitions have been asked and not answered, and which wait
after a failure. It decides *who can be asked now*, and groups by broker; what is asked and what an
answer means is up to its user. Network thread only; sends nothing.

Each partition stands for itself: one that fails or has no leader does not delay the others. A
question belongs to a version of its partition; under another version it is another question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._clock import ExponentialBackoff
from kfast.client.request_manager import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kfast.consumer.manager_context import ManagerContext
    from kfast.errors import KafkaError
    from kfast.types import TopicPartition


class LeaderRequests:
    """Bookkeeping of one kind of question."""

    __slots__ = (
        "_asked",
        "_backoff",
        "_clock",
        "_connections",
        "_failures",
        "_metadata",
        "_on_error",
        "_reported",
        "_retry_backoff_ms",
        "next_ms",
    )

    def __init__(
        self,
        context: ManagerContext,
        *,
        on_error: Callable[[int, KafkaError], None],
    ) -> None:
        config = context.config
        self.next_ms = NEVER_MS
        self._metadata = context.metadata
        self._connections = context.connections
        self._clock = context.clock
        self._on_error = on_error
        self._retry_backoff_ms = config.retry_backoff_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._asked: dict[TopicPartition, int] = {}
        self._failures: dict[TopicPartition, tuple[int, int, int]] = {}
        self._reported: dict[int, KafkaError] = {}

    def ready(
        self, questions: Mapping[TopicPartition, int], now_ms: int
    ) -> dict[int, list[TopicPartition]]:
        """Return whom to ask what now.

        Parameters
        ----------
        questions : Mapping of TopicPartition to int
            The partitions there is a question about, and their versions.
        now_ms : int
            The time.

        Returns
        -------
        dict of int to list of TopicPartition
            Partitions by the broker that leads them, for brokers that take requests now. What
            has been asked already, waits after a failure or has no leader is left out;
            ``next_ms`` then says when to look again.
        """
        self.next_ms = NEVER_MS
        for tp in self._failures.keys() - questions.keys():
            del self._failures[tp]
        by_node: dict[int, list[TopicPartition]] = {}
        for tp, version in questions.items():
            if self._asked.get(tp) == version:
                continue
            failed_version, _, retry_ms = self._failures.get(tp, (version, 0, now_ms))
            if failed_version == version and retry_ms > now_ms:
                self._look_again_in(retry_ms - now_ms)
                continue
            leader = self._metadata.cluster.leader_for(tp)
            if leader is None:
                self._metadata.request_update()  # metadata spaces such requests out itself
            else:
                by_node.setdefault(leader.node_id, []).append(tp)
        return {
            node_id: partitions
            for node_id, partitions in by_node.items()
            if self._is_ready(node_id, now_ms)
        }

    def _is_ready(self, node_id: int, now_ms: int) -> bool:
        if self._connections.ready(node_id, now_ms):
            self._reported.pop(node_id, None)
            return True
        delay = self._connections.connection_delay(node_id, now_ms)
        self._look_again_in(delay or self._retry_backoff_ms)
        error = self._connections.connection_failed(node_id)
        if error is not None and not error.retriable and self._reported.get(node_id) is not error:
            self._reported[node_id] = error
            self._on_error(node_id, error)
        return False

    def _look_again_in(self, delay_ms: int) -> None:
        self.next_ms = min(self.next_ms, delay_ms)

    def asked(self, tp: TopicPartition, version: int) -> None:
        """Note that a question is under way."""
        self._asked[tp] = version

    def answered(self, tp: TopicPartition, version: int) -> None:
        """Note that a question is settled, or to be asked anew at once."""
        if self._asked.get(tp) == version:
            del self._asked[tp]
        self._failures.pop(tp, None)

    def failed(self, tp: TopicPartition, version: int, now_ms: int) -> None:
        """Note that a question got no usable answer: ask again after a pause that grows."""
        if self._asked.get(tp) == version:
            del self._asked[tp]
        failed_version, attempts, _ = self._failures.get(tp, (version, 0, 0))
        attempts = attempts if failed_version == version else 0
        retry_ms = now_ms + self._backoff.backoff_ms(attempts, self._clock)
        self._failures[tp] = (version, attempts + 1, retry_ms)

    def __repr__(self) -> str:
        return f"<LeaderRequests asked={len(self._asked)} failed={len(self._failures)}>"
