"""NodeFetches: the fetch session, in-flight Fetch and active partitions of one broker.

Network thread only; no I/O, no clock.

A partition is *active* when its last response had data: the next one is expected to have about
twice as much, up to the partition limit. Idle partitions are expected to have none, so a thousand
of them reserve no memory that active ones need. *Deferred* partitions are left out of the request
because the byte budget has no room for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfast.consumer.fetch.session import FetchSessionHandler

if TYPE_CHECKING:
    from collections.abc import Collection

    from kfast._native.buffers import OwnedBuffer
    from kfast._runtime.memory_account import ExpectedResponse
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.consumer.fetch.session import FetchTarget
    from kfast.errors import KafkaError
    from kfast.types import TopicPartition


@dataclass(slots=True, eq=False)
class InFlightFetch:
    """A Fetch that was sent and, once it is received, its response."""

    node: NodeFetches
    expected: ExpectedResponse
    overdue_ms: int  # the broker should have responded by then, with data or without
    # Partitions fetched from another broker meanwhile: theirs of the response is dropped.
    abandoned: set[TopicPartition] = field(default_factory=set)
    frame: OwnedBuffer = field(init=False)
    received_ms: int = field(default=0, init=False)
    fetches: list[CompletedFetch] = field(default_factory=list, init=False)
    # Bytes by partition; 0 for an error. Without those that had neither.
    served: dict[TopicPartition, int] = field(default_factory=dict, init=False)
    # New leaders and their epochs (KIP-951).
    leaders: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<InFlightFetch node={self.node.node_id} expects {self.expected.nbytes} bytes>"


class NodeFetches:
    """The partitions to fetch from one broker, and the state of its requests."""

    __slots__ = (
        "active",
        "deferred",
        "failures",
        "in_flight",
        "leaving",
        "node_id",
        "refused_size",
        "reported_error",
        "retry_ms",
        "session",
        "unreadable_responses",
    )

    def __init__(self, node_id: int, *, uses_sessions: bool) -> None:
        self.node_id = node_id
        self.session = FetchSessionHandler(node_id, is_enabled=uses_sessions)
        self.in_flight: InFlightFetch | None = None
        self.deferred: dict[TopicPartition, FetchTarget] = {}
        # Bytes expected of each active partition, least recently served first.
        self.active: dict[TopicPartition, int] = {}
        # Move to another broker as soon as the in-flight request has ended.
        self.leaving: set[TopicPartition] = set()
        self.failures = 0  # requests in a row without a usable response
        self.retry_ms = 0  # no request before then
        self.reported_error: KafkaError | None = None  # the last connection error that was raised
        # Size of the last response that was refused for it; None after a usable response.
        self.refused_size: int | None = None
        # Responses in a row that were not Kafka's protocol, each of which closed the connection.
        self.unreadable_responses = 0

    @property
    def has_partitions(self) -> bool:
        """Whether any partition is fetched here, deferred ones included."""
        return bool(len(self.session) or self.deferred)

    def is_fetching(self, tp: TopicPartition) -> bool:
        """Return whether a partition is in flight here and not abandoned."""
        return (
            self.in_flight is not None
            and tp not in self.in_flight.abandoned
            and self.session.sent(tp) is not None
        )

    def add(self, tp: TopicPartition, target: FetchTarget) -> None:
        """Fetch a partition from this broker."""
        self.leaving.discard(tp)
        if tp in self.deferred:
            self.deferred[tp] = target
        else:
            self.session.add(tp, target)

    def drop(self, tp: TopicPartition) -> None:
        """Stop fetching a partition from this broker."""
        self.session.drop(tp)
        self.deferred.pop(tp, None)
        self.active.pop(tp, None)

    def defer(self, tp: TopicPartition) -> None:
        """Leave a partition out of requests until `restore_deferred`."""
        target = self.session.target(tp)
        if target is not None:
            self.deferred[tp] = target
            self.session.drop(tp)

    def restore_deferred(self) -> None:
        """Add all deferred partitions to the next request."""
        deferred, self.deferred = self.deferred, {}
        for tp, target in deferred.items():
            self.session.add(tp, target)

    def served(self, tp: TopicPartition, nbytes: int, partition_max_bytes: int) -> None:
        """Note data of a partition: it is active, and served last next time."""
        self.session.move_to_end(tp)
        self.active.pop(tp, None)
        if tp in self.session or tp in self.deferred:
            self.active[tp] = max(nbytes, min(2 * nbytes, partition_max_bytes))

    def failed(self, tp: TopicPartition) -> None:
        """Note an error of a partition: it is idle, and served last next time."""
        self.session.move_to_end(tp)
        self.active.pop(tp, None)

    def is_refused_again(self, size: int | None) -> bool:
        """Note the size for which a response was refused; return whether it is the same again.

        One large number can be damage in transit, the same one again is a batch of that size.
        """
        before, self.refused_size = self.refused_size, size
        return size is not None and size == before

    def mark_idle_except(self, served: Collection[TopicPartition]) -> None:
        """Note that of the partitions requested only these had data."""
        for tp in [tp for tp in self.active if tp not in served]:
            if self.session.sent(tp) is not None:
                del self.active[tp]

    def __repr__(self) -> str:
        return (
            f"<NodeFetches {self.node_id} partitions={len(self.session)}"
            f" deferred={len(self.deferred)} active={len(self.active)}"
            f" in_flight={self.in_flight is not None}>"
        )
