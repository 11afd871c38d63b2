"""NetworkClient: requests on their way, and every way in which they can end."""

from __future__ import annotations

import logging

import pytest

from kfast._native.buffers import copy_of
from kfast.client.connection_states import ConnectionKey
from kfast.client.request import Channel, ClientResponse, UnsentRequest
from kfast.errors import (
    DisconnectError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    UnsupportedVersionError,
)
from kfast.network.transport import EVENT_READ, EVENT_WRITE
from kfast.protocol.messages.metadata import MetadataRequest
from tests.unit.client.frames import metadata
from tests.unit.network.bench_client import Bench
from tests.unit.network.scripted import Outcomes, ScriptedServer, metadata_answer

ONE = {1: ("b1", 9092)}
TWO = {1: ("b1", 9092), 2: ("b2", 9092)}


def ready_bench(**settings: object) -> tuple[Bench, ScriptedServer]:
    bench = Bench(ONE, **settings)  # type: ignore[arg-type]
    server = bench.network.listen("b1")
    bench.make_ready()
    return bench, server


def test_requests_are_answered_in_order() -> None:
    """N-04, N-14: send, poll and what is in flight."""
    bench, server = ready_bench()
    requests = [bench.ask() for _ in range(3)]
    bench.poll()
    assert bench.in_flight() == 3
    assert bench.in_flight(1) == 3
    assert bench.in_flight(2) == 0
    bench.clock.advance(40)
    for received in server.requests(3):
        received.reply(metadata())
    bench.poll()
    assert [request for request, _ in bench.handler.responses] == requests
    assert {r.latency_ms for _, r in bench.handler.responses} == {40}
    assert {r.node_id for _, r in bench.handler.responses} == {1}
    assert bench.in_flight() == 0


def test_a_request_waits_for_its_connection() -> None:
    """N-14: send connects by itself, and the request goes out as soon as that is done."""
    bench = Bench(ONE)
    server = bench.network.listen("b1")
    server.answers[3] = metadata_answer(ONE)
    bench.ask()
    bench.poll()
    assert server.requests(3), "written in the poll that ended the handshake"
    bench.poll()
    assert bench.handler.count == 1


def test_a_full_connection_takes_no_more() -> None:
    """N-14: max_in_flight_requests_per_connection; the rest waits in order."""
    bench, server = ready_bench(max_in_flight_requests_per_connection=2)
    requests = [bench.ask() for _ in range(3)]
    assert not bench.client.ready(1, bench.clock.now), "what waits counts too"
    bench.poll()
    assert len(server.requests(3)) == 2
    server.requests(3)[0].reply(metadata())
    bench.poll()
    assert len(server.requests(3)) == 3
    for received in server.requests(3)[1:]:
        received.reply(metadata())
    bench.poll()
    assert [request for request, _ in bench.handler.responses] == requests
    assert bench.client.ready(1, bench.clock.now)


def test_any_split_of_reads_and_writes() -> None:
    """N-06: the socket takes and gives a few bytes at a time."""
    bench, server = ready_bench()
    transport = server.transports[0]
    transport.max_recv, transport.max_send = 3, 2
    server.answers[3] = metadata_answer(ONE)
    requests = [bench.ask() for _ in range(3)]
    for _ in range(300):
        bench.poll()
    assert [request for request, _ in bench.handler.responses] == requests


def test_what_cannot_be_written_waits_for_the_socket() -> None:
    bench, server = ready_bench()
    transport = server.transports[0]
    transport.max_send = 0
    bench.ask()
    bench.poll()
    assert bench.network.interest(transport) & EVENT_WRITE
    transport.max_send = 1 << 20
    bench.poll()
    assert not bench.network.interest(transport) & EVENT_WRITE
    assert len(server.requests(3)) == 1


def test_parts_of_a_frame_do_not_end_a_poll() -> None:
    """A large answer costs one poll, not one per socket buffer."""
    bench, server = ready_bench()
    bench.ask()
    bench.poll()
    big = metadata(brokers={n: (f"broker-{n}", 9092) for n in range(2_000)})
    transport = server.transports[0]
    transport.max_recv = 4_000
    server.requests(3)[0].reply(big)
    bench.poll(1_000)
    assert bench.handler.count == 1


