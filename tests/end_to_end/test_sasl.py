"""SASL through the public API on real sockets: threads of the user's, rotation, and secrets."""

from __future__ import annotations

import base64
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kfast
from kfast import KafkaConsumer, OAuthToken, TopicPartition
from kfast.errors import (
    AuthenticationError,
    ConfigurationError,
    KafkaError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import EditResponse, NeverAnswer, TopLevelError
from kfast.testing.sasl import SaslListener
from tests.end_to_end.stage import Stage, eventually, read
from tests.end_to_end.virtual import make_cluster
from tests.unit.security.tls.authority import ca_pem, server_context

PACKAGE = str(Path(kfast.__file__).parent)
T0 = TopicPartition("t", 0)
SCRAM: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": "app",
}
OAUTH: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


def secured(**listener: Any) -> FakeCluster:
    cluster = make_cluster(1)
    cluster.sasl = SaslListener(**listener)
    return cluster


def login_threads(consumer: KafkaConsumer) -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("kfast-login-")]


# --- the user's code ------------------------------------------------------------------------------


def test_a_token_provider_runs_on_a_thread_of_its_own() -> None:
    """S-07: one token serves all connections; the thread ends with the consumer."""
    names: list[str] = []

    def provider() -> OAuthToken:
        names.append(threading.current_thread().name)
        return OAuthToken("t0ken", expires_at_ms=int(time.time() * 1000) + 3_600_000)

    with Stage(secured(tokens={"t0ken"}), **OAUTH) as stage:
        consumer = stage.consumer(client_id="me", sasl_oauth_token_provider=provider)
        consumer.assign([T0])
        assert len(read(consumer, 20)[T0]) == 20
        assert names == ["kfast-login-me"]
    eventually(lambda: not login_threads(consumer))


class SignedUrls(set[str]):
    """Tokens that a listener accepts: base64 of signed URLs, which it keeps."""

    def __contains__(self, token: object) -> bool:
        url = base64.urlsafe_b64decode(f"{token}{'=' * (-len(str(token)) % 4)}").decode()
        self.add(url)
        return "Action=kafka-cluster%3AConnect" in url and "X-Amz-Signature=" in url


