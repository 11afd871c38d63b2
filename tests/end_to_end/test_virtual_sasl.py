"""Log-ins of a whole consumer in virtual time: order, refusals, sessions, servers that are wrong.

The cluster is in memory and so is the login worker; the server's side of each mechanism is written
from its RFC.
"""

from __future__ import annotations

import itertools
import logging
import re
from typing import Any

import pytest

from kfast.client.diagnosis import FailureKind, failure_kind
from kfast.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    KafkaError,
    ProtocolError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.testing.fault_table import Fault
from kfast.testing.faults import Drop, EditResponse, NeverAnswer, TopLevelError, Trickle
from kfast.testing.sasl import SaslListener
from tests.end_to_end.virtual import T0, make_cluster, offsets, read_all, write
from tests.end_to_end.virtual_logins import SETUP, attempts, consumer, look_up, secured
from tests.simulation.loopback_consumer import LoopbackConsumer
from tests.simulation.wire_faults import (
    Answer,
    ClaimFrameSize,
    EditFrame,
    TruncateBody,
    WrongCorrelationId,
)


def refused(reader: LoopbackConsumer) -> KafkaError:
    """Make one call; return the error it raises at once."""
    begun_ms = reader.clock.now
    with pytest.raises(KafkaError) as caught:
        look_up(reader)
    assert reader.clock.now - begun_ms < 1_000
    return caught.value


# --- the order of a connection --------------------------------------------------------------------


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
@pytest.mark.parametrize(
    ("mechanism", "tokens"), [("PLAIN", 1), ("SCRAM-SHA-256", 2), ("OAUTHBEARER", 1)]
)
def test_a_connection_logs_in_before_anything_else(
    mechanism: str, tokens: int, release: str
) -> None:
    """S-01, S-04, S-12: ApiVersions 0, the log-in, ApiVersions; brokers from metadata, too."""
    cluster = make_cluster(3, partitions=3, release=release)
    cluster.sasl = SaslListener(tokens={"t0ken"})
    configs: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        configs |= {"sasl_oauth_token_provider": lambda: "t0ken"}
    reader = consumer(cluster, **configs)
    assert offsets(read_all(reader)) == list(range(20))
    by_connection: dict[int, list[tuple[int, int]]] = {}
    for entry in cluster.requests:
        by_connection.setdefault(entry.connection_id, []).append((entry.api_key, entry.version))
    newest = {"2.1": 0, "2.8": 2, "4.3": 2}[release]
    for sent in by_connection.values():
        expected = [(ApiKey.API_VERSIONS, 0), (ApiKey.SASL_HANDSHAKE, 1)]
        expected += [(ApiKey.SASL_AUTHENTICATE, newest)] * tokens
        assert sent[: 2 + tokens] == expected
        rest = [api for api, _ in sent[2 + tokens :]]
        assert rest[0] == ApiKey.API_VERSIONS
        assert not {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} & set(rest)
    assert cluster.sasl.logins == len(by_connection)
    assert cluster.sasl.refusals == 0


def test_a_step_of_the_login_worker_delays_no_other_connection() -> None:
    """S-07, S-14: a provider may take its time."""
    cluster = secured(tokens={"t0ken"})
    reader = consumer(
        cluster, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=lambda: "t0ken"
    )
    reader.login_steps.is_prompt = False
    reader.run(5_000)
    assert cluster.sasl is not None
    assert cluster.sasl.logins == 0
    reader.login_steps.run_all()
    reader.client.wakeup()
    reader.login_steps.is_prompt = True
    assert offsets(read_all(reader)) == list(range(20))


# --- refusals -------------------------------------------------------------------------------------


def test_a_wrong_password_ends_the_call_at_once() -> None:
    """S-06: by the first server; the others are not tried with the same credentials."""
    cluster = secured(3)
    reader = consumer(cluster, sasl_plain_password="wrong")
    errors = [refused(reader) for _ in range(5)]
    assert all(type(error) is SaslAuthenticationError for error in errors)
    assert len({id(error) for error in errors}) == 5
    lines = str(errors[0]).splitlines()
    assert lines[0].startswith('login failed for user "app" (SCRAM-SHA-512) on broker-')
    assert lines[1:] == [
        "cause: the broker refused the credentials: SASL_AUTHENTICATION_FAILED (error 58)",
        'found: "Authentication failed during authentication due to invalid credentials"',
        "try: check sasl_plain_username and sasl_plain_password",
    ]
    assert cluster.sasl is not None
    assert cluster.sasl.refusals == 1
    assert cluster.connections_made == 1