# --- ends -----------------------------------------------------------------------------------------


def test_a_request_too_old_ends_its_connection() -> None:
    """N-05: everything in flight fails as a retriable disconnect, and metadata is refreshed."""
    bench, server = ready_bench()
    bench.ask()
    bench.poll()
    bench.clock.advance(10_000)
    bench.ask()
    start = bench.clock.now
    bench.poll()
    bench.poll(1_000_000)
    assert bench.clock.now - start == 20_000
    assert server.open_transports() == []
    assert len(bench.handler.errors) == 2
    for error in bench.handler.errors:
        assert isinstance(error, DisconnectError)
        assert error.retriable
        assert "Metadata" in error.message
    assert bench.metadata.is_update_needed
    assert bench.client.connection_delay(1, bench.clock.now) == 50


def test_requests_have_time_of_their_own() -> None:
    """N-05: timeout_ms instead of request_timeout_ms."""
    bench, _ = ready_bench()
    bench.ask(timeout_ms=300_000)
    bench.poll()
    start = bench.clock.now
    bench.poll(1_000_000)
    assert bench.clock.now - start == 300_000


def test_nothing_follows_a_request_cut_short() -> None:
    """N-05: the half-written connection is closed, and only a new one is written to."""
    bench, server = ready_bench()
    transport = server.transports[0]
    transport.send_budget = 5
    bench.ask()
    bench.poll()
    cut = len(transport.sent)
    bench.poll(1_000_000)
    assert bench.handler.count == 1
    transport.send_budget = 1 << 20
    bench.ask()
    for _ in range(5):
        bench.poll(50)
    assert len(transport.sent) == cut
    assert len(server.requests(3)) == 1
    assert server.requests(3)[0].transport is not transport


def test_a_dripping_broker_is_left() -> None:
    """N-17: one byte per second does not keep a request alive."""
    bench, server = ready_bench()
    bench.ask()
    bench.poll()
    start = bench.clock.now
    transport = server.transports[0]
    transport.deliver((1_000).to_bytes(4, "big"))
    while not bench.handler.count:
        transport.deliver(b"\0")
        bench.poll(1_000)
        bench.clock.advance(1_000)
    assert 30_000 <= bench.clock.now - start <= 32_000


def test_a_wrong_correlation_id_closes_the_connection() -> None:
    """N-04: and fails what is in flight."""
    bench, server = ready_bench()
    bench.ask()
    bench.ask()
    bench.poll()
    server.requests(3)[1].reply(metadata())
    bench.poll()
    assert server.open_transports() == []
    assert [type(e) for e in bench.handler.errors] == [DisconnectError, DisconnectError]


def test_answers_before_a_disconnect_count() -> None:
    """N-18: what arrived whole is delivered, the rest fails."""
    bench, server = ready_bench()
    first, second = bench.ask(), bench.ask()
    bench.poll()
    server.requests(3)[0].reply(metadata())
    server.transports[0].deliver(b"\0\0\0\x40half an answer")
    server.kill()
    bench.poll()
    assert [request for request, _ in bench.handler.responses] == [first]
    assert [request for request, _ in bench.handler.failures] == [second]


def test_a_malformed_answer_is_a_protocol_error() -> None:
    """D-22: raised to its sender, and the connection is not used again."""
    bench, server = ready_bench()
    bench.ask()
    bench.poll()
    correlation = server.requests(3)[0].header.correlation_id.to_bytes(4, "big")
    server.transports[0].deliver(b"\0\0\0\x08" + correlation + b"\0\xff\xff\xff")
    bench.poll()
    assert [type(e) for e in bench.handler.errors] == [ProtocolError]
    assert server.open_transports() == []


