"""LocalKafka with security, with confluent-kafka, kafka-python and Kafka's own tools as clients."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import kfast
from kfast.errors import ConfigurationError, LocalKafkaError
from kfast.local.acl import Acl
from kfast.local.local_kafka import LocalKafka
from kfast.types import TopicPartition
from tests.document_examples import examples
from tests.integration import kerberos
from tests.integration.conftest import MECHANISMS, USERS
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.secured_clients import confluent_config, java_config, kafka_python_config
from tests.integration.support import (
    CONSOLE_CONSUMER,
    PATIENCE_SECONDS,
    confluent_rows,
    kafka_python_rows,
    unique,
    until,
)

SASL = ("SASL_PLAINTEXT", "SASL_SSL")
READERS = {"confluent-kafka": confluent_rows, "kafka-python": kafka_python_rows}
DENIED = confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
_groups = itertools.count(1)


@pytest.fixture(scope="module")
def topic(secured_kafka: LocalKafka) -> str:
    """Make a topic with one record, for all tests."""
    name = unique("login")
    secured_kafka.create_topic(name)
    KafkaWriter(secured_kafka.bootstrap("PLAINTEXT")).write(name, [b"hello"])
    return name


def read(kafka: LocalKafka, reader: str, topic: str, *login: str | None) -> list[bytes | None]:
    make = confluent_config if reader == "confluent-kafka" else kafka_python_config
    servers = kafka.bootstrap(login[0])
    rows = READERS[reader](servers, TopicPartition(topic, 0), configs=make(kafka, *login))
    return [row[4] for row in rows]


def first_error(config: Mapping[str, str], topic: str) -> confluent_kafka.KafkaError:
    """Return the first error of a confluent-kafka consumer that reads the topic."""
    errors: list[confluent_kafka.KafkaError] = []
    own = {"group.id": f"g{next(_groups)}", "enable.auto.commit": False, "error_cb": errors.append}
    consumer = confluent_kafka.Consumer({**config, **own})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])

        def found() -> confluent_kafka.KafkaError | None:
            message = consumer.poll(0.05)
            if message is not None:
                assert message.error() is not None, "it can read"
                errors.append(message.error())
            return errors[0] if errors else None

        error = until(found, "an error")
        assert error is not None
        return error
    finally:
        consumer.close()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", SASL)
def test_every_mechanism_logs_in(
    secured_kafka: LocalKafka, topic: str, protocol: str, mechanism: str, reader: str
) -> None:
    assert read(secured_kafka, reader, topic, protocol, "app", mechanism) == [b"hello"]


@pytest.mark.parametrize(
    "login", [("SSL", "app"), *itertools.product(SASL, ["app"], MECHANISMS)], ids="-".join
)
def test_kafkas_own_consumer_logs_in(
    secured_kafka: LocalKafka,
    topic: str,
    login: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={secured_kafka.token_endpoint}"
    monkeypatch.setenv("JDK_JAVA_OPTIONS", allowed)
    config = java_config(secured_kafka, tmp_path / "client.properties", *login)
    assert read_with_java(secured_kafka, login[0], topic, config) == ["hello"]


def read_with_java(kafka: LocalKafka, protocol: str, topic: str, config: Path) -> list[str]:
    text = kafka.run_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", kafka.bootstrap(protocol), "--topic", topic, "--partition", "0"),
        *("--offset", "earliest", "--max-messages", "1", "--timeout-ms", "20000"),
        *("--command-config", str(config)),
    )
    return text.splitlines()


def test_kafkas_own_consumer_logs_in_with_kerberos(
    kdc: kerberos.Kdc,
    secured_kafka: LocalKafka,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = kerberos.jaas(kdc.add_principal("app"), f"app@{kerberos.REALM}")
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
        f"sasl.kerberos.service.name=kafka\nsasl.jaas.config={line}\n"
    )
    monkeypatch.setenv("JDK_JAVA_OPTIONS", " ".join(kdc.java_options))
    assert read_with_java(secured_kafka, "SASL_PLAINTEXT", topic, path) == ["hello"]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("user", ["app", None])
def test_tls_with_and_without_a_client_certificate(
    secured_kafka: LocalKafka, topic: str, user: str | None, reader: str
) -> None:
    assert read(secured_kafka, reader, topic, "SSL", user) == [b"hello"]


def test_the_name_in_a_client_certificate_is_the_user(
    secured_kafka: LocalKafka, topic: str
) -> None:
    assert may_describe(secured_kafka, topic, "SSL", "app")
    assert not may_describe(secured_kafka, topic, "SSL", "noacl")


def may_describe(kafka: LocalKafka, topic: str, *login: str) -> bool:
    found = AdminClient(confluent_config(kafka, *login)).list_topics(topic, PATIENCE_SECONDS)
    error = found.topics[topic].error
    if error is None:
        return True
    assert error.code() == DENIED
    return False


def test_names_and_passwords_of_any_characters(secured_kafka: LocalKafka, topic: str) -> None:
    """Kafka's JAAS lines, properties files and SCRAM each have their own escapes."""
    assert not USERS["app"].isascii()
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        login = ("SASL_PLAINTEXT", "odd,na=me", mechanism)
        assert read(secured_kafka, "confluent-kafka", topic, *login) == [b"hello"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused(secured_kafka: LocalKafka, topic: str, mechanism: str) -> None:
    config = confluent_config(secured_kafka, "SASL_PLAINTEXT", "app", mechanism)
    error = first_error({**config, "sasl.password": "wrong"}, topic)
    assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION


def test_acls_count_at_once(secured_kafka: LocalKafka, topic: str) -> None:
    login = ("SASL_PLAINTEXT", "noacl")
    acls = Acl("User:noacl", "READ", topic=f"{topic[:-2]}*"), Acl("User:noacl", "READ", topic="x")
    assert not may_describe(secured_kafka, topic, *login)
    secured_kafka.add_acl(*acls)
    try:
        assert read(secured_kafka, "kafka-python", topic, *login) == [b"hello"]
    finally:
        secured_kafka.remove_acl(*acls)
    assert not may_describe(secured_kafka, topic, *login)
    secured_kafka.remove_acl(*acls)


def test_a_rule_may_deny(secured_kafka: LocalKafka, topic: str) -> None:
    rule = Acl("User:app", "READ", topic=topic, permission="DENY")
    secured_kafka.add_acl(rule)
    error = first_error(confluent_config(secured_kafka, "SASL_SSL", "app"), topic)
    assert error.code() == DENIED
    secured_kafka.remove_acl(rule)


@pytest.mark.parametrize(
    "claims", [{"lifetime_s": -100}, {"aud": "other"}, {"iss": "other"}, {"exp": None}]
)
def test_tokens_that_brokers_do_not_accept(
    secured_kafka: LocalKafka, topic: str, claims: dict[str, object]
) -> None:
    login = ("SASL_PLAINTEXT", "app", "OAUTHBEARER")
    token = secured_kafka.token("app", **claims)  # type: ignore[arg-type]
    config = confluent_config(secured_kafka, *login)
    own = {key: value for key, value in config.items() if "oauthbearer" not in key}

    def give(_: str) -> tuple[str, float]:
        return token, 4e9

    error = first_error({**own, "oauth_cb": give}, topic)  # type: ignore[dict-item]
    assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION


def test_a_changed_password_counts_at_once(secured_kafka: LocalKafka, topic: str) -> None:
    old = confluent_config(secured_kafka, "SASL_PLAINTEXT", "app", "SCRAM-SHA-256")
    secured_kafka.set_password("app", "another")
    try:
        assert first_error(old, topic).code() == confluent_kafka.KafkaError._AUTHENTICATION
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"):
            login = ("SASL_PLAINTEXT", "app", mechanism)
            assert read(secured_kafka, "confluent-kafka", topic, *login) == [b"hello"]
    finally:
        secured_kafka.set_password("app", USERS["app"])
    assert read(secured_kafka, "confluent-kafka", topic, "SASL_SSL", "app") == [b"hello"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("expired", "certificate has expired"),
        ("other_ca", "unable to get local issuer certificate"),
        ("elsewhere.example", "hostname mismatch|IP address mismatch"),
    ],
)
def test_the_brokers_certificate_changes_at_run_time(
    secured_kafka: LocalKafka, kind: str, text: str
) -> None:
    made = secured_kafka.certificates
    config = confluent_config(secured_kafka, "SASL_SSL")
    running = AdminClient(config)
    assert running.list_topics(timeout=PATIENCE_SECONDS).brokers
    secured_kafka.set_server_certificate(made.for_host(kind) if "." in kind else kind)
    try:
        for protocol in ("SSL", "SASL_SSL", "SSL", "SASL_SSL"):
            with pytest.raises(ssl.SSLCertVerificationError, match=text):
                connect_tls(secured_kafka, protocol)
        assert running.list_topics(timeout=PATIENCE_SECONDS).brokers  # over its connection
    finally:
        secured_kafka.set_server_certificate("server")
    for protocol in ("SSL", "SASL_SSL"):
        assert connect_tls(secured_kafka, protocol) == "TLSv1.3"


