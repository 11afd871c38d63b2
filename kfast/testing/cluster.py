"""FakeCluster: a Kafka cluster in memory that a test fills, breaks and inspects.

Owns the state of the cluster and the lock that protects it; it opens no socket and reads no clock.
Tests change the cluster through its methods, from any thread; ``BrokerServer`` carries bytes
between clients and ``BrokerConnection``. Every change notifies the listeners, so that delayed Fetch
responses are looked at again.

A leader change always raises the leader epoch and starts it in the log's epoch history, as
becoming leader does on a real broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from kfast.testing.changes import Changes
from kfast.testing.fault_table import FaultTable
from kfast.testing.fetch_sessions import FetchSessionCache
from kfast.testing.groups.group_coordinator import FakeGroups
from kfast.testing.log import PartitionLog, StoredBatch
from kfast.testing.releases import LATEST, RELEASES, VersionRange
from kfast.testing.request_log import RequestLog
from kfast.testing.sasl import SaslListener, SaslSession
from kfast.testing.topology import (
    NO_LEADER,
    FakeNode,
    FakePartition,
    FakeTopic,
    MetadataView,
    PartitionWriter,
    Value,
    metadata_view,
    topic_id_of,
)

DEFAULT_FETCH_MAX_BYTES: Final = 55 * 1024 * 1024
"""A broker's own ``fetch.max.bytes``."""


class Connection(Protocol):
    """An open connection to a node, as the cluster knows it."""

    node_id: int
    connection_id: int
    sasl: SaslSession | None

    def close(self, *, is_reset: bool = False) -> None:
        """Close it from the broker's side."""
        ...


