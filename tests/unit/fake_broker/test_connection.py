"""One connection of the fake broker: bytes in any pieces, one request at a time."""

from __future__ import annotations

import pytest

from kfast.protocol.messages.metadata import MetadataRequest
from tests.fake_broker.cluster import FakeCluster
from tests.unit.fake_broker.wire import fetch_request, frame

METADATA = MetadataRequest([])


def test_requests_may_come_byte_by_byte() -> None:
    cluster = FakeCluster()
    connection = cluster.connect(1)
    for byte in frame(METADATA, 13):
        assert connection.next_chunk(0) is None
        connection.receive(bytes([byte]), 0)
    assert connection.next_chunk(0) is not None
    assert len(cluster.requests) == 1


def test_pipelined_requests_are_answered_in_order_behind_a_long_poll() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    connection = cluster.connect(1)
    fetch = fetch_request(cluster, 17, {("t", 0): 0})
    connection.receive(frame(fetch, 17, 1) + frame(METADATA, 13, 2), 0)
    assert connection.next_chunk(499) is None
    answers = [connection.next_chunk(500), connection.next_chunk(500)]
    assert [answer[4:8] for answer in answers if answer] == [b"\0\0\0\1", b"\0\0\0\2"]


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_absurd_frame_sizes_close_the_connection(size: bytes) -> None:
    connection = FakeCluster().connect(1)
    connection.receive(size, 0)
    assert connection.is_closed


@pytest.mark.parametrize(
    "body", [b"", b"\0\3", b"\0\3\0\x0d\0\0\0\1\0\x05kf", b"\0\3\0\x0d\0\0\0\1\xff\xff\0"]
)
def test_malformed_requests_close_the_connection(body: bytes) -> None:
    connection = FakeCluster().connect(1)
    connection.receive(len(body).to_bytes(4, "big") + body, 0)
    assert connection.is_closed
    connection.receive(frame(METADATA, 13), 0)
    assert connection.drain(0) == b""


def test_closed_connections_are_forgotten() -> None:
    cluster = FakeCluster()
    first, second = cluster.connect(1), cluster.connect(1)
    assert set(cluster.connections) == {first.connection_id, second.connection_id}
    first.client_closed()
    cluster.close_connections(1)
    assert cluster.connections == {}
    assert second.is_closed
    assert cluster.connections_made == 2


def test_changes_call_the_listeners() -> None:
    cluster = FakeCluster()
    calls: list[int] = []

    def listener() -> None:
        calls.append(1)

    cluster.add_listener(listener)
    cluster.create_topic("t")
    cluster.append("t", 0, [b"v"])
    cluster.remove_listener(listener)
    cluster.append("t", 0, [b"v"])
    assert len(calls) == 2
