"""BrokerConnection: handshake first, requests in order, streams that must not be trusted."""

from __future__ import annotations

import pytest

from kfast.client.broker_connection import (
    FIRST_CORRELATION_ID,
    LAST_CORRELATION_ID,
    BrokerConnection,
    ConnectionSettings,
)
from kfast.client.cluster import Node
from kfast.client.diagnosis import FailureKind, failure_kind
from kfast.client.request import Channel, CompletedRequest, UnsentRequest
from kfast.errors import (
    DisconnectError,
    IllegalStateError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
)
from kfast.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kfast.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kfast.testing.headers import RequestHeader, decode_request_header
from tests.unit.client.frames import frame, metadata, partition, topic
from tests.unit.network.scripted import Outcomes, current_ranges

NOW = 1_000


class Peer:
    """A connection and the broker's view of it."""

    def __init__(
        self,
        node_id: int = 1,
        *,
        release: tuple[int, ...] | None = None,
        handshake_max_version: int | None = None,
    ) -> None:
        self.connection = BrokerConnection(
            Node(node_id, "b1", 9092),
            Channel.DATA,
            ConnectionSettings("me", "0.1.0", 1 << 20, release),
            handshake_max_version,
        )
        self.handler = Outcomes()

    def read(self) -> list[RequestHeader]:
        """Take everything written so far."""
        headers = []
        while (data := self.connection.data_to_send()) is not None:
            headers.append(decode_request_header(data[4:]))
            self.connection.data_sent(len(data), NOW)
        return headers

    def write(self, data: bytes, step: int = 1 << 20) -> list[CompletedRequest]:
        """Give bytes to the connection, at most ``step`` at a time."""
        done = []
        while data:
            view = self.connection.next_view()
            count = min(len(view), len(data), step)
            view[:count] = data[:count]
            data = data[count:]
            del view
            completed = self.connection.data_received(count, NOW)
            if completed is not None:
                done.append(completed)
        return done

    def shake_hands(self, ranges: dict[int, tuple[int, int]] | None = None) -> None:
        self.connection.start(NOW)
        (header,) = self.read()
        answer = ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in (ranges or current_ranges()).items()
            ]
        )
        assert self.write(frame(answer, header.api_version, header.correlation_id)) == []
        assert self.connection.is_ready

    def ask(self, **settings: object) -> UnsentRequest:
        request = UnsentRequest(
            MetadataRequest(topics=[]),
            self.handler,
            node_id=1,
            **settings,  # type: ignore[arg-type]
        )
        self.connection.send(request, NOW, 30_000)
        return request


def answer_to(header: RequestHeader, message: MetadataResponse | None = None) -> bytes:
    return frame(message or metadata(), header.api_version, header.correlation_id)


@pytest.fixture
def peer() -> Peer:
    made = Peer()
    made.shake_hands()
    return made


# --- the handshake --------------------------------------------------------------------------------


def test_api_versions_come_first() -> None:
    """N-01: nothing else can be sent before; the header carries the client id (O-07)."""
    peer = Peer()
    peer.connection.start(NOW)
    with pytest.raises(IllegalStateError):
        peer.ask()
    (header,) = peer.read()
    assert (header.api_key, header.api_version, header.client_id) == (18, 4, "me")
    assert not peer.connection.is_ready
    assert len(peer.connection.in_flight) == 0


def test_the_first_request_makes_an_http_server_answer() -> None:
    """E-04: the bytes hold an empty line, so a server waiting for the end of a request reacts."""
    peer = Peer()
    peer.connection.start(NOW)
    data = peer.connection.data_to_send()
    assert data is not None
    assert b"\r\n\r\n" in bytes(data)
    assert FIRST_CORRELATION_ID == 0x0D0A0D0A


def test_a_refusal_is_followed_by_a_lower_version() -> None:
    """N-02: on the same connection."""
    peer = Peer()
    peer.connection.start(NOW)
    (header,) = peer.read()
    assert peer.write(bytes.fromhex("0000000a") + _refusal(header.correlation_id)) == []
    (second,) = peer.read()
    assert (second.api_key, second.api_version) == (18, 0)
    assert second.correlation_id != header.correlation_id


def _refusal(correlation_id: int) -> bytes:
    return correlation_id.to_bytes(4, "big") + bytes.fromhex("002300000000")


