"""SaslLogin and the connection: the order of a log-in, its codes, and sessions that go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfast._native.buffers import copy_of
from kfast.client.broker_connection import (
    MAX_SETUP_FRAME_BYTES,
    BrokerConnection,
    ConnectionSettings,
)
from kfast.client.cluster import Node
from kfast.client.request import Channel, CompletedRequest, UnsentRequest
from kfast.errors import (
    AuthenticationError,
    DisconnectError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    ProtocolError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages import REQUESTS
from kfast.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kfast.protocol.messages.metadata import MetadataRequest
from kfast.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kfast.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kfast.security.sasl.login import LoginFacts, SaslLogin, SaslLogins
from kfast.security.sasl.plain import PlainMechanism
from kfast.security.sasl.scram import ScramMechanism
from kfast.settings.secret import Secret
from kfast.testing.headers import decode_request_header
from kfast.testing.sasl import SaslListener, SaslSession
from tests.simulation.login_steps import LoginSteps
from tests.unit.client.frames import frame, metadata
from tests.unit.network.scripted import Outcomes, current_ranges

NODE = Node(1, "b1", 9096)
FACTS = LoginFacts("SCRAM-SHA-256", True, True)
NOW = 1_000
NONCE = "fyko+d2lbbFgONRv9qkxdawL"


def scram(node: Node = NODE, password: Any = "secret") -> ScramMechanism:
    return ScramMechanism(node, "SCRAM-SHA-256", "app", Secret(password), NONCE)


def plain(node: Node = NODE) -> PlainMechanism:
    return PlainMechanism(node, "app", Secret("secret"))


VERSIONS = ApiVersionsResponse(
    api_keys=[ApiVersion(ApiKey.SASL_HANDSHAKE, 0, 1), ApiVersion(ApiKey.SASL_AUTHENTICATE, 0, 2)]
)


def answer(login: SaslLogin, message: Any) -> None:
    """Take the next request, and give its answer."""
    request = login.next_request()
    assert request is not None
    login.receive(copy_of(message.encode(request[1])), 0)


def begun(mechanism: Any = None) -> SaslLogin:
    """Return a log-in whose mechanism was accepted."""
    login = SaslLogin(NODE, mechanism or scram(), FACTS, LoginSteps())
    answer(login, VERSIONS)
    answer(login, SaslHandshakeResponse(0, ["SCRAM-SHA-256"]))
    return login


# --- the log-in -----------------------------------------------------------------------------------


@pytest.mark.parametrize("newest", [0, 1, 2])
def test_a_log_in_message_by_message(newest: int) -> None:
    """S-04: with the newest SaslAuthenticate that both sides know."""
    login = SaslLogin(NODE, scram(), FACTS, LoginSteps())
    session = SaslSession(SaslListener(session_lifetime_ms=60_000))
    sent = []
    while (request := login.next_request()) is not None:
        message, version = request
        sent.append((message.NAME, version))
        reply: Any
        if isinstance(message, SaslHandshakeRequest):
            assert message.mechanism == "SCRAM-SHA-256"
            reply = SaslHandshakeResponse(session.handshake(message.mechanism), [])
        elif isinstance(message, SaslAuthenticateRequest):
            error, text, token, lifetime_ms = session.authenticate(message.auth_bytes, NOW)
            reply = SaslAuthenticateResponse(error, text, token, lifetime_ms)
        else:
            reply = ApiVersionsResponse(api_keys=[ApiVersion(17, 0, 1), ApiVersion(36, 0, newest)])
        login.receive(copy_of(reply.encode(version)), 0)
    assert sent == [
        ("ApiVersions", 0),
        ("SaslHandshake", 1),
        ("SaslAuthenticate", newest),
        ("SaslAuthenticate", newest),
    ]
    assert login.is_complete
    assert session.is_authenticated
    assert login.session_lifetime_ms == (60_000 if newest else 0)


def test_a_token_is_not_in_the_repr_of_its_message() -> None:
    """S-09"""
    login = begun()
    request = login.next_request()
    assert request is not None
    assert NONCE not in repr(request)
    assert NONCE not in repr(login)
    assert b"S3cr3t".hex() not in repr(SaslAuthenticateResponse(auth_bytes=b"S3cr3t"))


@pytest.mark.parametrize(
    ("response", "kind", "text"),
    [
        (SaslHandshakeResponse(33, ["PLAIN"]), UnsupportedSaslMechanismError, "offers PLAIN;"),
        (SaslHandshakeResponse(0, ["PLAIN"]), UnsupportedSaslMechanismError, "offers PLAIN;"),
        (SaslHandshakeResponse(33, []), UnsupportedSaslMechanismError, "offers no mechanism;"),
        (
            SaslHandshakeResponse(33, [f"M{n}" for n in range(12)]),
            UnsupportedSaslMechanismError,
            "M9 and 2 more; you asked for SCRAM-SHA-256",
        ),
        (SaslHandshakeResponse(34), IllegalSaslStateError, "this looks like an SSL listener"),
        (SaslHandshakeResponse(58), SaslAuthenticationError, "did not complete the log-in"),
        (SaslHandshakeResponse(-1), KafkaError, "did not complete the log-in"),
        (SaslHandshakeResponse(12345), KafkaError, "did not complete the log-in"),
    ],
)
def test_codes_of_the_handshake(
    response: SaslHandshakeResponse, kind: type[KafkaError], text: str
) -> None:
    """S-06"""
    login = SaslLogin(NODE, scram(), FACTS, LoginSteps())
    answer(login, VERSIONS)
    with pytest.raises(kind, match=text):
        answer(login, response)
    assert not login.is_complete


def test_the_default_mechanism_is_explained() -> None:
    """S-06: who left it out was not asked for Kerberos."""
    facts = LoginFacts("GSSAPI", False, False)
    login = SaslLogin(NODE, scram(), facts, LoginSteps())
    answer(login, VERSIONS)
    with pytest.raises(UnsupportedSaslMechanismError) as refused:
        answer(login, SaslHandshakeResponse(33, ["PLAIN"]))
    assert refused.value.cause == "sasl_mechanism is not set, and GSSAPI is Kafka's default"


@pytest.mark.parametrize(
    ("response", "kind", "text"),
    [
        (
            SaslAuthenticateResponse(58, "Authentication failed: no\x1b[31m"),
            SaslAuthenticationError,
            'found: "Authentication failed: no',
        ),
        (SaslAuthenticateResponse(58, "x" * 1000), SaslAuthenticationError, 'found: "x{300}..."'),
        (SaslAuthenticateResponse(58, None), SaslAuthenticationError, "login failed for"),
        (SaslAuthenticateResponse(34), IllegalSaslStateError, "did not complete the log-in"),
        (SaslAuthenticateResponse(61), KafkaError, "did not complete the log-in"),
        (SaslAuthenticateResponse(0, None, b""), AuthenticationError, "malformed SCRAM message"),
    ],
)
def test_codes_of_a_token(
    response: SaslAuthenticateResponse, kind: type[KafkaError], text: str
) -> None:
    """S-06"""
    login = begun()
    with pytest.raises(kind, match=text) as refused:
        answer(login, response)
    assert not login.is_complete
    assert all(line.isprintable() for line in str(refused.value).splitlines())
    if isinstance(refused.value, AuthenticationError):
        assert (refused.value.mechanism, refused.value.user) == ("SCRAM-SHA-256", "app")


def test_a_broker_without_the_apis_of_sasl() -> None:
    """S-06"""
    login = SaslLogin(NODE, scram(), FACTS, LoginSteps())
    with pytest.raises(IllegalSaslStateError):
        answer(login, ApiVersionsResponse(api_keys=[ApiVersion(17, 0, 1)]))
    login = SaslLogin(NODE, scram(), FACTS, LoginSteps())
    old = ApiVersionsResponse(api_keys=[ApiVersion(17, 0, 0), ApiVersion(36, 0, 2)])
    with pytest.raises(UnsupportedVersionError):
        answer(login, old)


def test_an_answer_nothing_was_asked_for() -> None:
    login = SaslLogin(NODE, scram(), FACTS, LoginSteps())
    with pytest.raises(ProtocolError, match="does not keep to the order"):
        login.receive(copy_of(b"\0" * 10), 0)


def test_a_step_of_the_worker_is_waited_for() -> None:
    """S-07"""
    steps = LoginSteps()
    steps.is_prompt = False
    mechanism = PlainMechanism(NODE, "app", Secret(lambda: "secret"))
    login = SaslLogin(NODE, mechanism, FACTS, steps, authenticate_version=2)
    answer(login, SaslHandshakeResponse(0, []))
    assert login.next_request() is None
    assert login.is_waiting_for_worker
    steps.run_all()
    request = login.next_request()
    assert request is not None
    assert isinstance(request[0], SaslAuthenticateRequest)
    assert request[0].auth_bytes == b"\0app\0secret"


def test_a_log_in_that_ends_cancels_its_step() -> None:
    steps = LoginSteps()
    steps.is_prompt = False
    asked: list[int] = []

    def password() -> str:
        asked.append(1)
        return "secret"

    mechanism = PlainMechanism(NODE, "app", Secret(password))
    login = SaslLogin(NODE, mechanism, FACTS, steps, authenticate_version=2)
    answer(login, SaslHandshakeResponse(0, []))
    login.cancel()
    steps.run_all()
    assert not asked


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([scram, plain]),
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.builds(
                SaslAuthenticateResponse,
                st.sampled_from([0, 0, 0, 33, 34, 58, -1, 77]),
                st.none() | st.text("a\x1b\n", max_size=10),
                st.binary(max_size=60),
                st.integers(-(2**63), 2**63 - 1),
            ),
            st.builds(
                SaslHandshakeResponse,
                st.integers(-2, 60),
                st.lists(st.text("A-\n", max_size=8), max_size=3),
            ),
        ),
        max_size=6,
    ),
)
def test_any_answers(make: Callable[[], Any], answers: list[Any]) -> None:
    """S-05: errors of Kafka's only, and SCRAM never believes a server without the password."""
    login = SaslLogin(NODE, make(), FACTS, LoginSteps())
    try:
        for each in answers:
            request = login.next_request()
            if request is None:
                break
            data = each if isinstance(each, bytes) else each.encode(max(1, request[1]))
            login.receive(copy_of(data), 0)
    except KafkaError:
        pass
    assert not (login.is_complete and make is scram)


