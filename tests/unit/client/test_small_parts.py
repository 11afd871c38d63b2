"""NodeAddresses, InFlightRequests and UnsentRequests."""

from __future__ import annotations

from kfast.client.connection_states import ConnectionKey
from kfast.client.in_flight import InFlightRequest, InFlightRequests
from kfast.client.node_addresses import Address, NodeAddresses
from kfast.client.request import Channel, UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.client.unsent_requests import UnsentRequests
from kfast.protocol.messages import response_reader
from kfast.protocol.messages.metadata import MetadataRequest
from tests.unit.network.scripted import Outcomes

A, B, C = (Address(2, (f"10.0.0.{n}", 9092)) for n in (1, 2, 3))


def request(
    node_id: int | None = 1, *, channel: Channel = Channel.DATA, timeout_ms: int | None = None
) -> UnsentRequest:
    made = UnsentRequest(
        MetadataRequest(), Outcomes(), node_id=node_id, channel=channel, timeout_ms=timeout_ms
    )
    made.created_ms = 1_000
    return made


def test_addresses_are_tried_in_turn_and_looked_up_again() -> None:
    """N-10: every address, then the name again."""
    addresses = NodeAddresses()
    assert addresses.needs_resolving
    addresses.resolved([A, B, A])
    assert addresses.ips == ["10.0.0.1", "10.0.0.2"]
    assert addresses.current == A
    assert addresses.failed()
    assert addresses.current == B
    assert not addresses.failed()
    assert addresses.needs_resolving


def test_a_lost_address_comes_last_once() -> None:
    """N-10: the server behind it is the one most likely gone."""
    addresses = NodeAddresses()
    addresses.resolved([A, B, C])
    addresses.lost()
    assert addresses.needs_resolving
    addresses.resolved([A, B, C])
    assert addresses.ips == ["10.0.0.2", "10.0.0.3", "10.0.0.1"]
    addresses.forget()
    addresses.resolved([A, B])
    assert addresses.current == A


def in_flight(number: int, deadline_ms: int) -> InFlightRequest:
    read = response_reader(MetadataRequest.API_KEY)
    return InFlightRequest(request(), 9, number, 1_000, deadline_ms, True, read)


def test_in_flight_requests_are_a_queue() -> None:
    """N-04: answers come in the order of requests."""
    queue = InFlightRequests()
    assert queue.oldest() is None
    assert queue.next_deadline_ms() == NEVER_MS
    first, second = in_flight(1, 9_000), in_flight(2, 5_000)
    queue.append(first)
    queue.append(second)
    assert len(queue) == 2
    assert queue.oldest() is first
    assert queue.next_deadline_ms() == 5_000, "a long request does not hide a short one"
    assert queue.most_overdue() is second
    queue.postpone(100)
    assert queue.next_deadline_ms() == 5_100
    assert queue.popleft() is first
    assert queue.take_all() == [second]
    assert len(queue) == 0


def test_unsent_requests_wait_per_connection() -> None:
    queue = UnsentRequests(30_000)
    data, group, anyone = request(), request(channel=Channel.COORDINATOR), request(None)
    for each in (data, group, anyone):
        queue.put(each)
    assert len(queue) == 3
    assert queue.any_node_count == 1
    assert queue.pop(ConnectionKey(1, Channel.DATA)) is data
    assert queue.pop(ConnectionKey(1, Channel.DATA)) is None
    assert queue.waiting() == [ConnectionKey(1, Channel.COORDINATOR)]
    assert queue.count(ConnectionKey(1, Channel.COORDINATOR)) == 1
    assert queue.take(ConnectionKey(1, Channel.COORDINATOR)) == [group]
    assert queue.take_all() == [anyone]
    assert len(queue) == 0


def test_unsent_requests_expire() -> None:
    """N-15: after request_timeout_ms, or their own, wherever they wait."""
    queue = UnsentRequests(30_000)
    short, long, anyone = request(timeout_ms=500), request(), request(None, timeout_ms=600)
    for each in (short, long, anyone):
        queue.put(each)
    assert queue.next_deadline_ms() == 1_500
    assert queue.expire(1_499) == []
    assert queue.expire(1_500) == [short]
    assert queue.expire(1_600) == [anyone]
    assert queue.next_deadline_ms() == 31_000
    assert queue.expire(31_000) == [long]
    assert queue.waiting() == []
