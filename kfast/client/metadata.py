"""Metadata: the client's view of the cluster, the topics it covers and when to refresh it.

Owns the current ``Cluster`` snapshot, the set of topics, the topic errors of the last response and
the times of refreshes; does no I/O and sends nothing (``MetadataManager`` does). All methods
belong to the network thread. ``cluster``, ``topic_errors``, ``version`` and ``last_error`` are
single references that are swapped, never changed in place: any thread may read them.

A refresh is due every ``metadata_max_age_ms``, and on demand after ``request_update``. Refreshes
that change nothing, and failed ones, are followed by a growing back-off (``retry_backoff_ms`` to
``retry_backoff_max_ms``, KIP-580), so a request for an update that no broker can satisfy costs at
most one small request per back-off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kfast._base.clock import Clock, ExponentialBackoff
from kfast._base.logs import get_logger
from kfast.client.cluster import (
    NO_EPOCH,
    Cluster,
    Node,
    PartitionMetadata,
    TopicMetadata,
)
from kfast.client.metadata_merge import TopicHistory, merge_topics
from kfast.errors import InvalidMetadataError, KafkaError
from kfast.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.protocol.messages.metadata import MetadataResponse

__all__ = [
    "Cluster",
    "LeaderAndEpoch",
    "Metadata",
    "MetadataScope",
    "Node",
    "PartitionMetadata",
    "TopicMetadata",
]

logger = get_logger(__name__)

LeaderAndEpoch = tuple[int, int]
"""Node id and leader epoch, as a Fetch response names a new leader (KIP-951)."""

NEWEST_VERSION: Final = 13


@dataclass(slots=True, frozen=True)
class MetadataScope:
    """The topics of one Metadata request, None for all.

    With ``topic_ids`` it requests the topics of these ids and nothing else: brokers ignore the
    names in a request that holds an id.
    """

    topics: frozenset[str] | None
    topic_ids: frozenset[bytes] = frozenset()


class Metadata:
    """The metadata of one client. The clock is a source of jitter only."""

    def __init__(self, config: ConsumerConfig, clock: Clock) -> None:
        self._clock = clock
        self._max_age_ms = config.metadata_max_age_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.allow_auto_topic_creation = (
            config.was_given("allow_auto_create_topics") and config.allow_auto_create_topics
        )
        self.cluster = Cluster()
        self.version = 0
        """Grows by one with every response and every leader hint that changes the snapshot."""
        self.topic_errors: Mapping[str, int] = MappingProxyType({})
        """Error codes of the last response for requested topics."""
        self.last_error: KafkaError | None = None
        """Why the last refresh failed, None after a successful one."""
        self.read_topics: frozenset[str] | None = None
        """Of all topics those that matter: what others lack is no reason to refresh. None: all."""
        self._incomplete: frozenset[str] = frozenset()
        self._topics: frozenset[str] | None = frozenset()
        self._transient: frozenset[str] = frozenset()
        self._topic_ids: frozenset[bytes] = frozenset()
        self._has_asked_by_id = False
        self._history: dict[str, TopicHistory] = {}
        self._is_update_needed = True
        self._last_success_ms: int | None = None
        self._not_before_ms: int | None = None
        self._fruitless_attempts = 0
        self._rebootstrap_reason: str | None = None

    # --- topics -----------------------------------------------------------------------------------

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics to request by name, transient ones included; None for all."""
        if self._topics is None:
            return None
        names = self.cluster.topic_names
        return self._topics | self._transient | {names[i] for i in self._topic_ids if i in names}

    def set_topics(self, topics: Iterable[str] | None) -> None:
        """Set the subscribed or assigned topics; None means all of the cluster's.

        Topics that are wanted and not known yet make a refresh due at once; those no longer wanted
        leave the snapshot with the next refresh.
        """
        before = self.topics
        self._topics = None if topics is None else frozenset(topics)
        self._scope_changed(before)

    def add_transient_topics(self, topics: Iterable[str]) -> None:
        """Request further topics too, until ``clear_transient_topics`` (one-time look-ups)."""
        before = self.topics
        self._transient |= frozenset(topics)
        self._scope_changed(before)

    def clear_transient_topics(self, topics: Iterable[str] | None = None) -> None:
        """Stop requesting these transient topics, or all of them."""
        self._transient -= self._transient if topics is None else frozenset(topics)

    def set_topic_ids(self, topic_ids: Iterable[bytes]) -> None:
        """Set the topics wanted by id (a KIP-848 assignment), besides those wanted by name.

        Ids without a name are looked up by id (Metadata 12), again and again until there is one
        or they are no longer wanted; afterwards the topic is refreshed by name as any other. When
        all topics are wanted the refreshes of these bring the names.
        """
        before = self.unresolved_topic_ids
        self._topic_ids = frozenset(topic_ids)
        if not self.unresolved_topic_ids <= before:
            self._has_asked_by_id = False
            self._grown()

    @property
    def unresolved_topic_ids(self) -> frozenset[bytes]:
        """The topic ids that are wanted and whose names are not known."""
        if not self._topic_ids:
            return self._topic_ids
        return self._topic_ids - self.cluster.topic_names.keys()

    def _scope_changed(self, before: frozenset[str] | None) -> None:
        topics = self.topics
        if topics is None:
            grown = before is not None
        else:  # what is in the snapshot is as new as the rest of it, wanted before or not
            grown = not topics <= self.cluster.topics.keys() | (before or ())
        if grown:
            self._is_update_needed = True
            self._grown()

    def _grown(self) -> None:
        self._fruitless_attempts = 0
        if self.last_error is None:
            self._not_before_ms = None

    # --- refreshes --------------------------------------------------------------------------------

    def request_update(self) -> None:
        """Request a refresh as soon as the back-off after the last one allows."""
        self._is_update_needed = True

    @property
    def is_update_needed(self) -> bool:
        """Whether a refresh was requested and has not succeeded yet."""
        return self._are_names_needed or bool(self.unresolved_topic_ids)

    @property
    def _are_names_needed(self) -> bool:
        read = self.read_topics
        incomplete = self._incomplete if read is None else self._incomplete & read
        return self._is_update_needed or bool(incomplete)

    @property
    def last_success_ms(self) -> int | None:
        """Time of the last successful refresh, None before the first."""
        return self._last_success_ms

    def time_to_next_update(self, now_ms: int) -> int:
        """Return the milliseconds until a refresh is due and allowed; 0 means now."""
        if self.is_update_needed or self._last_success_ms is None:
            due = now_ms
        else:
            due = self._last_success_ms + self._max_age_ms
        allowed = now_ms if self._not_before_ms is None else self._not_before_ms
        return max(0, due - now_ms, allowed - now_ms)

    # --- outcomes ---------------------------------------------------------------------------------

    def scope(self) -> MetadataScope:
        """Return the scope of a request made now.

        Names and ids take turns while both are due, so that neither waits for the other.
        """
        topics, unresolved = self.topics, self.unresolved_topic_ids
        if topics is None or not unresolved:
            return MetadataScope(topics)
        are_names_due = self._are_names_needed or self._last_success_ms is None
        if are_names_due and self._has_asked_by_id:
            return MetadataScope(topics)
        return MetadataScope(topics, unresolved)

    def update(
        self,
        response: MetadataResponse,
        now_ms: int,
        *,
        scope: MetadataScope | None = None,
        api_version: int = NEWEST_VERSION,
    ) -> bool:
        """Take a Metadata response to a request for ``scope``, None: for what is wanted now.

        Returns False when the response was unusable (no broker in it) and changed nothing.
        """
        if not response.brokers:
            self.failed(InvalidMetadataError("the cluster's metadata names no broker"), now_ms)
            return False
        scope = self.scope() if scope is None else scope
        by_id = scope.topic_ids
        retained = self.topics
        requested = scope.topics
        if by_id:
            requested = frozenset(t.name for t in response.topics if t.name and t.topic_id in by_id)
            retained = None if retained is None else retained | requested
        old = self.cluster
        merged = merge_topics(
            old.topics,
            response,
            requested=requested,
            retained=retained,
            history=self._history,
            api_version=api_version,
        )
        errors = dict(merged.errors)
        if by_id:
            errors = {
                t: c for t, c in self.topic_errors.items() if t not in (requested or ())
            } | errors
        brokers = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        has_changed = (
            brokers != old.brokers or merged.topics != old.topics or errors != self.topic_errors
        )
        if old.cluster_id and response.cluster_id and old.cluster_id != response.cluster_id:
            logger.warning("cluster id changed from %s to %s", old.cluster_id, response.cluster_id)
        self.cluster = Cluster(
            MappingProxyType(brokers),
            MappingProxyType(dict(merged.topics)),
            response.cluster_id or old.cluster_id,
            response.controller_id,
            MappingProxyType(_names_by_id(merged.topics)),
        )
        self.topic_errors = MappingProxyType(errors)
        kept = frozenset() if requested is None else self._incomplete - requested
        self._incomplete = merged.incomplete | (kept if retained is None else kept & retained)
        self.version += 1
        self.last_error = None
        self._has_asked_by_id = bool(by_id)
        self._fruitless_attempts = 0 if has_changed else self._fruitless_attempts + 1
        if by_id:  # covers no other topics: whether those are due stays as it is
            self._pause(now_ms, max(0, self._fruitless_attempts - 1))
            return True
        self._last_success_ms = now_ms
        is_scope_covered = requested is None or (retained is not None and retained <= requested)
        self._is_update_needed = not is_scope_covered
        if is_scope_covered:
            self._pause(now_ms, max(0, self._fruitless_attempts - 1))
        else:
            self._not_before_ms = None  # topics added meanwhile have not been requested yet
        return True

    def failed(self, error: KafkaError, now_ms: int) -> None:
        """Note a failed refresh; the next one comes after a back-off."""
        self.last_error = error
        self._is_update_needed = True
        self._has_asked_by_id = not self._has_asked_by_id
        self._pause(now_ms, self._fruitless_attempts)
        self._fruitless_attempts += 1

    def _pause(self, now_ms: int, attempt: int) -> None:
        self._not_before_ms = now_ms + self._backoff.backoff_ms(attempt, self._clock)

    # --- hints from other responses ---------------------------------------------------------------

    def update_leaders(
        self,
        leaders: Mapping[TopicPartition, LeaderAndEpoch],
        endpoints: Iterable[tuple[int, str, int, str | None]] = (),
    ) -> set[TopicPartition]:
        """Take new leaders that a Fetch response named (KIP-951); return the partitions changed.

        Only an epoch newer than the known one counts. ``endpoints`` (node id, host, port, rack) may
        be empty for known brokers.
        """
        old = self.cluster
        brokers = dict(old.brokers)
        named = {endpoint[0]: Node(*endpoint) for endpoint in endpoints}
        changed: dict[str, dict[int, PartitionMetadata]] = {}
        for tp, (leader_id, epoch) in leaders.items():
            current = old.partition(tp)
            if current is None or epoch <= current.leader_epoch or epoch == NO_EPOCH:
                continue
            if leader_id in named:
                brokers[leader_id] = named[leader_id]
            elif leader_id not in brokers:
                continue
            partition = replace(current, leader_id=leader_id, leader_epoch=epoch, error_code=0)
            changed.setdefault(tp.topic, {})[tp.partition] = partition
        if not changed:
            return set()
        topics = dict(old.topics)
        for name, partitions in changed.items():
            topic = topics[name]
            topics[name] = replace(topic, partitions={**topic.partitions, **partitions})
        self.cluster = replace(
            old, brokers=MappingProxyType(brokers), topics=MappingProxyType(topics)
        )
        self.version += 1
        return {TopicPartition(name, p) for name, parts in changed.items() for p in parts}

    def add_broker(self, node: Node) -> None:
        """Add a broker that no Metadata response has named yet (a group's coordinator)."""
        if node.node_id not in self.cluster.brokers:
            brokers = MappingProxyType({**self.cluster.brokers, node.node_id: node})
            self.cluster = replace(self.cluster, brokers=brokers)

    # --- rebootstrap (KIP-899, KIP-1102) ----------------------------------------------------------

    def request_rebootstrap(self, reason: str) -> None:
        """Have the network client return to ``bootstrap_servers``."""
        self._rebootstrap_reason = reason

    def take_rebootstrap_request(self) -> str | None:
        """Return the reason of a requested rebootstrap and clear it; None if there is none."""
        reason, self._rebootstrap_reason = self._rebootstrap_reason, None
        return reason

    def rebootstrap(self) -> None:
        """Drop the brokers, keep the topics with their ids and epochs, and request a refresh."""
        self.cluster = replace(self.cluster, brokers=MappingProxyType({}), controller_id=-1)
        self._is_update_needed = True
        self._not_before_ms = None

    def __repr__(self) -> str:
        return f"<Metadata version={self.version} {self.cluster!r} needed={self._is_update_needed}>"


def _names_by_id(topics: Mapping[str, TopicMetadata]) -> dict[bytes, str]:
    return {t.topic_id: name for name, t in topics.items() if t.topic_id != ZERO_UUID}