def test_a_version_out_of_reach_fails_only_its_request() -> None:
    """N-01: the connection goes on."""
    bench, server = ready_bench()
    server.answers[3] = metadata_answer(ONE)
    bench.ask(min_version=20, max_version=21)
    bench.ask()
    bench.poll()
    bench.poll()
    assert [type(e) for e in bench.handler.errors] == [UnsupportedVersionError]
    assert len(bench.handler.responses) == 1


def test_unsent_requests_expire() -> None:
    """N-15: a node that never becomes reachable holds nothing for ever."""
    bench = Bench(ONE)
    bench.network.listen("b1", is_blackhole=True)
    bench.ask(timeout_ms=4_000)
    bench.ask(None, timeout_ms=5_000)
    start = bench.clock.now
    while bench.handler.count < 1:
        bench.poll(1_000_000)
    assert bench.clock.now - start == 4_000
    while bench.handler.count < 2:
        bench.poll(1_000_000)
    assert bench.clock.now - start == 5_000
    assert [type(e) for e in bench.handler.errors] == [KafkaTimeoutError, KafkaTimeoutError]


def test_a_failed_connection_fails_what_waits_for_it() -> None:
    """N-15: at once, with the reason; requests for any node go to another."""
    bench = Bench(TWO)
    server = bench.network.listen("b2")
    server.answers[3] = metadata_answer(TWO)
    bench.ask(1)
    bench.ask(None)
    for _ in range(5):
        bench.poll(10)
    (error,) = bench.handler.errors
    assert isinstance(error, KafkaConnectionError)
    assert "refused" in error.message
    assert len(bench.handler.responses) == 1


# --- throttling -----------------------------------------------------------------------------------


def test_a_throttled_node_is_left_alone() -> None:
    """N-12: no request before the time is over; other nodes are not concerned."""
    bench = Bench(TWO)
    servers = [bench.network.listen("b1"), bench.network.listen("b2")]
    bench.make_ready(1)
    bench.make_ready(2)
    throttled = metadata(brokers=TWO)
    throttled.throttle_time_ms = 700
    servers[0].answers[3] = lambda received: throttled
    bench.ask(1)
    bench.poll()
    bench.poll()
    assert bench.handler.count == 1
    now = bench.clock.now
    assert not bench.client.ready(1, now)
    assert bench.client.ready(2, now)
    assert bench.client.connection_delay(1, now) == 700
    assert bench.client.least_loaded_node(now) == 2
    bench.ask(1)
    bench.poll(1_000_000)
    assert bench.clock.now - now == 700
    assert len(servers[0].requests(3)) == 2


def test_throttle_by_hand_is_clamped() -> None:
    """N-12: both channels of a node, for a minute at most."""
    bench, _ = ready_bench()
    bench.make_ready(1, Channel.COORDINATOR)
    for channel in Channel:
        key, now_ms = ConnectionKey(1, channel), bench.clock.now
        bench.client._states.throttle(key, now_ms + 2**31 - 1, now_ms)
    assert bench.client.connection_delay(1, bench.clock.now) == 60_000
    assert bench.client.connection_delay(1, bench.clock.now, Channel.COORDINATOR) == 60_000


# --- back-pressure --------------------------------------------------------------------------------


class Gate:
    """A receive gate to open and close by hand."""

    def __init__(self) -> None:
        self.is_open = False
        self.asked: list[int] = []

    def __call__(self, size: int) -> bool:
        self.asked.append(size)
        return self.is_open


BIG = {n: (f"broker-number-{n:050}", 9092) for n in range(2_000)}


def test_a_large_answer_waits_for_memory() -> None:
    """B-06: unread while the gate is shut, others go on, read as soon as there is room."""
    gate = Gate()
    bench = Bench(TWO, receive_gate=gate)
    servers = [bench.network.listen("b1"), bench.network.listen("b2")]
    bench.make_ready(1)
    bench.make_ready(2)
    servers[1].answers[3] = metadata_answer(TWO)
    big = bench.ask(1)
    bench.poll()
    servers[0].requests(3)[0].reply(metadata(brokers=BIG))
    bench.poll()
    assert gate.asked
    assert min(gate.asked) >= 65_536
    transport = servers[0].transports[0]
    assert bench.network.interest(transport) == 0, "an unread socket must not wake the selector"
    bench.ask(2)
    bench.poll()
    bench.poll()
    assert len(bench.handler.responses) == 1
    gate.is_open = True
    bench.poll()
    bench.poll()
    assert [request for request, _ in bench.handler.responses][1:] == [big]
    assert bench.in_flight() == 0