def test_msk_logs_in_with_iam(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-15: as OAUTHBEARER on the wire, with a token of AWS's own package."""
    for name, value in (
        ("AWS_REGION", "eu-west-1"),
        ("AWS_ACCESS_KEY_ID", "AKIAMADEUP"),
        ("AWS_SECRET_ACCESS_KEY", MARK),
    ):
        monkeypatch.setenv(name, value)
    urls = SignedUrls()
    cluster = secured(tokens=urls, mechanisms=("OAUTHBEARER",))
    tls = {"security_protocol": "SASL_SSL", "ssl_ca_pem": ca_pem()}
    with Stage(cluster, server_context(), **tls, sasl_mechanism="AWS_MSK_IAM") as stage:
        consumer = stage.consumer()
        consumer.assign([T0])
        assert len(read(consumer, 20)[T0]) == 20
    (url,) = {url.partition("X-Amz-Signature")[0] for url in urls}
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?")
    assert "AKIAMADEUP" in url


def test_a_provider_that_hangs_delays_no_close() -> None:
    """L-01, N-08, S-14: and the time for setting up a connection bounds the wait for it."""
    release = threading.Event()

    def provider() -> str:
        release.wait(30)
        return "t0ken"

    with Stage(secured(tokens={"t0ken"}), **OAUTH) as stage:
        consumer = stage.consumer(
            sasl_oauth_token_provider=provider,
            socket_connection_setup_timeout_ms=300,
            bootstrap_timeout_ms=1_500,
        )
        with pytest.raises(KafkaError, match="did not complete the SASL log-in within"):
            consumer.partitions_for_topic("t")
        begun = time.monotonic()
        consumer.close()
        assert time.monotonic() - begun < 2
    release.set()


@pytest.mark.parametrize(
    "api", [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
)
@pytest.mark.parametrize("nth", [1, 2])
def test_close_waits_for_no_log_in(api: int, nth: int) -> None:
    """S-14, L-01: at each of its steps, and while a session is continued."""
    cluster = secured(session_lifetime_ms=1_000)
    cluster.faults.add(NeverAnswer(), api=api, nth=nth, times=None)
    with Stage(cluster, **SCRAM) as stage:
        consumer = stage.consumer(sasl_plain_password="secret")
        consumer.assign([T0])
        consumer.poll(timeout_ms=0)
        eventually(lambda: len([e for e in cluster.requests if e.api_key == api]) >= nth)
        begun = time.monotonic()
        consumer.close()
        assert time.monotonic() - begun < 2


def test_a_provider_that_fails_is_named() -> None:
    """S-06: with its exception as the cause."""

    def provider() -> str:
        raise LookupError("no vault")

    with Stage(secured(), **OAUTH) as stage:
        consumer = stage.consumer(sasl_oauth_token_provider=provider)
        with pytest.raises(AuthenticationError, match="the token provider failed") as refused:
            consumer.topics()
    assert refused.value.cause == "LookupError: no vault"
    assert isinstance(refused.value.__cause__, LookupError)


def test_a_password_that_is_changed_is_used_at_once() -> None:
    """S-06, S-13: by a callable; the consumer does not wait for the end of the back-off."""
    passwords = ["wrong"]
    with Stage(secured(), **SCRAM) as stage:
        consumer = stage.consumer(sasl_plain_password=lambda: passwords[-1])
        consumer.assign([T0])
        with pytest.raises(SaslAuthenticationError):
            consumer.topics()
        passwords.append("secret")
        begun = time.monotonic()
        found = 0

        def step() -> bool:
            nonlocal found
            with suppress(SaslAuthenticationError):
                found += sum(len(rows) for rows in consumer.poll(timeout_ms=200).values())
            return found == 20

        eventually(step)
        assert time.monotonic() - begun < 6
        sasl = stage.cluster.sasl
        assert sasl is not None
        assert sasl.refusals == 1


def test_a_refusal_is_raised_within_its_time_by_every_call() -> None:
    """S-06: not after the timeout of the call, and with one log-in."""
    calls: list[Callable[[KafkaConsumer], object]] = [
        lambda c: c.poll(timeout_ms=30_000),
        lambda c: c.poll(timeout_ms=0),
        lambda c: c.partitions_for_topic("t"),
        lambda c: c.topics(),
        lambda c: c.end_offsets([T0]),
        lambda c: c.position(T0),
        lambda c: c.committed(T0),
        lambda c: next(iter(c)),
        lambda c: kfast.read_topic("t", **settings),
    ]
    with Stage(secured()) as stage:
        settings: dict[str, Any] = {
            "bootstrap_servers": stage.server.bootstrap_servers,
            **SCRAM,
            "sasl_plain_password": "wrong",
        }
        consumer = stage.consumer(group_id="g", **SCRAM, sasl_plain_password="wrong")
        consumer.assign([T0])
        for call in calls:
            begun = time.monotonic()
            with pytest.raises(SaslAuthenticationError, match='login failed for user "app"'):
                call(consumer)
            assert time.monotonic() - begun < 2
        sasl = stage.cluster.sasl
        assert sasl is not None
        assert sasl.refusals == 2  # the consumer's, and that of read_topic


def test_refused_log_ins_leave_nothing_behind() -> None:
    """S-06: neither descriptors nor threads, of many consumers."""
    cluster = secured()
    with Stage(cluster, **SCRAM) as stage:
        servers = stage.server.bootstrap_servers
        before = 0
        for number in range(60):
            with (
                KafkaConsumer(
                    bootstrap_servers=servers, **SCRAM, sasl_plain_password=lambda: "wrong"
                ) as consumer,
                pytest.raises(SaslAuthenticationError),
            ):
                consumer.topics()
            if number == 10:
                before = len(os.listdir("/proc/self/fd"))
        assert len(os.listdir("/proc/self/fd")) <= before + 2
    eventually(lambda: not [t for t in threading.enumerate() if "kfast-login" in t.name])
    assert cluster.sasl is not None
    assert cluster.sasl.refusals == 60


def test_sessions_are_continued_on_sockets() -> None:
    """S-07: with the compiled receiver, while data flows."""
    cluster = secured(session_lifetime_ms=1_500)
    with Stage(cluster, **SCRAM) as stage:
        consumer = stage.consumer(sasl_plain_password="secret")
        consumer.assign([T0])
        seen = [offset for offset, _ in read(consumer, 20)[T0]]
        connections = cluster.connections_made
        until = time.monotonic() + 3
        while time.monotonic() < until:
            cluster.append("t", 0, [b"x"] * 10)
            seen += [offset for offset, _ in read(consumer, 10)[T0]]
        assert seen == list(range(len(seen)))
        assert cluster.connections_made == connections
        assert cluster.sasl is not None
        assert cluster.sasl.reauthentications >= 2


# --- secrets --------------------------------------------------------------------------------------

MARK = "S3cr3tM4rk"
FORMS = (MARK, base64.b64encode(MARK.encode()).decode()[:-4], MARK.encode().hex())


class Provider:
    """A provider whose ``repr`` shows what it should not."""

    def token(self) -> str:
        return f"{MARK}.{MARK}"

    def __repr__(self) -> str:
        return f"Provider({MARK})"


def failing() -> str:
    raise LookupError(f"nothing but {MARK}.{MARK}")


PLAIN = {**SCRAM, "sasl_mechanism": "PLAIN"}
LINE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ENDPOINT = {
    "sasl_oauthbearer_token_endpoint_url": "http://127.0.0.1:1/token",
    "sasl_oauthbearer_client_credentials_client_id": "app",
    "sasl_oauthbearer_client_credentials_client_secret": MARK,
}
MALFORMED = EditResponse(lambda m, e: setattr(m, "auth_bytes", b"r=x"))

LEAKS: dict[str, tuple[dict[str, Any], tuple[Any, int] | None]] = {
    "wrong password, PLAIN": ({**PLAIN, "sasl_plain_password": MARK}, None),
    "wrong password, SCRAM": ({**SCRAM, "sasl_plain_password": MARK}, None),
    "password callable": ({**SCRAM, "sasl_plain_password": lambda: MARK}, None),
    "password callable of bytes": ({**PLAIN, "sasl_plain_password": MARK.encode}, None),
    "delegation token": (
        {**SCRAM, "sasl_plain_password": MARK, "sasl_delegation_token": True},
        None,
    ),
    "token provider that raises": ({**OAUTH, "sasl_oauth_token_provider": failing}, None),
    "refused token": ({**OAUTH, "sasl_oauth_token_provider": Provider()}, None),
    "JAAS line": (
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_jaas_config": f'{LINE} username="app" password="{MARK}";',
        },
        None,
    ),
    "malformed JAAS line": ({**PLAIN, "sasl_jaas_config": f'{LINE} password="{MARK}'}, None),
    "token endpoint": (
        {**OAUTH, **ENDPOINT, "socket_connection_setup_timeout_ms": 300},
        None,
    ),
    "token endpoint over http": (
        {**OAUTH, **ENDPOINT, "sasl_oauthbearer_token_endpoint_url": "http://x/"},
        None,
    ),
    "mechanism off": ({**PLAIN, "sasl_plain_password": MARK}, (TopLevelError(33), 17)),
    "no SASL": ({**PLAIN, "sasl_plain_password": MARK}, (TopLevelError(34), 17)),
    "malformed challenge": ({**SCRAM, "sasl_plain_password": MARK}, (MALFORMED, 36)),
    "hangs": (
        {**PLAIN, "sasl_plain_password": MARK, "socket_connection_setup_timeout_ms": 300}
        | {"bootstrap_timeout_ms": 800},
        (NeverAnswer(), 36),
    ),
    "wrong type": ({**PLAIN, "sasl_plain_password": [MARK]}, None),
    "not UTF-8": ({**PLAIN, "sasl_plain_password": f"{MARK}\ud800"}, None),
    "given twice": ({**PLAIN, "sasl_plain_password": MARK, "sasl_password": MARK + "2"}, None),
    "misspelled": ({**PLAIN, "sasl_plain_pasword": MARK}, None),
    "not used": ({"sasl_plain_password": MARK, "sasl_mechanism": "nonsense"}, None),
    "a proxy": ({"proxy_url": f"http://u:{MARK}@p"}, None),
    "no mechanism": ({"security_protocol": "SASL_SSL", "sasl_plain_password": MARK}, None),
    "another setting": ({**PLAIN, "sasl_plain_password": MARK, "fetch_min_bytes": "x"}, None),
    "a topic": ({**PLAIN, "sasl_plain_password": MARK, "topic": "no/topic"}, None),
}


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logging.raiseExceptions = True
    with caplog.at_level(logging.DEBUG):
        yield caplog


@pytest.mark.parametrize("name", LEAKS)
def test_no_secret_is_shown(name: str, everything_logged: pytest.LogCaptureFixture) -> None:
    """S-09: neither in messages nor in logs, nor by the local variables of a traceback."""
    settings, fault = LEAKS[name]
    cluster = secured(users={"app": "other"})
    if fault is not None:
        cluster.faults.add(fault[0], api=fault[1], times=None)
    shown: list[str] = []
    topics = (settings.pop("topic"),) if "topic" in settings else ()
    with Stage(cluster) as stage:
        servers = stage.server.bootstrap_servers
        for ask in (_consume, kfast.read_topic):
            error = _error_of(ask, topics, bootstrap_servers=servers, **settings)
            if error is not None:
                shown += _everything_of(error)
    shown += everything_logged.messages
    shown += [repr(record.args) for record in everything_logged.records]
    assert shown or name == "not used"
    for text in shown:
        assert not any(form in text for form in FORMS), text


def _consume(*topics: str, **settings: Any) -> None:
    with KafkaConsumer(*topics, **settings) as consumer:
        assert MARK not in repr(consumer)
        consumer.partitions_for_topic("t")
        consumer.metrics()


def _error_of(ask: Any, topics: tuple[str, ...], **settings: Any) -> BaseException | None:
    try:
        ask(*(topics or (("t",) if ask is kfast.read_topic else ())), **settings)
    except KafkaError as error:
        return error
    return None


def _everything_of(error: BaseException) -> list[str]:
    """Return every text that a tool may show of an error; of kfast's frames the variables, too."""
    found = ["".join(traceback.format_exception(error))]
    each: BaseException | None = error
    while each is not None:
        found += [str(each), repr(each), repr(each.__dict__)]
        for frame, _ in traceback.walk_tb(each.__traceback__):
            name = frame.f_code.co_qualname
            if frame.f_code.co_filename.startswith(PACKAGE):
                found += [f"{name}: {k}={_shown(v)}" for k, v in frame.f_locals.items()]
        each = each.__cause__ or each.__context__
    return found


def _shown(value: object) -> str:
    try:
        return repr(value)
    except AttributeError:  # an object whose constructor has raised
        return object.__repr__(value)


def test_a_configuration_shows_no_secret() -> None:
    """S-09"""
    for settings, _ in LEAKS.values():
        with suppress(ConfigurationError):
            config = kfast.ConsumerConfig(bootstrap_servers="b:1", **settings)
            assert not any(form in repr(config) for form in FORMS)


def test_a_mechanism_that_is_not_there_is_raised_by_the_first_call() -> None:
    """S-06"""
    cluster = secured(mechanisms=("PLAIN", "OAUTHBEARER"))
    with Stage(cluster, **SCRAM) as stage:
        consumer = stage.consumer(sasl_plain_password="secret")
        with pytest.raises(UnsupportedSaslMechanismError) as refused:
            consumer.topics()
        assert refused.value.message == (
            f"{stage.server.bootstrap_servers} offers PLAIN, OAUTHBEARER; "
            "you asked for SCRAM-SHA-256"
        )
        assert [e.api_key for e in cluster.requests] == [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE]
