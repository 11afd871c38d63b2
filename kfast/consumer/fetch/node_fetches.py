"""NodeFetches: what the fetcher knows about one broker.

Owns the broker's fetch session, the one Fetch in flight, and which of its partitions deliver.
Network thread only; no I/O, no clock.

Partitions are *hot* when their last answer had data: more is expected of them, about twice as much
up to the partition limit. The others wait for new records and are expected to bring nothing, so a
thousand idle partitions do not hold memory that busy ones need. *Held* partitions are left out of
the request because there is no room for what they may bring.
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
    """A Fetch that was sent, and what its answer brings.

    Parameters
    ----------
    node : NodeFetches
        Where it went.
    answer : ExpectedResponse
        What the memory account knows of it.
    overdue_ms : int
        From then on the broker should have answered, data or not.
    abandoned : set of TopicPartition
        Partitions fetched elsewhere meanwhile, whose part of the answer must not be used.

    Attributes
    ----------
    frame : OwnedBuffer
        The answer; set when it comes, like what follows.
    answered_ms : int
        When it came.
    fetches : list of CompletedFetch
        What is in it to hand out.
    served : dict of TopicPartition to int
        Bytes by partition that brought any; 0 for one that failed.
    leaders : dict of TopicPartition to (int, int)
        New leaders it names, and their epochs.
    """

    node: NodeFetches
    answer: ExpectedResponse
    overdue_ms: int
    abandoned: set[TopicPartition] = field(default_factory=set)
    frame: OwnedBuffer = field(init=False)
    answered_ms: int = field(default=0, init=False)
    fetches: list[CompletedFetch] = field(default_factory=list, init=False)
    served: dict[TopicPartition, int] = field(default_factory=dict, init=False)
    leaders: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<InFlightFetch node={self.node.node_id} expects {self.answer.nbytes} bytes>"


class NodeFetches:
    """One broker's part of the plan.

    Parameters
    ----------
    node_id : int
        The broker.
    uses_sessions : bool
        ``enable_incremental_fetch_sessions``.

    Attributes
    ----------
    session : FetchSessionHandler
        Holds the partitions to fetch here.
    in_flight : InFlightFetch or None
        The one request under way.
    held : dict of TopicPartition to FetchTarget
        Partitions left out for want of room.
    hot : dict of TopicPartition to int
        Partitions that deliver and the bytes expected of each, least recently served first.
    leaving : set of TopicPartition
        Partitions that go to another broker as soon as the request under way is answered.
    failures : int
        Requests in a row without a usable answer.
    retry_ms : int
        No request before then.
    reported_error : KafkaError or None
        The connection error the application was told last.
    refused_size : int or None
        Size of the answer that was last refused for it; None after a good answer.
    unreadable_answers : int
        Answers in a row that were no Kafka answers, each of which cost the connection.
    """

    __slots__ = (
        "failures",
        "held",
        "hot",
        "in_flight",
        "leaving",
        "node_id",
        "refused_size",
        "reported_error",
        "retry_ms",
        "session",
        "unreadable_answers",
    )

    def __init__(self, node_id: int, *, uses_sessions: bool) -> None:
        self.node_id = node_id
        self.session = FetchSessionHandler(node_id, is_enabled=uses_sessions)
        self.in_flight: InFlightFetch | None = None
        self.held: dict[TopicPartition, FetchTarget] = {}
        self.hot: dict[TopicPartition, int] = {}
        self.leaving: set[TopicPartition] = set()
        self.failures = 0
        self.retry_ms = 0
        self.reported_error: KafkaError | None = None
        self.refused_size: int | None = None
        self.unreadable_answers = 0

    @property
    def has_partitions(self) -> bool:
        """Whether anything is to be fetched here, held partitions included."""
        return bool(len(self.session) or self.held)

    def is_fetching(self, tp: TopicPartition) -> bool:
        """Return whether the request under way asks for a partition, and its answer counts."""
        return (
            self.in_flight is not None
            and tp not in self.in_flight.abandoned
            and self.session.sent(tp) is not None
        )

    def want(self, tp: TopicPartition, target: FetchTarget) -> None:
        """Fetch a partition here."""
        self.leaving.discard(tp)
        if tp in self.held:
            self.held[tp] = target
        else:
            self.session.want(tp, target)

    def drop(self, tp: TopicPartition) -> None:
        """Do not fetch a partition here any more."""
        self.session.drop(tp)
        self.held.pop(tp, None)
        self.hot.pop(tp, None)

    def hold(self, tp: TopicPartition) -> None:
        """Leave a partition out until `release_held`."""
        target = self.session.wanted(tp)
        if target is not None:
            self.held[tp] = target
            self.session.drop(tp)

    def release_held(self) -> None:
        """Take all held partitions back in."""
        held, self.held = self.held, {}
        for tp, target in held.items():
            self.session.want(tp, target)

    def served(self, tp: TopicPartition, nbytes: int, partition_max_bytes: int) -> None:
        """Note that a partition delivered: it is served last next time, and expected to go on."""
        self.session.move_to_end(tp)
        self.hot.pop(tp, None)
        if tp in self.session or tp in self.held:
            self.hot[tp] = max(nbytes, min(2 * nbytes, partition_max_bytes))

    def failed(self, tp: TopicPartition) -> None:
        """Note that a partition answered with an error: it is served last next time."""
        self.session.move_to_end(tp)
        self.hot.pop(tp, None)

    def is_refused_again(self, size: int | None) -> bool:
        """Note the size an answer was refused for; return whether it is the one as before.

        One large number can be damage on the way, the same one again is a batch of that size.
        """
        before, self.refused_size = self.refused_size, size
        return size is not None and size == before

    def cool(self, served: Collection[TopicPartition]) -> None:
        """Note that of the partitions asked for only these had data."""
        for tp in [tp for tp in self.hot if tp not in served]:
            if self.session.sent(tp) is not None:
                del self.hot[tp]

    def __repr__(self) -> str:
        return (
            f"<NodeFetches {self.node_id} partitions={len(self.session)} held={len(self.held)}"
            f" hot={len(self.hot)} in_flight={self.in_flight is not None}>"
        )