def test_time_behind_a_shut_gate_does_not_count() -> None:
    """B-06: request_timeout_ms stands still on that connection, and runs on afterwards."""
    gate = Gate()
    bench = Bench(ONE, receive_gate=gate)
    server = bench.network.listen("b1")
    bench.make_ready()
    bench.ask()
    second = bench.ask()
    bench.poll()
    bench.clock.advance(1_000)
    server.requests(3)[0].reply(metadata(brokers=BIG))
    bench.poll()
    bench.poll(500_000)
    assert bench.handler.count == 0
    gate.is_open = True
    bench.poll()
    bench.poll()
    assert len(bench.handler.responses) == 1
    start = bench.clock.now
    bench.poll(1_000_000)
    assert bench.clock.now - start == 29_000
    assert [request for request, _ in bench.handler.failures] == [second]


def test_small_answers_are_not_asked_about() -> None:
    gate = Gate()
    bench = Bench(ONE, receive_gate=gate)
    bench.network.listen("b1").answers[3] = metadata_answer(ONE)
    bench.ask()
    for _ in range(3):
        bench.poll()
    assert bench.handler.count == 1
    assert gate.asked == []


# --- delivery -------------------------------------------------------------------------------------


class Faulty(Outcomes):
    """A handler with a bug."""

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        raise ZeroDivisionError("a bug")


def test_a_handler_that_raises_loses_nothing_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """N-15, L-09: the others are told, then the error comes out of poll."""
    bench, server = ready_bench()
    server.answers[3] = metadata_answer(ONE)
    bench.ask(handler=Faulty())
    bench.ask()
    with caplog.at_level(logging.ERROR), pytest.raises(KafkaError) as caught:
        bench.poll()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not caught.value.retriable
    assert len(bench.handler.responses) == 1
    assert "a bug" in caplog.text
    bench.ask()
    bench.poll()
    bench.poll()
    assert len(bench.handler.responses) == 2