# --- the connection -------------------------------------------------------------------------------


class Peer:
    """A connection with log-ins, and the broker's side of it."""

    def __init__(self, listener: SaslListener | None = None, password: Any = "secret") -> None:
        self.steps = LoginSteps()
        self.logins = SaslLogins(FACTS, self.steps, lambda node: scram(node, password), lambda: 0.5)
        self.connection = BrokerConnection(
            NODE, Channel.DATA, ConnectionSettings("me", "0.1.0", 1 << 20, logins=self.logins)
        )
        self.session = SaslSession(listener or SaslListener(session_lifetime_ms=10_000))
        self.handler = Outcomes()
        self.received: list[tuple[int, int, Any]] = []

    def read(self) -> None:
        """Take what was written."""
        while (data := self.connection.data_to_send()) is not None:
            header = decode_request_header(data[4:])
            message = REQUESTS[header.api_key].decode(
                data[4:], header.api_version, header.body_offset
            )
            self.received.append((header.api_version, header.correlation_id, message))
            self.connection.data_sent(len(data), NOW)

    def answers(self) -> list[bytes]:
        """Return the answers to everything that was read, in order."""
        self.read()
        pending, self.received = self.received, []
        return [frame(self._answer(m), v, c) for v, c, m in pending]

    def _answer(self, message: Any) -> Any:
        if isinstance(message, SaslHandshakeRequest):
            return SaslHandshakeResponse(self.session.handshake(message.mechanism), [])
        if isinstance(message, SaslAuthenticateRequest):
            error, text, token, ms = self.session.authenticate(message.auth_bytes, NOW)
            return SaslAuthenticateResponse(error, text, token, ms)
        if isinstance(message, MetadataRequest):
            return metadata()
        keys = [ApiVersion(k, low, high) for k, (low, high) in current_ranges().items()]
        return ApiVersionsResponse(api_keys=keys)

    def write(self, data: bytes, step: int = 1 << 20, now_ms: int = NOW) -> list[CompletedRequest]:
        """Give bytes to the connection, at most ``step`` at a time."""
        done = []
        while data:
            view = self.connection.next_view()
            count = min(len(view), step, len(data))
            view[:count] = data[:count]
            data = data[count:]
            completed = self.connection.data_received(count, now_ms)
            if completed is not None:
                done.append(completed)
        return done

    def exchange(self, step: int = 1 << 20) -> list[CompletedRequest]:
        """Answer everything until nothing more is asked."""
        done: list[CompletedRequest] = []
        while data := b"".join(self.answers()):
            done += self.write(data, step)
        return done

    def send(self) -> UnsentRequest:
        request = UnsentRequest(MetadataRequest(topics=None), self.handler, node_id=1)
        self.connection.send(request, NOW, 30_000)
        return request


