"""SASL and ACLs against a real Kafka: every mechanism, what it refuses, sessions, and rights."""

from __future__ import annotations

import importlib.util
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import kfast
from kfast import KafkaConsumer, OAuthToken, TopicPartition
from kfast.errors import (
    AuthenticationError,
    GroupAuthorizationError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationError,
    TopicAuthorizationError,
)
from kfast.local.acl import Acl
from kfast.local.local_kafka import LocalKafka
from tests.integration import kerberos
from tests.integration.conftest import MECHANISMS, USERS, TopicFactory
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.secured_clients import java_config, refusals_logged
from tests.integration.support import unique, until
from tests.soaking import soaking

SASL = ("SASL_PLAINTEXT", "SASL_SSL")
MODULE = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def topic(secured_kafka: LocalKafka) -> str:
    """Make a topic with one record, for all tests."""
    name = unique("sasl")
    secured_kafka.create_topic(name)
    KafkaWriter(secured_kafka.bootstrap("PLAINTEXT")).write(name, [b"hello"])
    return name


@contextmanager
def consumer(kafka: LocalKafka, *login: str | None, **configs: Any) -> Iterator[KafkaConsumer]:
    """Make a consumer that logs in as ``client_config(*login)`` says."""
    settings = {**kafka.client_config(*login), "auto_offset_reset": "earliest", **configs}
    with KafkaConsumer(**settings) as made:
        yield made


def values(reader: KafkaConsumer, topic: str, count: int = 1) -> list[bytes | None]:
    """Assign the topic's partition and read so many records."""
    reader.assign([TopicPartition(topic, 0)])
    found: list[bytes | None] = []

    def step() -> bool:
        for rows in reader.poll(timeout_ms=200).values():
            found.extend(row.value for row in rows)
        return len(found) >= count

    until(step, f"{count} records")
    return found


def refused(ask: Callable[[], object], within_s: float = 2) -> KafkaError:
    """Return the error that a call raises, in time."""
    begun = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        ask()
    assert time.monotonic() - begun < within_s
    return caught.value


# --- logging in -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", SASL)
def test_every_mechanism_logs_in(
    secured_kafka: LocalKafka, topic: str, protocol: str, mechanism: str
) -> None:
    """S-01, S-04: to the bootstrap server and to the broker that metadata names."""
    with consumer(secured_kafka, protocol, "app", mechanism) as reader:
        assert values(reader, topic) == [b"hello"]


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.parametrize(
    ("module", "mechanism"),
    [("plain.PlainLoginModule", "PLAIN"), ("scram.ScramLoginModule", "SCRAM-SHA-512")],
)
def test_a_line_for_java_logs_in(
    secured_kafka: LocalKafka, topic: str, module: str, mechanism: str
) -> None:
    """S-04: the same line that Kafka's own consumer takes."""
    line = f"{MODULE}.{module} required username=app password={quoted(USERS['app'])};"
    settings = secured_kafka.client_config("SASL_SSL", "app", mechanism)
    ours = {k: v for k, v in settings.items() if not k.startswith("sasl_plain")}
    with KafkaConsumer(**ours, sasl_jaas_config=line, auto_offset_reset="earliest") as reader:
        assert values(reader, topic) == [b"hello"]


def test_a_token_provider_logs_in(secured_kafka: LocalKafka, topic: str) -> None:
    """S-04: the broker reports the token's remaining life as the session's."""
    asked: list[int] = []

    def provider() -> OAuthToken:
        asked.append(1)
        return OAuthToken(secured_kafka.token("app", lifetime_s=3))

    settings = provided(secured_kafka, provider)
    with KafkaConsumer(**settings) as reader:
        assert values(reader, topic) == [b"hello"]
        connections = reader.health().connections
        until(lambda: reader.poll(timeout_ms=100) is not None and len(asked) >= 3, "new tokens")
        assert reader.health().connections == connections


def provided(kafka: LocalKafka, provider: object) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
        "auto_offset_reset": "earliest",
    }