class FakeCluster:
    """A cluster of fake brokers.

    Parameters
    ----------
    nodes : int
        Number of brokers; their ids count from 1.
    release : str
        Kafka release whose version ranges the brokers offer, see ``RELEASES``.
    racks : sequence of str, optional
        Rack per node; with racks, leaders name a preferred read replica (KIP-392).
    cluster_id : str
        Sent in Metadata.

    Attributes
    ----------
    changes : Changes
        The lock of the state, and the listeners of its changes.
    faults : FaultTable
        Errors, delays and dropped connections of requests to come.
    requests : RequestLog
        Requests so far.
    groups : FakeGroups
        Consumer groups, their coordinators and committed offsets.
    connections : dict
        Open connections, by number.
    connections_made : int
        How many connections have been accepted.
    sasl : SaslListener or None
        Users and mechanisms of the listeners; None is a cluster without SASL.
    denied_topics : set of str
        Topics the client may not read (error 29).
    features : dict
        Finalized features of ApiVersions, e.g. ``{"group.version": 1}``.
    has_leader_hints : bool
        Whether Fetch 16+ names the new leader with errors 6 and 74 (KIP-951).
    has_auto_creation : bool
        Whether Metadata creates unknown topics when allowed by the request.
    fetch_max_bytes : int
        The brokers' own cap on a Fetch answer.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        release: str = LATEST,
        racks: Sequence[str] | None = None,
        cluster_id: str = "fake-cluster",
    ) -> None:
        self.changes = Changes()
        self.changing = self.changes.changing
        self.lock = self.changes.lock
        self.release = release
        self.cluster_id = cluster_id
        self.nodes = {
            node_id: FakeNode(
                node_id,
                f"broker-{node_id}",
                9092,
                None if racks is None else racks[node_id - 1],
            )
            for node_id in range(1, nodes + 1)
        }
        self.topics: dict[str, FakeTopic] = {}
        self.connections: dict[int, Connection] = {}
        self.connections_made = 0
        self.faults = FaultTable()
        self.requests = RequestLog()
        self.sasl: SaslListener | None = None
        self.denied_topics: set[str] = set()
        self.groups = FakeGroups(self.nodes, self.topics, self.denied_topics, self.changes)
        self.features: dict[str, int] = {}
        self.has_leader_hints = True
        self.has_auto_creation = False
        self.has_rack_selector = racks is not None
        self.fetch_max_bytes = DEFAULT_FETCH_MAX_BYTES
        self._sessions = {node_id: self._new_sessions(node_id) for node_id in self.nodes}
        self._version_overrides: dict[tuple[int | None, int], VersionRange | None] = {}
        self._frozen_views: dict[int, MetadataView] = {}
        self._topics_made = 0

    # -- topics and data -------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int | None = None,
        leaders: Sequence[int] | None = None,
        leader_epoch: int = 0,
        is_internal: bool = False,
    ) -> FakeTopic:
        """Create a topic with a fresh topic id.

        Parameters
        ----------
        replication : int, optional
            Replicas per partition; default all nodes.
        leaders : sequence of int, optional
            Leader per partition; default round robin over the nodes.
        leader_epoch : int
            First epoch of every partition.
        """
        with self.changing():
            if name in self.topics:
                raise ValueError(f"topic {name!r} exists")
            self._topics_made += 1
            topic = FakeTopic(name, self._new_topic_id(), {}, is_internal)
            self.topics[name] = topic
            for number in range(partitions):
                leader = None if leaders is None else leaders[number]
                self._add_partition(topic, number, leader, replication, leader_epoch)
            return topic

    def add_partitions(self, name: str, total: int) -> None:
        """Let a topic grow to a number of partitions."""
        with self.changing():
            topic = self.topics[name]
            for number in range(len(topic.partitions), total):
                self._add_partition(topic, number, None, None, 0)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its data."""
        with self.changing():
            del self.topics[name]

    def recreate_topic(self, name: str, partitions: int = 1) -> FakeTopic:
        """Delete a topic and create it again: new id, epoch 0, empty."""
        with self.changing():
            del self.topics[name]
            return self.create_topic(name, partitions)

    def append(
        self,
        topic: str,
        partition: int,
        values: Iterable[Value],
        *,
        batch_records: int | None = None,
    ) -> list[StoredBatch]:
        """Append records, in one batch or in batches of ``batch_records``."""
        with self.writing(topic, partition) as writer:
            return writer.append(values, batch_records=batch_records)

    @contextmanager
    def writing(self, topic: str, partition: int) -> Iterator[PartitionWriter]:
        """Give a writer for one partition; delayed Fetch responses may complete at the end."""
        with self.changing():
            yield PartitionWriter(self.topics[topic].partitions[partition])

    def partition(self, topic: str, partition: int) -> FakePartition:
        """A partition with its leader and replicas."""
        return self.topics[topic].partitions[partition]

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition."""
        return self.topics[topic].partitions[partition].log

    # -- nodes and leaders -----------------------------------------------------------------

    def move_leader(
        self,
        topic: str,
        partition: int,
        node_id: int,
        *,
        truncate_to: int | None = None,
        leader_epoch: int | None = None,
    ) -> int:
        """Make another node the leader and return the new epoch.

        Parameters
        ----------
        truncate_to : int, optional
            The new leader lacks everything from this offset on (unclean election).
        leader_epoch : int, optional
            Default: the epoch after the current one.
        """
        with self.changing():
            target = self.topics[topic].partitions[partition]
            target.leader = node_id
            target.leader_epoch = target.leader_epoch + 1 if leader_epoch is None else leader_epoch
            if node_id >= 0:
                if node_id not in target.replicas:
                    target.replicas.append(node_id)
                if node_id not in target.isr:
                    target.isr.append(node_id)
                if truncate_to is not None:
                    target.log.truncate_to(truncate_to)
                target.log.start_epoch(target.leader_epoch, target.log.log_end_offset)
            return target.leader_epoch

    def stop_node(self, node_id: int, *, fails_over: bool = True) -> None:
        """Stop a node: connections reset, none accepted; its partitions get other leaders.

        Parameters
        ----------
        fails_over : bool
            False leaves it in Metadata as the leader, as before the cluster has noticed.
        """
        with self.changing():
            node = self.nodes[node_id]
            node.is_running = False
            self._sessions[node_id] = self._new_sessions(node_id)
            for connection in list(self.connections.values()):
                if connection.node_id == node_id:
                    connection.close(is_reset=True)
            if not fails_over:
                self._frozen_views.update(
                    {other: self._view_before_stop(node) for other in self._running_ids()}
                )
                return
            self.groups.node_stopped(node_id)
            for name, number, partition in self._partitions():
                if node_id not in partition.replicas:
                    continue
                partition.isr = [one for one in partition.isr if one != node_id]
                partition.offline_replicas.append(node_id)
                if partition.leader == node_id:
                    self.move_leader(name, number, next(iter(partition.isr), NO_LEADER))

    def start_node(self, node_id: int) -> None:
        """Start a stopped node again; leaderless partitions it has a replica of get it."""
        with self.changing():
            self.nodes[node_id].is_running = True
            for name, number, partition in self._partitions():
                if node_id in partition.replicas:
                    if node_id in partition.offline_replicas:
                        partition.offline_replicas.remove(node_id)
                    if node_id not in partition.isr:
                        partition.isr.append(node_id)
                    if partition.leader == NO_LEADER:
                        self.move_leader(name, number, node_id)

    def advertise(self, node_id: int, host: str, port: int) -> None:
        """Let Metadata give another address for a node than the one it listens on."""
        with self.changing():
            self.nodes[node_id].advertised = (host, port)

    def close_connections(self, node_id: int | None = None, *, is_reset: bool = False) -> None:
        """Close the connections of a node, or all, as idle reaping does."""
        with self.changing():
            for connection in list(self.connections.values()):
                if node_id is None or connection.node_id == node_id:
                    connection.close(is_reset=is_reset)

    # -- responses of a node ---------------------------------------------------------------

    def freeze_metadata(self, node_id: int) -> None:
        """Keep the Metadata responses of a node as they are now: they become stale."""
        with self.lock:
            self._frozen_views[node_id] = metadata_view(self.nodes, self.topics)

    def thaw_metadata(self, node_id: int | None = None) -> None:
        """Let a node, or all, describe the current state again."""
        with self.lock:
            if node_id is None:
                self._frozen_views.clear()
            else:
                self._frozen_views.pop(node_id, None)

    def metadata_view(self, node_id: int) -> MetadataView:
        """Return the state that a node's Metadata responses describe."""
        return self._frozen_views.get(node_id) or metadata_view(self.nodes, self.topics)

    def set_versions(
        self, api: int, versions: VersionRange | None, *, node_id: int | None = None
    ) -> None:
        """Change the range offered for an API, on one node or all; None withdraws the API."""
        with self.lock:
            self._version_overrides[node_id, api] = versions

    def api_versions(self, node_id: int) -> Mapping[int, VersionRange]:
        """Return the version ranges a node offers."""
        offered: dict[int, VersionRange | None] = dict(RELEASES[self.release])
        for (node, api), versions in self._version_overrides.items():
            if node in {None, node_id}:
                offered[api] = versions
        return {api: versions for api, versions in offered.items() if versions is not None}

    def sessions(self, node_id: int) -> FetchSessionCache:
        """Return the fetch sessions of a node."""
        return self._sessions[node_id]

    def topic_name(self, topic_id: bytes) -> str:
        """Return the name of a topic id, empty if there is none."""
        names = (topic.name for topic in self.topics.values() if topic.topic_id == topic_id)
        return next(names, "")

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic, zero if there is none."""
        return topic_id_of(self.topics, name)

    def preferred_replica(
        self, partition: FakePartition, node_id: int, rack_id: str, fetch_offset: int
    ) -> int:
        """Return the follower a leader sends a client in ``rack_id`` to, -1 for none."""
        if not self.has_rack_selector or not rack_id or node_id != partition.leader:
            return NO_LEADER
        if self.nodes[node_id].rack == rack_id:
            return NO_LEADER
        candidates = []
        for replica in partition.isr:
            start, end = partition.offsets(replica)
            node = self.nodes[replica]
            if node.rack == rack_id and node.is_running and start <= fetch_offset <= end:
                candidates.append((end, -replica))
        return -max(candidates)[1] if candidates else NO_LEADER

    # -- helpers ---------------------------------------------------------------------------

    def _new_topic_id(self) -> bytes:
        return b"topic-id" + self._topics_made.to_bytes(8, "big")

    @staticmethod
    def _new_sessions(node_id: int) -> FetchSessionCache:
        return FetchSessionCache(first_id=node_id * 1_000_000 + 1)

    def _add_partition(
        self,
        topic: FakeTopic,
        number: int,
        leader: int | None,
        replication: int | None,
        leader_epoch: int,
    ) -> None:
        ids = list(self.nodes)
        if leader is None:
            leader = ids[number % len(ids)]
        start = ids.index(leader)
        replicas = (ids[start:] + ids[:start])[: replication or len(ids)]
        partition = FakePartition(number, leader, leader_epoch, replicas, list(replicas))
        partition.log.start_epoch(leader_epoch, 0)
        topic.partitions[number] = partition

    def _partitions(self) -> list[tuple[str, int, FakePartition]]:
        return [
            (topic.name, number, partition)
            for topic in self.topics.values()
            for number, partition in topic.partitions.items()
        ]

    def _running_ids(self) -> list[int]:
        return [node.node_id for node in self.nodes.values() if node.is_running]

    def _view_before_stop(self, node: FakeNode) -> MetadataView:
        node.is_running = True
        view = metadata_view(self.nodes, self.topics)
        node.is_running = False
        return view

    def __repr__(self) -> str:
        return (
            f"<FakeCluster {self.release} {len(self.nodes)} nodes {len(self.topics)} topics "
            f"{len(self.connections)} connections>"
        )