def ready(**options: Any) -> Peer:
    peer = Peer(**options)
    peer.connection.start(NOW)
    peer.exchange()
    assert peer.connection.is_ready
    return peer


def test_a_connection_is_ready_after_log_in_and_versions() -> None:
    """S-04"""
    peer = Peer()
    peer.connection.start(NOW)
    seen = []
    while True:
        peer.read()
        seen += [(type(m).__name__, v) for v, _, m in peer.received]
        data = b"".join(peer.answers())
        if not data:
            break
        assert not peer.connection.is_ready
        peer.write(data)
    assert seen == [
        ("ApiVersionsRequest", 0),
        ("SaslHandshakeRequest", 1),
        ("SaslAuthenticateRequest", 2),
        ("SaslAuthenticateRequest", 2),
        ("ApiVersionsRequest", 4),
    ]
    assert peer.connection.is_ready
    assert not peer.connection.is_authenticating
    assert peer.connection.reauthenticate_ms == NOW + 9_000


@pytest.mark.parametrize("count", range(6))
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_authenticating_again_behind_requests_in_flight(count: int, step: int) -> None:
    """S-07: their answers come first, whole or in pieces, then those of the log-in."""
    peer = ready()
    sent = [peer.send() for _ in range(count)]
    peer.connection.reauthenticate(NOW + 9_000, 30_000)
    assert peer.connection.is_authenticating
    assert peer.connection.login_deadline_ms == NOW + 39_000
    peer.read()
    names = [type(m).__name__ for _, _, m in peer.received]
    assert names == ["MetadataRequest"] * count + ["SaslHandshakeRequest"]
    done = peer.exchange(step)
    assert [each.request for each in done] == sent
    assert all(each.response is not None for each in done)
    connection: Any = peer.connection
    assert connection.is_ready
    assert not connection.is_authenticating
    assert connection.login_deadline_ms is None
    assert connection.reauthenticate_ms is not None
    peer.send()
    assert len(peer.exchange(step)) == 1