def test_bulk_functions_take_the_same_settings(secured_kafka: LocalKafka, topic: str) -> None:
    """S-04"""
    records = kfast.read_topic(topic, **secured_kafka.client_config("SASL_SSL", "app"))
    assert records.count() == 1


def test_a_delegation_token_logs_in(secured_kafka: LocalKafka, topic: str, tmp_path: Path) -> None:
    """S-04: with both SCRAMs; without the extension it is a wrong password."""
    login = java_config(secured_kafka, tmp_path / "client.properties", "SASL_PLAINTEXT", "app")
    made = secured_kafka.run_tool(
        "org.apache.kafka.tools.DelegationTokenCommand",
        *("--bootstrap-server", secured_kafka.bootstrap("SASL_PLAINTEXT")),
        *("--create", "--max-life-time-period", "-1", "--command-config", str(login)),
    )
    token_id, hmac, *_ = made.splitlines()[-1].split()
    wrong: dict[str, Any] = {"sasl_plain_username": token_id, "sasl_plain_password": hmac}
    right = {**wrong, "sasl_delegation_token": True}

    def is_known() -> bool:
        with consumer(secured_kafka, "SASL_SSL", "app", "SCRAM-SHA-256", **right) as reader:
            try:
                return bool(reader.topics())
            except SaslAuthenticationError:  # the controller has it, the broker not yet
                return False

    until(is_known, "the broker knows the token")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with consumer(secured_kafka, "SASL_SSL", "app", mechanism, **right) as reader:
            assert values(reader, topic) == [b"hello"]
        with consumer(secured_kafka, "SASL_SSL", "app", mechanism, **wrong) as reader:
            assert type(refused(reader.topics)) is SaslAuthenticationError