def test_a_release_as_ceiling() -> None:
    peer = Peer(release=(2, 8))
    peer.connection.start(NOW)
    (header,) = peer.read()
    assert header.api_version == 3
    peer = Peer(release=(2, 8))
    peer.shake_hands()
    peer.ask()
    (header,) = peer.read()
    assert header.api_version == 11


# --- requests and answers -------------------------------------------------------------------------


def test_answers_are_matched_in_order(peer: Peer) -> None:
    """N-04: first in, first out."""
    first, second = peer.ask(), peer.ask()
    headers = peer.read()
    (done,) = peer.write(answer_to(headers[0], metadata(topic("t", partition(0)))))
    assert done.request is first
    assert done.response is not None
    assert isinstance(done.response.message, MetadataResponse)
    assert done.response.message.topics[0].name == "t"
    assert done.response.api_version == 13
    assert done.response.node_id == 1
    (done,) = peer.write(answer_to(headers[1]))
    assert done.request is second
    assert len(peer.connection.in_flight) == 0


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 1000])
def test_any_split_gives_the_same_answers(step: int) -> None:
    """N-06: byte by byte or all at once."""
    peer = Peer()
    peer.shake_hands()
    requests = [peer.ask() for _ in range(3)]
    data = b"".join(answer_to(header) for header in peer.read())
    assert [done.request for done in peer.write(data, step)] == requests


def test_writes_may_be_cut_anywhere(peer: Peer) -> None:
    """N-06: what is left comes next."""
    peer.ask()
    peer.ask()
    written = bytearray()
    while (data := peer.connection.data_to_send()) is not None:
        written += data[:3]
        peer.connection.data_sent(min(3, len(data)), NOW)
    size = int.from_bytes(written[:4], "big")
    assert decode_request_header(written[4 : 4 + size]).api_key == 3
    assert decode_request_header(written[8 + size :]).api_key == 3


def test_versions_can_be_narrowed(peer: Peer) -> None:
    """N-01: a request says which versions it can be sent in."""
    peer.ask(max_version=11)
    (header,) = peer.read()
    assert header.api_version == 11
    with pytest.raises(UnsupportedVersionError):
        peer.ask(min_version=14)
    assert len(peer.connection.in_flight) == 1


def test_correlation_ids_wrap(peer: Peer) -> None:
    peer.connection._next_correlation_id = LAST_CORRELATION_ID
    peer.ask()
    peer.ask()
    headers = peer.read()
    assert [h.correlation_id for h in headers] == [LAST_CORRELATION_ID, 0]
    assert len(peer.write(b"".join(map(answer_to, headers)))) == 2


def test_a_wrong_correlation_id_ends_the_connection(peer: Peer) -> None:
    """N-04: everything in flight fails as a retriable disconnect."""
    requests = [peer.ask(), peer.ask()]
    headers = peer.read()
    with pytest.raises(ProtocolError) as caught:
        peer.write(answer_to(headers[1]))
    failed = peer.connection.abandon(caught.value)
    assert [done.request for done in failed] == requests
    assert all(isinstance(done.error, DisconnectError) for done in failed)
    assert peer.connection.data_to_send() is None


def test_an_answer_to_nothing_ends_the_connection(peer: Peer) -> None:
    """N-04: also with nothing in flight."""
    with pytest.raises(ProtocolError):
        peer.write(frame(metadata(), 13, 5))


def test_a_malformed_answer_fails_its_request_for_good(peer: Peer) -> None:
    """D-22: the one that was answered wrongly is not retried, the others may be."""
    culprit, other = peer.ask(), peer.ask()
    headers = peer.read()
    whole = answer_to(headers[0])
    broken = (len(whole) - 4 - 9).to_bytes(4, "big") + whole[4:-9]
    with pytest.raises(ProtocolError) as caught:
        peer.write(broken)
    errors = {d.request: d.error for d in peer.connection.abandon(caught.value)}
    assert isinstance(errors[culprit], ProtocolError)
    assert isinstance(errors[other], DisconnectError)


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x00\x10\x00\x01", b"\x7f\xff\xff\xff"])
def test_impossible_sizes_end_the_connection(peer: Peer, size: bytes) -> None:
    """D-21: negative, or more than receive_message_max_bytes, before any allocation."""
    peer.ask()
    with pytest.raises(ProtocolError):
        peer.write(size)