def connect_tls(kafka: LocalKafka, protocol: str, certificate: Path | None = None) -> str | None:
    """Connect with the standard library's TLS and trust; return its version."""
    import socket  # noqa: PLC0415

    context = ssl.create_default_context(cafile=kafka.certificates.ca)
    if certificate is not None:
        context.load_cert_chain(certificate)
    host, _, port = kafka.bootstrap(protocol).partition(":")
    with (
        socket.create_connection((host, int(port)), PATIENCE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        version = connection.version()
        connection.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))  # ApiVersions 0
        assert len(connection.recv(4)) == 4  # a refusal of TLS 1.3 arrives at the first read
        return version


def test_client_certificates_can_be_required(secured_kafka: LocalKafka) -> None:
    made = secured_kafka.certificates
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.unknown"):
        connect_tls(secured_kafka, "SSL", made.client("app", is_trusted=False))
    secured_kafka.set_client_auth("required")
    try:
        with pytest.raises(ssl.SSLError, match=r"(?i)bad.certificate"):
            connect_tls(secured_kafka, "SSL")
        assert connect_tls(secured_kafka, "SSL", made.client("app")) == "TLSv1.3"
        assert "ssl_keystore_location" in secured_kafka.client_config("SSL")
    finally:
        secured_kafka.set_client_auth("requested")
    assert connect_tls(secured_kafka, "SSL") == "TLSv1.3"
    assert "ssl_keystore_location" not in secured_kafka.client_config("SSL")


def test_certificates_that_brokers_refuse(secured_kafka: LocalKafka) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        secured_kafka.set_server_certificate("no-such-file.pem")
    broken = secured_kafka.certificates.folder / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(LocalKafkaError, match="broker 1 refuses new settings"):
        secured_kafka.set_server_certificate(broken)
    assert connect_tls(secured_kafka, "SSL") == "TLSv1.3"


def test_the_example_of_the_document(
    secured_kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def local_kafka(**parameters: Any) -> nullcontext[LocalKafka]:
        LocalKafka(**parameters)  # takes them; the one that runs is as good
        return nullcontext(secured_kafka)

    monkeypatch.setattr(kfast, "LocalKafka", local_kafka)
    (code,) = examples("docs/security.md", "A secured Kafka for tests")
    names: dict[str, Any] = {"kfast": kfast}
    exec(code, names)
    secured_kafka.remove_acl(Acl("User:app", "READ", topic="orders"))
    secured_kafka.delete_topic("orders")
    assert names["records"].count() == 0