@pytest.mark.parametrize("steps", range(4))
def test_a_connection_lost_while_authenticating_again(steps: int) -> None:
    """S-07: at every step of it; what is in flight fails as with any lost connection."""
    peer = ready()
    sent = peer.send()
    peer.connection.reauthenticate(NOW, 30_000)
    answers = peer.answers()
    done = []
    for _ in range(steps):
        if not answers:
            answers = peer.answers()
        done += peer.write(answers.pop(0))
    error = peer.connection.closed_by_peer("the broker closed it")
    assert isinstance(error, DisconnectError)
    failed = peer.connection.abandon(error)
    assert [each.request for each in [*done, *failed]] == [sent]
    assert not peer.connection.is_authenticating
    assert peer.connection.reauthenticate_ms is None


def test_a_session_that_is_not_continued_is_a_lost_connection() -> None:
    """S-07: with what was in flight to be asked for again."""
    listener = SaslListener(session_lifetime_ms=10_000)
    peer = ready(listener=listener)
    listener.users["app"] = "changed"
    sent = peer.send()
    peer.connection.reauthenticate(NOW, 30_000)
    with pytest.raises(DisconnectError) as lost:
        peer.exchange()
    assert lost.value.retriable
    assert "its session was not continued: login failed for" in str(lost.value.cause)
    assert sent not in [each.request for each in peer.connection.abandon(lost.value)]