def test_an_answer_above_the_receive_cap_fails_its_request_for_good(peer: Peer) -> None:
    """B-04: asking again would bring the same; the size needed is told."""
    culprit, other = peer.ask(), peer.ask()
    with pytest.raises(ProtocolError) as caught:
        peer.write(b"\x7f\xff\xff\xff")
    errors = {d.request: d.error for d in peer.connection.abandon(caught.value)}
    assert getattr(errors[culprit], "size_needed", None) == 0x7FFFFFFF
    assert isinstance(errors[other], DisconnectError)


def test_nothing_is_written_after_the_end(peer: Peer) -> None:
    """N-05: not even the rest of a request that was cut short."""
    peer.ask()
    data = peer.connection.data_to_send()
    assert data is not None
    peer.connection.data_sent(5, NOW)
    peer.connection.abandon(DisconnectError("gone"))
    assert peer.connection.data_to_send() is None


def test_a_request_timeout_names_the_request(peer: Peer) -> None:
    """N-05: a retriable disconnect."""
    peer.ask()
    error = peer.connection.request_timed_out(NOW + 30_000)
    assert isinstance(error, DisconnectError)
    assert "broker 1 (b1:9092) did not answer Metadata within 30.0 s" in str(error)


@pytest.mark.parametrize(("version", "waited"), [(7, 250), (13, 250)])
def test_throttle_times_are_reported_once(peer: Peer, version: int, waited: int) -> None:
    """N-12: for the versions from which the client has to wait."""
    peer.ask(max_version=version)
    message = metadata()
    message.throttle_time_ms = 250
    (header,) = peer.read()
    peer.write(answer_to(header, message))
    assert peer.connection.take_throttle_ms() == waited
    assert peer.connection.take_throttle_ms() == 0


# --- servers that are not Kafka -------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    ("greeting", "kind", "found"),
    [
        (b"HTTP/1.0 400 Bad Request\r\nServer: x\r\n", FailureKind.HTTP, "HTTP/1.0 400"),
        (b"<!DOCTYPE HTML>\n<html>", FailureKind.HTTP, "<!DOCTYPE HTML>"),
        (b"\x15\x03\x01\x00\x02\x02\x46", FailureKind.TLS, None),
        (b"SSH-2.0-OpenSSH_9.6\r\n", FailureKind.NOT_KAFKA, "SSH-2.0-OpenSSH_9.6"),
        (b"-ERR unknown command\r\n", FailureKind.NOT_KAFKA, "-ERR"),
        (b"\xff\xfe\x00\x01", FailureKind.NOT_KAFKA, "\\xff\\xfe"),
    ],
)
def test_foreign_servers_are_named(
    greeting: bytes, kind: FailureKind, found: str | None, step: int
) -> None:
    """E-04: told by the first bytes, with what they said."""
    peer = Peer(node_id=-1)
    peer.connection.start(NOW)
    peer.read()
    with pytest.raises(KafkaError) as caught:
        peer.write(greeting, step)
    error = caught.value
    assert failure_kind(error) is kind
    assert "b1:9092" in error.message
    assert error.hint
    assert (found or "") in (error.found or "")


def test_a_greeting_without_end_is_used_when_the_server_closes() -> None:
    peer = Peer(node_id=-1)
    peer.connection.start(NOW)
    peer.write(b"HTTP/1.1 400")
    for error in (peer.connection.closed_by_peer("eof"), peer.connection.setup_timed_out(10_000)):
        assert failure_kind(error) is FailureKind.HTTP
        assert error.found == '"HTTP/1.1 400"'


def test_an_endless_greeting_is_cut_off() -> None:
    peer = Peer(node_id=-1)
    peer.connection.start(NOW)
    with pytest.raises(KafkaError) as caught:
        peer.write(b"HTTP" + b"x" * 10_000)
    assert len(caught.value.found or "") < 100


def test_what_the_end_of_the_stream_means(peer: Peer) -> None:
    new = Peer(node_id=-1)
    new.connection.start(NOW)
    assert failure_kind(new.connection.closed_by_peer("eof")) is FailureKind.CLOSED_EARLY
    assert failure_kind(new.connection.setup_timed_out(9_000)) is FailureKind.NO_ANSWER
    lost = peer.connection.closed_by_peer("reset")
    assert isinstance(lost, DisconnectError)
    assert lost.cause == "reset"


def test_a_look_at_what_was_received_is_no_activity(peer: Peer) -> None:
    """N-11: bytes on one connection do not keep the idle ones open."""
    before = peer.connection.last_activity_ms
    assert peer.connection.direct_receiver() is not None
    assert peer.connection.frame_received(NOW + 60_000) is None
    assert peer.connection.last_activity_ms == before