def test_kerberos_logs_in(
    kdc: kerberos.Kdc, secured_kafka: LocalKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-15: with a keytab, and as Java's line says it."""
    if importlib.util.find_spec("gssapi") is None:
        pytest.skip("no gssapi package: GSSAPI was not tested")
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.folder}/kfast.cc")
    keytab, principal = str(kdc.add_principal("app")), f"app@{kerberos.REALM}"
    ours: dict[str, Any] = {
        "bootstrap_servers": secured_kafka.bootstrap("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "auto_offset_reset": "earliest",
    }
    by_line: dict[str, Any] = {
        "sasl_jaas_config": kerberos.jaas(kdc.folder / "app.keytab", principal)
    }
    by_key: dict[str, Any] = {"sasl_kerberos_keytab": keytab, "sasl_kerberos_principal": principal}
    for login in (by_key, by_line):
        with KafkaConsumer(**ours, **login) as reader:
            assert values(reader, topic) == [b"hello"]
    wrong = {**by_key, "sasl_kerberos_service_name": "nosuchservice"}
    with KafkaConsumer(**ours, **wrong) as reader:
        error = refused(reader.topics, 5)
    assert isinstance(error, AuthenticationError)
    assert error.message.startswith("no Kerberos ticket for nosuchservice@")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", SASL)
@pytest.mark.parametrize("user", ["app", "nosuchuser"])
def test_a_wrong_password_is_raised_at_once(
    secured_kafka: LocalKafka, protocol: str, mechanism: str, user: str
) -> None:
    """S-06: one log-in by the broker's log, whatever is called how often."""
    wrong = {"sasl_plain_username": user, "sasl_plain_password": "wrong"}
    before = refusals_logged(secured_kafka)
    with consumer(secured_kafka, protocol, "app", mechanism, **wrong) as reader:
        errors = [refused(reader.topics) for _ in range(20)]
    assert refusals_logged(secured_kafka) == before + 1
    assert {type(error) for error in errors} == {SaslAuthenticationError}
    lines = str(errors[0]).splitlines()
    address = secured_kafka.bootstrap(protocol)
    assert lines[0] == f'login failed for user "{user}" ({mechanism}) on {address}'
    assert lines[1].endswith("SASL_AUTHENTICATION_FAILED (error 58)")
    assert lines[2].startswith('found: "Authentication failed')
    assert lines[3] == "try: check sasl_plain_username and sasl_plain_password"


@pytest.mark.parametrize(
    ("claims", "cause"),
    [
        ({"lifetime_s": -100}, r"refused the token \(invalid_token\), which expired 1\d\d s ago"),
        ({"aud": "other"}, r"the broker refused the token \(invalid_token\)$"),
        ({"iss": "other"}, r"the broker refused the token \(invalid_token\)$"),
    ],
)
def test_a_token_that_is_refused(
    secured_kafka: LocalKafka, claims: dict[str, Any], cause: str
) -> None:
    """S-06: with the broker's reason, and how long ago it expired."""
    settings = provided(secured_kafka, lambda: secured_kafka.token("app", **claims))
    before = refusals_logged(secured_kafka)
    with KafkaConsumer(**settings) as reader:
        error, *_ = [refused(reader.topics) for _ in range(5)]
    assert refusals_logged(secured_kafka) == before + 1
    assert type(error) is SaslAuthenticationError
    address = secured_kafka.bootstrap("SASL_PLAINTEXT")
    assert error.message == f'login failed for user "app" (OAUTHBEARER) on {address}'
    assert error.cause is not None
    with pytest.raises(AssertionError, match=cause):
        raise AssertionError(error.cause)


def test_a_wrong_client_secret_is_the_endpoints_refusal(secured_kafka: LocalKafka) -> None:
    """S-06"""
    wrong = {"sasl_oauthbearer_client_credentials_client_secret": "wrong"}
    with consumer(secured_kafka, "SASL_PLAINTEXT", "app", "OAUTHBEARER", **wrong) as reader:
        error = refused(reader.topics)
    assert type(error) is AuthenticationError
    assert error.message.startswith(
        'no OAuth token: the token endpoint refused client "app": 401 invalid_client'
    )


def test_a_listener_without_sasl(secured_kafka: LocalKafka) -> None:
    """S-06: final at once, whatever the credentials are."""
    servers = secured_kafka.bootstrap("PLAINTEXT")
    login: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "app",
        "sasl_plain_password": "x",
    }
    with KafkaConsumer(bootstrap_servers=servers, **login) as reader:
        error = refused(reader.topics)
    assert type(error) is IllegalSaslStateError
    assert str(error).splitlines() == [
        f"{servers} has no SASL: this looks like a PLAINTEXT listener",
        'try: security_protocol="PLAINTEXT", or the port of the SASL listener',
    ]


def test_a_tls_listener_without_sasl(secured_kafka: LocalKafka) -> None:
    """S-06"""
    servers = secured_kafka.bootstrap("SSL")
    with consumer(secured_kafka, "SASL_SSL", "app", bootstrap_servers=servers) as reader:
        error = refused(reader.topics)
    assert type(error) is IllegalSaslStateError
    assert error.message == f"{servers} has no SASL: this looks like an SSL listener"


def test_a_listener_with_sasl_that_is_not_asked_for_it(secured_kafka: LocalKafka) -> None:
    """S-06"""
    servers = secured_kafka.bootstrap("SASL_PLAINTEXT")
    with KafkaConsumer(bootstrap_servers=servers) as reader:
        error = refused(reader.topics)
    assert type(error) is KafkaConnectionError
    assert error.message == (
        f"{servers} sent its versions and closed the connection at the first request"
    )
    assert error.hint == 'security_protocol="SASL_PLAINTEXT" and sasl_mechanism'