def test_a_polling_application_does_not_lock_its_account(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S-06: at most 2 attempts in 10 s and 6 in 10 minutes, of a cluster of any size."""
    cluster = secured(5)
    reader = consumer(cluster, sasl_plain_password="wrong")
    with caplog.at_level(logging.INFO, "kfast"):
        for _ in range(1_800):
            with pytest.raises(SaslAuthenticationError):
                look_up(reader)
            reader.run(500)
    times = attempts(reader)
    assert sum(ms <= 10_000 for ms in times) <= 2
    assert times[1:6] == [11_000, 33_000, 77_000, 165_000, 341_000]
    assert all(b - a <= 331_000 for a, b in itertools.pairwise(times))
    warned = [r for r in caplog.records if "login failed" in r.getMessage()]
    assert len(warned) == len({r.getMessage().partition(";")[0] for r in warned}) <= 5


def test_a_password_that_was_changed_on_the_broker_works_again() -> None:
    """S-06"""
    cluster = secured()
    reader = consumer(cluster, sasl_plain_password="new")
    refused(reader)
    assert cluster.sasl is not None
    cluster.sasl.users["app"] = "new"
    reader.run(12_000)
    assert offsets(read_all(reader)) == list(range(20))
    cluster.sasl.users["app"] = "newer"
    for connection in list(cluster.connections.values()):
        connection.close()
    begun = len(reader.network.attempts)
    reader.run(5_000)
    assert len(reader.network.attempts) - begun <= 2


def test_a_password_is_not_asked_for_once_it_works() -> None:
    """S-13: although a bootstrap server that refused it is never tried again."""
    cluster = secured(3)
    asked: list[int] = []

    def password() -> str:
        asked.append(1)
        return "secret"

    reader = consumer(cluster, sasl_plain_password=password)
    assert cluster.sasl is not None
    cluster.sasl.users["app"] = "other"
    refused(reader)
    cluster.sasl.users["app"] = "secret"
    reader.run(15_000)
    assert offsets(read_all(reader)) == list(range(20))
    count = len(asked)
    reader.run(60_000)
    assert len(asked) == count


def test_a_refusal_by_one_node_does_not_stop_the_others() -> None:
    """S-06: it is raised once for each attempt, when there is nothing else to return."""
    cluster = make_cluster(2, partitions=2, leaders=[1, 2])
    cluster.sasl = SaslListener()
    rule = cluster.faults.add(TopLevelError(58), api=ApiKey.SASL_AUTHENTICATE, node=2, times=None)
    reader = consumer(cluster, bootstrap_servers="broker-1:9092")
    reader.assign(T0, type(T0)("t", 1))
    found, raised = 0, []
    for _ in range(20):
        try:
            found += sum(len(rows) for rows in reader.poll(100).values())
        except SaslAuthenticationError as error:
            raised.append(error)
    assert found == 20
    assert raised
    assert all(error.node == 2 for error in raised)
    assert sum(1 for _, ip, _ in reader.network.attempts if ip == "10.0.0.2") == 1
    cluster.faults.remove(rule)
    reader.run(12_000)
    while found < 40:
        found += sum(len(rows) for rows in reader.poll(1_000).values())
    assert not reader.poll(100)


MECHANISMS = EditResponse(lambda message, entry: setattr(message, "mechanisms", ["PLAIN", "X\n"]))


@pytest.mark.parametrize(
    ("faults", "api", "kind", "lines"),
    [
        (
            (TopLevelError(33),),
            ApiKey.SASL_HANDSHAKE,
            UnsupportedSaslMechanismError,
            [
                "broker-1:9092 offers PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER; "
                "you asked for SCRAM-SHA-512",
                'try: sasl_mechanism="PLAIN", or the listener that has SCRAM-SHA-512',
            ],
        ),
        (
            (MECHANISMS,),
            ApiKey.SASL_HANDSHAKE,
            UnsupportedSaslMechanismError,
            [
                "broker-1:9092 offers PLAIN, X; you asked for SCRAM-SHA-512",
                'try: sasl_mechanism="PLAIN", or the listener that has SCRAM-SHA-512',
            ],
        ),
        (
            (TopLevelError(34),),
            ApiKey.SASL_HANDSHAKE,
            IllegalSaslStateError,
            [
                "broker-1:9092 has no SASL: this looks like a PLAINTEXT listener",
                'try: security_protocol="PLAINTEXT", or the port of the SASL listener',
            ],
        ),
        (
            (Drop(),),
            ApiKey.SASL_HANDSHAKE,
            IllegalSaslStateError,
            [
                "broker-1:9092 has no SASL: this looks like a PLAINTEXT listener",
                'try: security_protocol="PLAINTEXT", or the port of the SASL listener',
            ],
        ),
        (
            (EditResponse(lambda m, e: setattr(m, "auth_bytes", b"r=x,s=MTIz,i=4096")),),
            ApiKey.SASL_AUTHENTICATE,
            AuthenticationError,
            [
                'broker-1:9092 is not to be trusted with user "app" (SCRAM-SHA-512)',
                "cause: its nonce does not continue ours",
                "try: check that the address is that of your broker, and that nothing is in "
                "between",
            ],
        ),
    ],
    ids=["error 33", "not in the list", "error 34", "closes", "a foreign nonce"],
)
def test_refusals_are_said_in_full(
    faults: tuple[Fault, ...], api: int, kind: type[KafkaError], lines: list[str]
) -> None:
    """S-05, S-06: class and text, at once, and not tried again."""
    cluster = secured()
    cluster.faults.add(*faults, api=api, times=None)
    reader = consumer(cluster)
    error = refused(reader)
    assert type(error) is kind
    assert str(error).splitlines() == lines
    assert not error.retriable
    reader.run(5_000)
    assert len(reader.network.attempts) == 1


def test_an_empty_list_of_mechanisms_is_accepted() -> None:
    """S-04"""
    cluster = secured()
    cluster.faults.add(
        EditResponse(lambda m, e: setattr(m, "mechanisms", [])),
        api=ApiKey.SASL_HANDSHAKE,
        times=None,
    )
    assert offsets(read_all(consumer(cluster))) == list(range(20))


def test_a_listener_without_sasl() -> None:
    """S-06: Kafka answers 34."""
    error = refused(consumer(make_cluster(1)))
    assert type(error) is IllegalSaslStateError
    assert "has no SASL" in error.message


def test_a_listener_with_sasl_that_is_not_asked_for_it() -> None:
    """S-06: it sends its versions, and closes at the first request."""
    cluster = secured()
    reader = LoopbackConsumer(cluster)
    reader.assign(T0)
    reader.run(3_000)
    error = reader.client.bootstrap_error()
    assert failure_kind(error) is FailureKind.NO_LOGIN
    assert str(error).splitlines()[0] == (
        "broker-1:9092 sent its versions and closed the connection at the first request"
    )
    assert "this looks like a SASL listener, and security_protocol is PLAINTEXT" in str(error)
    assert 'try: security_protocol="SASL_PLAINTEXT" and sasl_mechanism' in str(error)
    assert len(reader.network.attempts) < 12


# --- sessions -------------------------------------------------------------------------------------


def test_a_session_is_continued_in_place() -> None:
    """S-07: no new connection, nothing lost, nothing twice, in order."""
    cluster = secured(session_lifetime_ms=5_000)
    reader = consumer(cluster)
    seen: list[int] = offsets(read_all(reader))
    connections = cluster.connections_made
    for _ in range(300):
        write(cluster, 0, 3)
        seen += offsets(reader.take(3, 1_000))
        reader.run(100)
    assert seen == list(range(20 + 900))
    assert cluster.connections_made == connections
    assert cluster.sasl is not None
    assert cluster.sasl.logins == connections
    assert cluster.sasl.reauthentications >= 6


def test_an_idle_connection_continues_its_session() -> None:
    """S-07: also one that nothing is fetched on."""
    cluster = secured(session_lifetime_ms=5_000)
    reader = consumer(cluster)
    read_all(reader)
    reader.subscriptions.pause([T0])
    reader.run(60_000)
    assert cluster.sasl is not None
    assert 12 <= cluster.sasl.reauthentications <= 14  # of one connection, every 4.5 s
    assert cluster.connections_made == cluster.sasl.logins


def test_a_session_that_is_refused_is_a_lost_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S-07: the next connection logs in afresh; the application sees no error."""
    cluster = secured(session_lifetime_ms=5_000)
    reader = consumer(cluster)
    read_all(reader)
    cluster.faults.add(TopLevelError(58), api=ApiKey.SASL_AUTHENTICATE)
    with caplog.at_level(logging.INFO, "kfast"):
        reader.run(6_000)
        write(cluster, 0, 5)
        assert offsets(reader.take(5, 5_000)) == list(range(20, 25))
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [r for r in caplog.messages if "its session was not continued" in r]


def test_a_session_whose_end_is_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    """S-07: for request_timeout_ms."""
    cluster = secured(session_lifetime_ms=5_000)
    reader = consumer(cluster, request_timeout_ms=3_000)
    read_all(reader)
    rule = cluster.faults.add(NeverAnswer(), api=ApiKey.SASL_HANDSHAKE, times=None)
    with caplog.at_level(logging.DEBUG, "kfast"):
        reader.run(9_000)
    assert any("authenticate this client again in time" in text for text in caplog.messages)
    cluster.faults.remove(rule)
    write(cluster, 0, 5)
    assert offsets(reader.take(5, 30_000)) == list(range(20, 25))


@pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_connection_that_is_lost_while_its_session_is_continued(api: int, nth: int) -> None:
    """S-07: what was in flight is asked for again."""
    cluster = secured(session_lifetime_ms=5_000)
    reader = consumer(cluster)
    seen = offsets(read_all(reader))
    cluster.faults.add(Drop(is_reset=True), api=api, nth=nth)
    for _ in range(100):
        write(cluster, 0, 2)
        seen += offsets(reader.take(2, 2_000))
        reader.run(100)
    assert seen == list(range(220))


def test_responses_in_pieces_while_a_session_is_continued() -> None:
    """S-07: a byte at a time."""
    cluster = secured(session_lifetime_ms=3_000)
    reader = consumer(cluster)
    reader.network.max_recv_bytes = 1
    seen = offsets(read_all(reader))
    for _ in range(40):
        write(cluster, 0, 1)
        seen += offsets(reader.take(1, 2_000))
        reader.run(200)
    assert seen == list(range(60))
    assert cluster.sasl is not None
    assert cluster.sasl.reauthentications >= 2


# --- servers that are wrong -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "text"),
    [
        (ApiKey.API_VERSIONS, "accepted the connection but did not answer within"),
        (ApiKey.SASL_HANDSHAKE, "did not complete the SASL log-in within"),
        (ApiKey.SASL_AUTHENTICATE, "did not complete the SASL log-in within"),
    ],
)
def test_a_server_that_hangs(api: int, text: str) -> None:
    """N-08, S-06: in the time for setting up a connection, whatever it comes to."""
    cluster = secured()
    cluster.faults.add(NeverAnswer(), api=api, times=None)
    reader = consumer(cluster, socket_connection_setup_timeout_ms=2_000)
    reader.run(3_000)
    error = reader.client.bootstrap_error()
    assert error is not None
    assert text in error.message


