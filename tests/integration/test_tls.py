"""TLS against a real Apache Kafka: certificates of brokers and clients, and wrong listeners."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kfast import KafkaConsumer, read_topic
from kfast.client.cluster import Node
from kfast.client.node_addresses import Address
from kfast.errors import KafkaConnectionError, KafkaError, SslAuthenticationError
from kfast.local.local_kafka import LocalKafka
from kfast.security.tls.transport import TlsTransport, TlsTransportFactory
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.relay import relaying
from tests.integration.secured_clients import refusals_logged
from tests.integration.support import until

LIMIT_MS = 30_000


@pytest.fixture(scope="module")
def topic(secured_kafka: LocalKafka) -> str:
    """A topic with 100 records."""
    name = "tls"
    secured_kafka.create_topic(name, 2)
    writer = KafkaWriter(secured_kafka.bootstrap("PLAINTEXT"))
    writer.write(name, [b"%d" % number for number in range(100)])
    return name


@pytest.fixture
def required(secured_kafka: LocalKafka) -> Iterator[LocalKafka]:
    """The cluster, whose SSL listener wants client certificates."""
    secured_kafka.set_client_auth("required")
    yield secured_kafka
    secured_kafka.set_client_auth("requested")


def values(topic: str, settings: dict[str, Any]) -> list[int]:
    return sorted(int(value) for value in read_topic(topic, **settings).to_arrow()["value"])


def refusal(
    kafka: LocalKafka, topic: str, settings: dict[str, Any], kind: type[KafkaError]
) -> list[str]:
    """Return the lines of what the first poll raises, in which the port is 9094.

    A certificate is refused once, whichever side does it.
    """
    before = refusals_logged(kafka)
    with KafkaConsumer(topic, **settings) as consumer:
        began = time.monotonic()
        with pytest.raises(kind) as caught:
            consumer.poll(timeout_ms=LIMIT_MS)
        assert time.monotonic() - began < 2
    assert type(caught.value) is kind
    if kind is SslAuthenticationError:
        until(lambda: refusals_logged(kafka) == before + 1, "the broker logs one refusal")
    port = settings["bootstrap_servers"].rpartition(":")[2]
    return str(caught.value).replace(f":{port}", ":9094").splitlines()


@pytest.fixture(scope="module")
def numbers(secured_kafka: LocalKafka) -> str:
    """A topic with 1000 records of 2 KB that begin with their number."""
    name = "tls-numbers"
    secured_kafka.create_topic(name)
    writer = KafkaWriter(secured_kafka.bootstrap("PLAINTEXT"))
    values = [b"%05d" % number + bytes(2_000) for number in range(1_000)]
    writer.write(name, values, batch_records=10)
    return name


def test_a_topic_over_tls(secured_kafka: LocalKafka, topic: str) -> None:
    """S-01: brokers of metadata are reached with TLS, too."""
    assert values(topic, secured_kafka.client_config("SSL")) == list(range(100))


def test_many_bytes_over_tls(
    secured_kafka: LocalKafka, new_secured_topic: TopicFactory, secured_writer: KafkaWriter
) -> None:
    """S-01, B-06: each record once, also with little memory."""
    name = new_secured_topic(3)
    secured_writer.write(name, [b"%05d" % number + bytes(5_000) for number in range(6_000)])
    settings = secured_kafka.client_config("SSL") | {"buffer_memory_bytes": 1 << 20}
    found: list[int] = []
    with KafkaConsumer(name, auto_offset_reset="earliest", **settings) as consumer:
        for batch in consumer.batches(timeout_ms=LIMIT_MS):
            found += [int(bytes(value)[:5]) for value in batch.values.to_list()]
            if len(found) >= 6_000:
                break
    assert sorted(found) == list(range(6_000))


@pytest.mark.parametrize(
    "faults",
    [
        {"cut_bytes": 150_000},
        {"cut_bytes": 200_000, "most_bytes": 5_000},
        {"most_bytes": 700, "delay_s": 0.0002},
    ],
    ids=["cut", "cut-small", "slow"],
)
def test_a_bad_network(
    secured_kafka: LocalKafka,
    numbers: str,
    monkeypatch: pytest.MonkeyPatch,
    faults: dict[str, Any],
) -> None:
    """S-01: streams that are cut and pieces of any size; each record once and in order."""
    settings = secured_kafka.client_config("SSL")
    host, port = settings["bootstrap_servers"].rsplit(":", 1)
    with relaying((host, int(port))) as relay:
        for name, value in faults.items():
            setattr(relay, name, value)
        connect = TlsTransportFactory.__call__

        def connect_to_relay(
            factory: TlsTransportFactory, node: Node, address: Address
        ) -> TlsTransport:
            return connect(factory, node, Address(address.family, relay.address))

        monkeypatch.setattr(TlsTransportFactory, "__call__", connect_to_relay)
        found: list[int] = []
        settings |= {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 20}
        settings |= {"fetch_max_bytes": 200_000, "max_partition_fetch_bytes": 50_000}
        with KafkaConsumer(numbers, auto_offset_reset="earliest", **settings) as consumer:
            for batch in consumer.batches(timeout_ms=LIMIT_MS):
                found += [int(bytes(value)[:5]) for value in batch.values.to_list()]
                if len(found) >= 1_000:
                    break
        assert found == list(range(1_000))
        assert relay.connections > (10 if "cut_bytes" in faults else 0)


# --- client certificates --------------------------------------------------------------------------


def pem_file(kafka: LocalKafka, folder: Path) -> dict[str, Any]:
    return {"ssl_keystore_location": kafka.certificates.client("app")}


def encrypted_key(kafka: LocalKafka, folder: Path) -> dict[str, Any]:
    return {
        "ssl_certfile": kafka.certificates.client("app", password="S3cr3t"),
        "ssl_password": "S3cr3t",
    }


def texts(kafka: LocalKafka, folder: Path) -> dict[str, Any]:
    pem = kafka.certificates.client("app").read_text()
    ca = kafka.certificates.ca.read_text().replace("\n", "\\n")
    return {
        "ssl_keystore_certificate_chain": pem,
        "ssl_keystore_key": pem,
        "ssl_truststore_location": None,
        "ssl_truststore_certificates": ca,
    }


def pkcs12_stores(kafka: LocalKafka, folder: Path) -> dict[str, Any]:
    pem = kafka.certificates.client("app").read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    leaf = x509.load_pem_x509_certificate(pem)
    protection = serialization.BestAvailableEncryption(b"S3cr3t")
    store = pkcs12.serialize_key_and_certificates(b"app", key, leaf, None, protection)  # type: ignore[arg-type]
    (folder / "app.p12").write_bytes(store)
    ca = x509.load_pem_x509_certificate(kafka.certificates.ca.read_bytes())
    trusted = [pkcs12.PKCS12Certificate(ca, b"ca")]
    trust = pkcs12.serialize_key_and_certificates(None, None, None, trusted, protection)
    (folder / "trust.p12").write_bytes(trust)
    return {
        "ssl_keystore_location": folder / "app.p12",
        "ssl_keystore_password": lambda: "S3cr3t",
        "ssl_truststore_location": folder / "trust.p12",
        "ssl_truststore_password": "S3cr3t",
    }


@pytest.mark.parametrize("form", [pem_file, encrypted_key, texts, pkcs12_stores])
def test_a_client_certificate(
    required: LocalKafka,
    topic: str,
    tmp_path: Path,
    form: Callable[[LocalKafka, Path], dict[str, Any]],
) -> None:
    """S-03: in every form, for a user who may read."""
    settings = required.client_config("SSL", "app")
    settings.pop("ssl_keystore_location")
    assert values(topic, settings | form(required, tmp_path)) == list(range(100))


def test_no_client_certificate(required: LocalKafka, topic: str) -> None:
    """S-02"""
    settings = required.client_config("SSL", "app")
    settings.pop("ssl_keystore_location")
    assert refusal(required, topic, settings, SslAuthenticationError) == [
        "127.0.0.1:9094 wants a client certificate",
        "cause: it refused a connection without one (alert bad_certificate)",
        "try: ssl_certfile and ssl_keyfile",
    ]


def test_a_client_certificate_of_a_stranger(required: LocalKafka, topic: str) -> None:
    """S-02"""
    settings = required.client_config("SSL", "app")
    settings["ssl_keystore_location"] = required.certificates.client("app", is_trusted=False)
    lines = refusal(required, topic, settings, SslAuthenticationError)
    assert lines[0] == (
        '127.0.0.1:9094 refused the client certificate "CN=app" (alert certificate_unknown)'
    )
    assert lines[1].startswith("found: valid until ")
    assert lines[1].endswith(', issued by "Other CA"')
    assert lines[2] == "try: a certificate signed by a CA the broker trusts"


# --- certificates of brokers ----------------------------------------------------------------------


def test_an_authority_that_is_not_trusted(secured_kafka: LocalKafka, topic: str) -> None:
    """S-02"""
    settings = secured_kafka.client_config("SSL")
    other = settings["ssl_truststore_location"] = str(secured_kafka.certificates.other_ca)
    lines = refusal(secured_kafka, topic, settings, SslAuthenticationError)
    assert lines[:2] == [
        "the certificate of 127.0.0.1:9094 is not trusted",
        f'cause: its issuer "LocalKafka CA" is not in {other}',
    ]
    assert lines[2].startswith('found: certificate "localhost", chain of ')
    assert lines[3] == 'try: ssl_cafile="..." with the CA that signed it'
    del settings["ssl_truststore_location"]
    lines = refusal(secured_kafka, topic, settings, SslAuthenticationError)
    assert lines[1] == 'cause: its issuer "LocalKafka CA" is not in the system\'s store'


@pytest.fixture
def renewed(secured_kafka: LocalKafka) -> Iterator[Callable[[Any], None]]:
    """Change the certificate of the brokers; the first one is put back."""
    yield secured_kafka.set_server_certificate
    secured_kafka.set_server_certificate("server")


def test_a_certificate_that_expired_and_is_renewed(
    secured_kafka: LocalKafka, topic: str, renewed: Callable[[Any], None]
) -> None:
    """S-02, S-06: the same consumer reads on as soon as the broker has another one."""
    renewed("expired")
    settings = secured_kafka.client_config("SSL") | {"auto_offset_reset": "earliest"}
    lines = refusal(secured_kafka, topic, settings, SslAuthenticationError)
    assert lines[0].startswith("the certificate of 127.0.0.1:9094 expired on 20")
    assert lines[1] == 'found: certificate "localhost", issued by "LocalKafka CA"'
    assert lines[2].startswith("try: renew it on the broker, or check this machine's clock (20")
    with KafkaConsumer(topic, **settings) as consumer:
        with pytest.raises(SslAuthenticationError):
            consumer.poll(timeout_ms=LIMIT_MS)
        renewed("server")
        began = time.monotonic()
        count = 0
        while count < 100:
            assert time.monotonic() - began < 10, "tried again after one second, then two"
            try:
                records = consumer.poll(timeout_ms=500)
            except SslAuthenticationError:
                time.sleep(0.05)
                continue
            count += sum(map(len, records.values()))
    assert count == 100


def test_a_certificate_for_another_host(
    secured_kafka: LocalKafka, topic: str, renewed: Callable[[Any], None]
) -> None:
    """S-02: unless the user says that the name does not matter."""
    renewed(secured_kafka.certificates.for_host("b1.kafka.internal", "*.kafka.internal"))
    settings = secured_kafka.client_config("SSL")
    assert refusal(secured_kafka, topic, settings, SslAuthenticationError) == [
        "the certificate of 127.0.0.1:9094 is for b1.kafka.internal, *.kafka.internal",
        "cause: you connected to 127.0.0.1",
        "try: connect by a name in the certificate",
    ]
    settings["ssl_check_hostname"] = False
    assert values(topic, settings) == list(range(100))


def test_a_renewed_client_certificate_is_used(
    required: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """S-03: a refused one does not stop the consumer for ten seconds once it is replaced."""
    path = tmp_path / "client.pem"
    path.write_bytes(required.certificates.client("app", is_expired=True).read_bytes())
    settings = required.client_config("SSL", "app") | {"ssl_keystore_location": str(path)}
    with KafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        with pytest.raises(SslAuthenticationError):
            consumer.poll(timeout_ms=LIMIT_MS)
        path.write_bytes(required.certificates.client("app").read_bytes())
        began = time.monotonic()
        count = 0
        while count < 100:
            assert time.monotonic() - began < 10
            try:
                count += sum(map(len, consumer.poll(timeout_ms=500).values()))
            except SslAuthenticationError:
                time.sleep(0.05)


# --- wrong listeners ------------------------------------------------------------------------------


def test_tls_to_the_plaintext_listener(secured_kafka: LocalKafka, topic: str) -> None:
    """E-04"""
    settings = secured_kafka.client_config("SSL")
    settings["bootstrap_servers"] = secured_kafka.bootstrap("PLAINTEXT")
    lines = refusal(secured_kafka, topic, settings, KafkaConnectionError)
    assert lines[0] == (
        "127.0.0.1:9094 closed the TLS handshake: this looks like a plaintext listener"
    )
    assert lines[-1] == 'try: security_protocol="PLAINTEXT", or the TLS port'


def test_plaintext_to_the_tls_listener(secured_kafka: LocalKafka, topic: str) -> None:
    """E-04"""
    settings = {"bootstrap_servers": secured_kafka.bootstrap("SSL")}
    lines = refusal(secured_kafka, topic, settings, KafkaConnectionError)
    assert lines[0] == "127.0.0.1:9094 answers TLS, not plaintext: this looks like a TLS listener"
    assert lines[-1] == 'try: security_protocol="SSL", or the plaintext port'