def test_passwords_change_while_a_consumer_runs(secured_kafka: LocalKafka, topic: str) -> None:
    """S-06: the sessions that are open go on; a callable brings the new password."""
    passwords = [USERS["app"]]
    login = {"sasl_plain_password": lambda: passwords[-1]}
    with consumer(secured_kafka, "SASL_PLAINTEXT", "app", "SCRAM-SHA-512", **login) as reader:
        assert values(reader, topic) == [b"hello"]
        secured_kafka.set_password("app", "another")
        try:
            assert reader.partitions_for_topic(topic) == {0}
            with consumer(
                secured_kafka, "SASL_PLAINTEXT", "app", "SCRAM-SHA-512", **login
            ) as second:
                assert type(refused(second.topics)) is SaslAuthenticationError
                passwords.append("another")
                until(lambda: works(second.topics), "the new password is used")
        finally:
            secured_kafka.set_password("app", USERS["app"])


def works(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except KafkaError:
        return False
    return True


def test_refused_log_ins_leave_nothing_behind(secured_kafka: LocalKafka) -> None:
    """S-06: neither descriptors nor threads."""
    settings = secured_kafka.client_config("SASL_PLAINTEXT", "app", "PLAIN")
    settings["sasl_plain_password"] = lambda: "wrong"
    before = 0
    for number in range(7):
        with KafkaConsumer(**settings) as reader:
            refused(reader.topics)
        if number == 2:
            before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= before


# --- sessions -------------------------------------------------------------------------------------

SHORT = ("SASL_PLAINTEXT", "app", "SCRAM-SHA-256")
LOADED_SECONDS: Final = soaking(5, 30)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["assign", "classic", "consumer"])
def test_sessions_are_continued_under_load(
    secured_kafka: LocalKafka,
    new_secured_topic: TopicFactory,
    secured_writer: KafkaWriter,
    mode: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S-07: each offset once, one assignment, no new connection."""
    topic = new_secured_topic()
    group = {} if mode == "assign" else {"group_id": unique("g"), "group_protocol": mode}
    assigned: list[object] = []

    class Listener(kfast.ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions: Any) -> None:
            assigned.append(partitions)

    seen: list[int] = []
    written = 0
    with (
        caplog.at_level(logging.DEBUG, "kfast.network"),
        consumer(secured_kafka, *SHORT, **group) as reader,
    ):
        if group:
            reader.subscribe([topic], listener=Listener())
        else:
            reader.assign([TopicPartition(topic, 0)])
        until_s = time.monotonic() + LOADED_SECONDS
        while time.monotonic() < until_s or len(seen) < written:
            if time.monotonic() < until_s:
                written += len(secured_writer.write(topic, [b"x"] * 200))
            for rows in reader.poll(timeout_ms=100).values():
                seen += rows.offsets.tolist()
    assert seen == list(range(written))
    assert len(assigned) == (1 if group else 0)
    again = [text for text in caplog.messages if text.startswith("authenticating again")]
    assert len(again) >= soaking(1, 12)
    lost = [text for text in caplog.messages if "lost the connection" in text]
    assert not lost


def test_a_broker_restarts_between_two_log_ins(
    secured_kafka: LocalKafka, new_secured_topic: TopicFactory, secured_writer: KafkaWriter
) -> None:
    """S-07, N-09: the member logs in afresh and reads on, with the same assignment."""
    topic = new_secured_topic()
    assigned: list[object] = []

    class Listener(kfast.ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions: Any) -> None:
            assigned.append(partitions)

    seen: list[int] = []
    with consumer(secured_kafka, *SHORT, group_id=unique("g")) as reader:
        reader.subscribe([topic], listener=Listener())

        def read_to(count: int) -> None:
            def step() -> bool:
                for rows in reader.poll(timeout_ms=100).values():
                    seen.extend(rows.offsets.tolist())
                return len(seen) >= count

            until(step, f"{count} records")

        secured_writer.write(topic, [b"x"] * 100)
        read_to(100)
        with ThreadPoolExecutor(1) as threads:
            restarted = threads.submit(secured_kafka.restart_node, 1)
            until(lambda: reader.poll(timeout_ms=100) is not None and restarted.done(), "it runs")
            restarted.result()
        KafkaWriter(secured_kafka.bootstrap("PLAINTEXT")).write(topic, [b"x"] * 100)
        read_to(200)
        reader.commit()
    assert seen == list(range(200))
    assert len(assigned) == 1


# --- ACLs -----------------------------------------------------------------------------------------


def test_a_denied_topic_is_named_and_others_flow(
    secured_kafka: LocalKafka,
    new_secured_topic: TopicFactory,
    secured_writer: KafkaWriter,
) -> None:
    """S-08: by each poll while it lasts, and read on from its position once granted."""
    allowed, denied = new_secured_topic(), new_secured_topic()
    rule = Acl("User:app", "READ", topic=denied, permission="DENY")
    secured_writer.write(denied, [b"0", b"1"])
    with consumer(secured_kafka, "SASL_PLAINTEXT", "app", retry_backoff_max_ms=200) as reader:
        assert values(reader, denied, 2) == [b"0", b"1"]
        reader.assign([TopicPartition(allowed, 0), TopicPartition(denied, 0)])
        secured_kafka.add_acl(rule)
        seen: list[bytes | None] = []
        errors: list[TopicAuthorizationError] = []

        def step() -> bool:
            try:
                for rows in reader.poll(timeout_ms=100).values():
                    seen.extend(row.value for row in rows)
            except TopicAuthorizationError as error:
                errors.append(error)
            return False

        try:
            until(lambda: step() or len(errors) >= 2, "the denial is raised")
            secured_writer.write(denied, [b"2"])
            secured_writer.write(allowed, [b"flows"])
            until(lambda: step() or seen == [b"flows"], "the other topic flows")
            count = len(errors)
            until(lambda: step() or len(errors) > count, "it is raised again")
        finally:
            secured_kafka.remove_acl(rule)
        until(lambda: step() or b"2" in seen, "the topic is read again")
    assert seen == [b"flows", b"2"]
    assert {error.topic for error in errors} == {denied}
    assert str(errors[0]).splitlines() == [
        f'user "app" may not read topic {denied}',
        "cause: TOPIC_AUTHORIZATION_FAILED (error 29)",
        f"try: kafka-acls.sh --add --allow-principal User:app --operation READ --topic {denied}",
    ]


def test_a_topic_that_may_not_be_described(secured_kafka: LocalKafka, topic: str) -> None:
    """S-08"""
    with consumer(secured_kafka, "SASL_PLAINTEXT", "noacl") as reader:
        error = refused(lambda: reader.partitions_for_topic(topic))
    assert str(error).splitlines() == [
        f'user "noacl" may not describe topic {topic}',
        "cause: TOPIC_AUTHORIZATION_FAILED (error 29)",
        f"try: kafka-acls.sh --add --allow-principal User:noacl --operation READ --topic {topic}",
    ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_denied_group_is_named_and_joined_once_granted(
    secured_kafka: LocalKafka, topic: str, protocol: str
) -> None:
    """S-08"""
    group = unique("denied")
    rules = [
        Acl("User:noacl", "READ", topic=topic),
        Acl("User:noacl", "READ", group=group),
    ]
    secured_kafka.add_acl(rules[0])
    try:
        with consumer(
            secured_kafka, "SASL_PLAINTEXT", "noacl", group_id=group, group_protocol=protocol
        ) as reader:
            reader.subscribe([topic])
            errors: list[KafkaError] = []
            seen: list[bytes | None] = []

            def step() -> bool:
                try:
                    for rows in reader.poll(timeout_ms=100).values():
                        seen.extend(row.value for row in rows)
                except GroupAuthorizationError as error:
                    errors.append(error)
                return False

            until(lambda: step() or len(errors) >= 2, "the denial is raised again")
            secured_kafka.add_acl(rules[1])
            until(lambda: step() or bool(seen), "the group is joined")
    finally:
        secured_kafka.remove_acl(*rules)
    assert str(errors[0]).splitlines() == [
        f'user "noacl" may not use group {group}',
        "cause: GROUP_AUTHORIZATION_FAILED (error 30)",
        f"try: kafka-acls.sh --add --allow-principal User:noacl --operation READ --group {group}",
    ]