def test_a_first_log_in_that_is_refused_is_not_retriable() -> None:
    """S-06"""
    peer = Peer(password="wrong")
    peer.connection.start(NOW)
    with pytest.raises(SaslAuthenticationError):
        peer.exchange()
    assert not peer.connection.is_ready


@pytest.mark.parametrize(
    ("lifetime_ms", "wait_ms"),
    [
        (0, None),
        (-1, None),
        (-(2**63), None),
        (1, 1_000),
        (1_000, 1_000),
        (10_000, 9_000),
        (3_600_000, 3_240_000),
        (2**63 - 1, 77_760_000),
    ],
)
def test_when_a_session_is_continued(lifetime_ms: int, wait_ms: int | None) -> None:
    """S-07: never within a second, and at least once a day."""
    peer = ready(listener=SaslListener(session_lifetime_ms=lifetime_ms))
    expected = None if wait_ms is None else NOW + wait_ms
    assert peer.connection.reauthenticate_ms == expected


@pytest.mark.parametrize(("random", "part"), [(0.0, 0.85), (0.5, 0.9), (0.999999, 0.95)])
def test_sessions_are_not_all_continued_at_once(random: float, part: float) -> None:
    """S-07"""
    logins = SaslLogins(FACTS, LoginSteps(), scram, lambda: random)
    login = logins.login(NODE)
    login.session_lifetime_ms = 100_000
    assert logins.completed(login) == pytest.approx(part * 100_000, abs=1)


def test_a_shut_gate_stops_the_clock_of_authenticating_again() -> None:
    """B-11: this side does not read, so the broker cannot be late."""
    peer = ready()
    peer.connection.reauthenticate(NOW, 30_000)
    peer.connection.postpone(5_000)
    assert peer.connection.login_deadline_ms == NOW + 35_000


@pytest.mark.parametrize("answered", range(4))
def test_the_end_of_a_connection_at_each_step(answered: int) -> None:
    """S-06: closed at SaslHandshake is a listener without SASL, elsewhere a connection error."""
    peer = Peer()
    peer.connection.start(NOW)
    for _ in range(answered):
        peer.write(b"".join(peer.answers()))
    peer.read()
    error = peer.connection.closed_by_peer("the broker closed it")
    kind = IllegalSaslStateError if answered == 1 else KafkaConnectionError
    assert type(error) is kind
    text = [
        "closed the connection without an answer",
        "has no SASL: this looks like an SSL listener",
        "closed the connection during the log-in",
        "closed the connection during the log-in",
    ]
    assert text[answered] in error.message
    late = peer.connection.setup_timed_out(10_000).message
    if answered:
        assert late == "broker 1 (b1:9096) did not complete the SASL log-in within 10.0 s"
    else:
        assert "did not answer within 10.0 s" in late


@pytest.mark.parametrize("answered", range(5))
def test_frames_before_the_connection_is_ready_are_small(answered: int) -> None:
    """S-05, S-12: refused by their size, before any memory is taken for them."""
    peer = Peer()
    peer.connection.start(NOW)
    for _ in range(answered):
        peer.write(b"".join(peer.answers()))
    assert not peer.connection.is_ready
    with pytest.raises(KafkaError):
        peer.write((MAX_SETUP_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_an_answer_that_is_out_of_order() -> None:
    """S-05"""
    peer = Peer()
    peer.connection.start(NOW)
    first, *_ = peer.answers()
    peer.write(first)
    with pytest.raises(ProtocolError, match="does not keep to the order of a log-in"):
        peer.write(first)


def test_a_stranger_is_named_before_the_log_in() -> None:
    """E-06"""
    peer = Peer()
    peer.connection.start(NOW)
    with pytest.raises(KafkaConnectionError, match="answers HTTP, not Kafka"):
        peer.write(b"HTTP/1.0 400 Bad\r\n")