def test_a_session_that_is_due_before_its_connection_is_ready() -> None:
    """S-07, S-12: a broker that hangs behind a log-in is waited for without a busy loop."""
    cluster = secured(session_lifetime_ms=1_000)
    cluster.faults.add(NeverAnswer(), api=ApiKey.API_VERSIONS, nth=2, times=None)
    reader = consumer(cluster, socket_connection_setup_timeout_ms=5_000)
    end_ms, turns = reader.clock.now + 3_000, 0
    while reader.clock.now < end_ms:
        reader.turn(end_ms - reader.clock.now)
        turns += 1
        assert turns < 100
    assert cluster.sasl is not None
    assert cluster.sasl.logins == 1


def test_a_server_that_closes_instead_of_refusing() -> None:
    """S-06: it may count wrong passwords all the same; the error is certain after a second."""
    cluster = secured()
    cluster.faults.add(Drop(), api=ApiKey.SASL_AUTHENTICATE, times=None)
    reader = consumer(cluster)
    reader.run(10_000)
    assert attempts(reader) == [0, 1_000, 3_000, 7_000]
    error = reader.client.bootstrap_error()
    assert error is not None
    assert "closed the connection during the log-in" in error.message
    assert reader.client.all_servers_failed
    cluster.faults.clear()
    assert offsets(read_all(reader)) == list(range(20))