class Chain(Outcomes):
    """Asks again from within the handler."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        super().handle_response(request, response, now_ms)
        if len(self.responses) < 3:
            again = UnsentRequest(MetadataRequest(topics=[]), self, node_id=1)
            assert self.bench.client.ready(1, now_ms)
            self.bench.client.send(again, now_ms)


def test_handlers_may_send() -> None:
    bench, server = ready_bench()
    server.answers[3] = metadata_answer(ONE)
    chain = Chain(bench)
    bench.ask(handler=chain)
    for _ in range(10):
        bench.poll()
    assert len(chain.responses) == 3


def test_a_late_answer_disturbs_nothing() -> None:
    """N-20: a caller that gave up leaves the connection in step."""
    bench, server = ready_bench()
    abandoned = Outcomes()
    bench.ask(handler=abandoned)
    wanted = bench.ask()
    bench.poll()
    bench.clock.advance(20_000)
    for received in server.requests(3):
        received.reply(metadata())
    bench.poll()
    assert [request for request, _ in bench.handler.responses] == [wanted]
    assert len(server.open_transports()) == 1


def test_wakeup_ends_the_wait() -> None:
    """N-14: the next poll returns at once."""
    bench, _ = ready_bench()
    start = bench.clock.now
    bench.client.wakeup()
    bench.poll(1_000)
    assert bench.clock.now == start
    bench.poll(1_000)
    assert bench.clock.now == start + 1_000


def test_only_the_monotonic_clock_counts() -> None:
    """N-19: a jump of the wall clock changes no timer."""
    bench, _ = ready_bench()
    bench.ask()
    bench.poll()
    bench.clock.wall_offset += 10**12
    start = bench.clock.now
    bench.poll(1_000_000)
    assert bench.clock.now - start == 30_000


# --- close ----------------------------------------------------------------------------------------


def test_close_writes_what_is_queued_for_live_connections() -> None:
    """L-01: last requests go out, everything unanswered fails, sockets and selector close."""
    bench, server = ready_bench()
    transport = server.transports[0]
    transport.max_send = 10
    bench.ask()
    bench.ask(None)
    bench.client.close(5_000)
    assert len(server.requests(3)) == 1
    assert bench.handler.count == 2
    assert transport.is_closed
    assert bench.network.is_closed
    bench.client.close(5_000)


def test_close_writes_last_requests_behind_what_is_in_flight() -> None:
    """L-02: a request that is held back by the limit of requests in flight goes out at the end."""
    bench, server = ready_bench(max_in_flight_requests_per_connection=1)
    bench.ask()
    bench.poll()
    last = bench.ask()
    bench.poll()
    assert len(server.requests(3)) == 1
    started = bench.clock.now
    bench.client.close(1_000)
    assert len(server.requests(3)) == 2
    assert server.transports[0].is_output_ended
    assert bench.handler.failures[-1][0] is last
    assert bench.clock.now - started <= 100, "an answer that is held back is not waited for"


def test_close_takes_what_is_on_its_way_before_it_closes() -> None:
    """L-02: closing a socket with unread bytes resets it, and the broker loses the last request."""
    bench, server = ready_bench()
    transport = server.transports[0]
    bench.ask()
    bench.poll()
    transport.max_recv = 1_000
    transport.deliver(bytes(50_000))  # no answer at all: nobody looks at it any more
    bench.ask()
    bench.client.close(1_000)
    assert len(server.requests(3)) == 2
    assert not transport.ready_events() & EVENT_READ
    assert transport.is_closed


def test_close_stops_waiting_when_the_broker_closes() -> None:
    """L-02: the end of the stream says that the broker has read everything."""
    bench, server = ready_bench()
    transport = server.transports[0]
    bench.ask()
    bench.poll()
    transport.end()
    started = bench.clock.now
    bench.client.close(1_000)
    assert bench.clock.now == started


def test_close_does_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """L-01: a broker that goes on sending is left when the time is over."""
    bench, server = ready_bench()
    transport = server.transports[0]
    bench.ask()
    bench.poll()
    transport.deliver(b"more")

    def recv_into(view: memoryview) -> int:
        bench.clock.advance(20)
        return len(view)

    monkeypatch.setattr(transport, "recv_into", recv_into)
    started = bench.clock.now
    bench.client.close(500)
    assert bench.clock.now - started == 500


@pytest.mark.parametrize("timeout_ms", [0, 3_000])
def test_close_is_bounded(timeout_ms: int) -> None:
    """L-01: a broker that takes no more bytes does not hold it up."""
    bench, server = ready_bench()
    server.transports[0].max_send = 0
    bench.ask()
    bench.ask(1, channel=Channel.COORDINATOR)
    start = bench.clock.now
    bench.client.close(timeout_ms)
    assert bench.clock.now - start == timeout_ms
    assert bench.handler.count == 2


def test_close_survives_faulty_handlers() -> None:
    bench, _ = ready_bench()
    faulty = Faulty()
    faulty.handle_failure = faulty.handle_response  # type: ignore[assignment]
    bench.ask(handler=faulty)
    bench.ask()
    bench.client.close(0)
    assert bench.handler.count == 1


def test_responses_keep_their_frame() -> None:
    bench, server = ready_bench()
    server.answers[3] = metadata_answer(ONE)
    bench.ask()
    bench.poll()
    bench.poll()
    ((_, response),) = bench.handler.responses
    body = metadata_answer(ONE)(server.requests(3)[0]).encode(13)  # type: ignore[union-attr]
    assert bytes(response.frame.view()).endswith(body)
    assert len(copy_of(body).view()) == len(body)
