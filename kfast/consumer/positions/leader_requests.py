"""LeaderRequests: partitions of one kind of request, by leader, with in-flight and back-off state.

Owns which partitions are part of an in-flight request and which back off after a failure. It groups
by leader the partitions that can be requested now; the message and its response are up to the user.
Network thread only; sends nothing.

Partitions are independent: one that fails or has no leader does not delay the others. In-flight and
back-off state belong to a version of the partition; another version starts afresh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.clock import ExponentialBackoff
from kfast.client.request_manager import NEVER_MS
from kfast.errors import ErrorCode, exception_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kfast.consumer.manager_context import ManagerContext
    from kfast.errors import KafkaError
    from kfast.types import TopicPartition


class LeaderRequests:
    """In-flight and back-off state of one kind of request.

    ``on_error`` is called once with each error that is not retriable and keeps a broker from being
    used (authentication failed). ``next_ms`` is the delay until `ready` is to be called again,
    ``obstacle`` a retriable error that keeps a partition from being requested, None without one.
    """

    __slots__ = (
        "_backoff",
        "_clock",
        "_connections",
        "_failures",
        "_in_flight",
        "_metadata",
        "_on_error",
        "_reported",
        "_retry_backoff_ms",
        "next_ms",
        "obstacle",
    )

    def __init__(
        self,
        context: ManagerContext,
        *,
        on_error: Callable[[int, KafkaError], None],
    ) -> None:
        config = context.config
        self.next_ms = NEVER_MS
        self.obstacle: KafkaError | None = None
        self._metadata = context.metadata
        self._connections = context.connections
        self._clock = context.clock
        self._on_error = on_error
        self._retry_backoff_ms = config.retry_backoff_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._in_flight: dict[TopicPartition, int] = {}
        self._failures: dict[TopicPartition, tuple[int, int, int]] = {}
        self._reported: dict[int, KafkaError] = {}

    def ready(
        self, versions: Mapping[TopicPartition, int], now_ms: int
    ) -> dict[int, list[TopicPartition]]:
        """Return the partitions to request now, by the node id of their leader.

        Partitions that are in flight, back off or have no leader, and brokers that take no request
        now, are left out; ``next_ms`` is then the delay until the next call.
        """
        self.next_ms = NEVER_MS
        self.obstacle = None
        for tp in self._failures.keys() - versions.keys():
            del self._failures[tp]
        by_node: dict[int, list[TopicPartition]] = {}
        for tp, version in versions.items():
            if self._in_flight.get(tp) == version:
                continue
            failed_version, _, retry_ms = self._failures.get(tp, (version, 0, now_ms))
            if failed_version == version and retry_ms > now_ms:
                self._poll_again_in(retry_ms - now_ms)
                continue
            leader = self._metadata.cluster.leader_for(tp)
            if leader is None:
                self._metadata.request_update()  # metadata spaces such requests out itself
                self.obstacle = self.obstacle or _leaderless(tp)
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
        self._poll_again_in(delay or self._retry_backoff_ms)
        error = self._connections.connection_failed(node_id)
        if error is not None and error.retriable:
            self.obstacle = error
        if error is not None and not error.retriable and self._reported.get(node_id) is not error:
            self._reported[node_id] = error
            self._on_error(node_id, error)
        return False

    def _poll_again_in(self, delay_ms: int) -> None:
        self.next_ms = min(self.next_ms, delay_ms)

    def sent(self, tp: TopicPartition, version: int) -> None:
        """Note that a request with this partition is in flight."""
        self._in_flight[tp] = version

    def completed(self, tp: TopicPartition, version: int) -> None:
        """Note a usable response: nothing more to request, or another request at once."""
        if self._in_flight.get(tp) == version:
            del self._in_flight[tp]
        self._failures.pop(tp, None)

    def failed(self, tp: TopicPartition, version: int, now_ms: int) -> None:
        """Note that there was no usable response: retry after an exponential back-off."""
        if self._in_flight.get(tp) == version:
            del self._in_flight[tp]
        failed_version, attempts, _ = self._failures.get(tp, (version, 0, 0))
        self.delay(tp, version, attempts if failed_version == version else 0, now_ms)

    def delay(self, tp: TopicPartition, version: int, attempts: int, now_ms: int) -> None:
        """Leave a partition out for the back-off after so many earlier attempts."""
        retry_ms = now_ms + self._backoff.backoff_ms(attempts, self._clock)
        self._failures[tp] = (version, attempts + 1, retry_ms)

    def __repr__(self) -> str:
        return f"<LeaderRequests in_flight={len(self._in_flight)} failed={len(self._failures)}>"


def _leaderless(tp: TopicPartition) -> KafkaError:
    return exception_for(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"{tp} has no leader",
        topic=tp.topic,
        partition=tp.partition,
        hint="check that the brokers with its replicas run",
    )