WRONG: dict[str, Fault] = {
    "closes": Drop(),
    "resets": Drop(is_reset=True),
    "another correlation id": WrongCorrelationId(),
    "a negative size": ClaimFrameSize(-1),
    "a size above the limit": ClaimFrameSize(513 << 10),
    "the largest size": ClaimFrameSize(2**31 - 1),
    "a body cut short": TruncateBody(2),
    "error -1": TopLevelError(-1),
    "error 35": TopLevelError(35),
    "an unknown error": TopLevelError(999),
    "HTTP": Answer(b"HTTP/1.0 400 Bad Request\r\n\r\n"),
    "TLS": Answer(b"\x15\x03\x03\x00\x02\x02\x50"),
    "no body": Answer(b"\x00\x00\x00\x04\x0d\x0a\x0d\x0a"),
    "zeros": Answer(bytes(64)),
    "ones": EditFrame(lambda frame: frame[:4] + b"\xff" * (len(frame) - 4)),
}
TOO_BIG = EditResponse(lambda m, e: setattr(m, "auth_bytes", bytes(1 << 20)))


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("api", SETUP)
def test_a_server_that_is_wrong_never_gets_further(api: int, name: str) -> None:
    """S-05: an error of Kafka's, within the time, and no request but those of a log-in."""
    _check_wrong(api, WRONG[name])


