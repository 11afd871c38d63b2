"""The socket server, asked by a client that knows nothing of kfast."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kfast.protocol.messages.metadata import MetadataRequest
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.fault_actions import Drop, PartitionError, Split
from tests.fake_broker.releases import RELEASE_NAMES, Api
from tests.fake_broker.server import FakeBrokerServer
from tests.reference.batches import Record
from tests.reference.compression import Codec
from tests.unit.fake_broker.clients import kafka
from tests.unit.fake_broker.wire import fetch_request, frame

PARTITIONS = 4
RECORDS = 60


def make_cluster(release: str = "4.3") -> FakeCluster:
    cluster = FakeCluster(3, release=release)
    cluster.create_topic("t", PARTITIONS)
    for partition in range(PARTITIONS):
        values = [
            Record(b"k%d" % n, b"v%d-%d" % (partition, n), (("h", b"x"),), 1000 + n)
            for n in range(RECORDS)
        ]
        codec = (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD)[partition]
        cluster.append("t", partition, values, codec=codec, batch_records=7)
    return cluster


def expected() -> set[tuple[int, int, bytes, bytes, int]]:
    return {
        (partition, n, b"k%d" % n, b"v%d-%d" % (partition, n), 1000 + n)
        for partition in range(PARTITIONS)
        for n in range(RECORDS)
    }


@pytest.fixture
def cluster() -> FakeCluster:
    return make_cluster()


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[FakeBrokerServer]:
    with FakeBrokerServer(cluster) as running:
        yield running


def read_with_kafka_python(bootstrap_servers: str, **configs: Any) -> list[Any]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
        retry_backoff_ms=20,
        **configs,
    )
    try:
        consumer.assign([kafka.TopicPartition("t", number) for number in range(PARTITIONS)])
        found: list[Any] = []
        for record in consumer:
            found.append(record)
            if len(found) == PARTITIONS * RECORDS:
                break
        return found
    finally:
        consumer.close()


def as_tuples(records: list[Any]) -> set[tuple[int, int, bytes, bytes, int]]:
    return {
        (record.partition, record.offset, record.key, record.value, record.timestamp)
        for record in records
    }


@pytest.mark.parametrize("release", RELEASE_NAMES)
def test_kafka_python_reads_every_release(release: str) -> None:
    cluster = make_cluster(release)
    with FakeBrokerServer(cluster) as server:
        records = read_with_kafka_python(server.bootstrap_servers)
    assert as_tuples(records) == expected()
    assert records[0].headers == [("h", b"x")]
    refused = [entry for entry in cluster.requests if entry.message is None]
    assert {entry.api_key for entry in refused} <= {Api.API_VERSIONS}


def test_kafka_python_gets_over_faults(cluster: FakeCluster, server: FakeBrokerServer) -> None:
    cluster.faults.add(Drop(50), api=Api.FETCH, nth=2)
    cluster.faults.add(PartitionError(6), api=Api.FETCH, nth=4)
    cluster.faults.add(Split((1, 2, 3, 500)), api=Api.FETCH, times=None)
    records = read_with_kafka_python(server.bootstrap_servers, max_partition_fetch_bytes=400)
    assert as_tuples(records) == expected()
    assert len(records) == PARTITIONS * RECORDS


def test_read_committed_of_kafka_python(cluster: FakeCluster, server: FakeBrokerServer) -> None:
    cluster.create_topic("tx")
    with cluster.writing("tx", 0) as writer:
        writer.append([b"aborted"], producer_id=1, is_transactional=True)
        writer.append([b"kept"], producer_id=2, is_transactional=True)
        writer.end_transaction(1, committed=False)
        writer.end_transaction(2, committed=True)
        writer.append([b"plain"])
        writer.append([b"open"], producer_id=3, is_transactional=True)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server.bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=20_000,
    )
    partition = kafka.TopicPartition("tx", 0)
    try:
        consumer.assign([partition])
        assert [next(consumer).value for _ in range(2)] == [b"kept", b"plain"]
        assert consumer.end_offsets([partition]) == {partition: 5}
        assert consumer.beginning_offsets([partition]) == {partition: 0}
    finally:
        consumer.close()


# -- sockets -------------------------------------------------------------------------------


class RawClient:
    """A blocking socket that speaks frames."""

    def __init__(self, server: FakeBrokerServer, node_id: int = 1) -> None:
        node = server.cluster.nodes[node_id]
        self.sock = socket.create_connection((node.host, node.port), timeout=10)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


def test_a_waiting_fetch_is_answered_when_records_arrive(
    cluster: FakeCluster, server: FakeBrokerServer
) -> None:
    request = fetch_request(cluster, 17, {("t", 0): RECORDS}, max_wait_ms=60_000)
    with RawClient(server) as client:
        client.sock.sendall(frame(request, 17))
        assert cluster.requests.wait_for(lambda log: len(log.select(Api.FETCH)) == 1)
        cluster.append("t", 0, [b"new"])
        assert b"new" in client.receive_frame()


def test_drops_and_resets_reach_the_client(cluster: FakeCluster, server: FakeBrokerServer) -> None:
    cluster.faults.add(Drop(6))
    cluster.faults.add(Drop(0, is_reset=True), nth=2)
    with RawClient(server) as client:
        client.sock.sendall(frame(MetadataRequest([]), 13))
        with pytest.raises(EOFError):
            client.receive_frame()
    with RawClient(server) as client:
        client.sock.sendall(frame(MetadataRequest([]), 13))
        with pytest.raises(ConnectionResetError):
            client.receive_frame()


def test_a_stopped_node_refuses_and_comes_back_on_its_port(
    cluster: FakeCluster, server: FakeBrokerServer
) -> None:
    port = cluster.nodes[1].port
    with RawClient(server) as client:
        client.sock.sendall(frame(MetadataRequest([]), 13))
        client.receive_frame()
        cluster.stop_node(1)
        with pytest.raises((EOFError, ConnectionResetError)):
            client.receive_frame()
    with pytest.raises(ConnectionRefusedError):
        RawClient(server)
    cluster.start_node(1)
    assert cluster.nodes[1].port == port
    with RawClient(server) as client:
        client.sock.sendall(frame(MetadataRequest([]), 13))
        assert client.receive_frame()


def test_large_answers_to_a_slow_reader(cluster: FakeCluster, server: FakeBrokerServer) -> None:
    cluster.create_topic("big")
    cluster.append("big", 0, [b"x" * 1_000_000] * 20, batch_records=1)
    request = fetch_request(
        cluster, 17, {("big", 0): 0}, partition_max_bytes=30_000_000, max_bytes=30_000_000
    )
    node_id = cluster.partition("big", 0).leader
    with RawClient(server, node_id) as slow, RawClient(server, node_id) as other:
        slow.sock.sendall(frame(request, 17))
        other.sock.sendall(frame(MetadataRequest([]), 13))
        assert other.receive_frame()
        assert len(slow.receive_frame()) > 20_000_000


def test_a_bug_in_the_fake_is_raised_by_stop() -> None:
    cluster = make_cluster()

    def explode(*_: object) -> bool:
        raise ZeroDivisionError("a bug")

    cluster.faults.add(Drop(), where=explode)
    server = FakeBrokerServer(cluster).start()
    with RawClient(server) as client:
        client.sock.sendall(frame(MetadataRequest([]), 13))
        with pytest.raises((EOFError, ConnectionResetError)):
            client.receive_frame()
    with pytest.raises(ZeroDivisionError):
        server.stop()