def test_a_token_of_a_mebibyte() -> None:
    """S-05, Y-10: refused by its size, as an answer to a log-in, and not tried again and again."""
    reader = _check_wrong(ApiKey.SASL_AUTHENTICATE, TOO_BIG)
    error = reader.client.bootstrap_error()
    assert isinstance(error, AuthenticationError)
    assert "is not to be trusted with user" in error.message
    assert re.search(r"its answer has 10485\d\d bytes, more than 524288", error.cause or "")
    assert attempts(reader) == [0]


@pytest.mark.parametrize("size", [-1, 513 << 10, 2**31 - 1])
def test_an_answer_to_a_log_in_with_an_impossible_size(size: int) -> None:
    """Y-10: the server is a Kafka broker, or acts like one."""
    reader = _check_wrong(ApiKey.SASL_AUTHENTICATE, ClaimFrameSize(size))
    assert "is not to be trusted with user" in str(reader.client.bootstrap_error())
    assert attempts(reader) == [0]


def _check_wrong(api: int, fault: Fault) -> LoopbackConsumer:
    cluster = secured()
    cluster.faults.add(fault, api=api, times=None)
    reader = consumer(cluster, socket_connection_setup_timeout_ms=2_000)
    reader.run(5_000)
    assert {entry.api_key for entry in cluster.requests} <= set(SETUP)
    error = reader.client.bootstrap_error()
    assert error is not None
    assert error.__cause__ is None or isinstance(error.__cause__, KafkaError | OSError)
    assert len(reader.network.attempts) < 30
    return reader


@pytest.mark.parametrize("api", SETUP)
def test_answers_a_byte_at_a_time(api: int) -> None:
    """S-04"""
    cluster = secured()
    cluster.faults.add(Trickle(1, 1), api=api, times=None)
    assert offsets(read_all(consumer(cluster))) == list(range(20))


def test_an_answer_without_an_error_is_not_enough() -> None:
    """S-05: a server that lets everyone in proves nothing."""
    cluster = secured()
    cluster.faults.add(
        EditResponse(lambda m, e: setattr(m, "auth_bytes", b"")),
        api=ApiKey.SASL_AUTHENTICATE,
        times=None,
    )
    error = refused(consumer(cluster))
    assert isinstance(error, AuthenticationError)
    assert error.message == "broker-1:9092 sent a malformed SCRAM message"
    assert not isinstance(error, ProtocolError)


def test_a_foreign_server_is_named() -> None:
    """E-06: by its first bytes, as without SASL."""
    cluster = secured()
    cluster.faults.add(Answer(b"HTTP/1.0 400 Bad\r\n"), api=ApiKey.API_VERSIONS, times=None)
    reader = consumer(cluster)
    reader.run(1_500)
    assert failure_kind(reader.client.bootstrap_error()) is FailureKind.HTTP
