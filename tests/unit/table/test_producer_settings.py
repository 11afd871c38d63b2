"""J-08: the settings of a producer of dead letters, from those of the ingest."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from kfast.config import ConsumerConfig
from kfast.errors import ConfigurationError
from kfast.table.producer_settings import producer_settings
from kfast.types import OAuthToken
from tests.unit.security.tls.authority import ca_pem, chain_pem, key_pem
from tests.unit.security.tls.client_files import CLIENT, files, pkcs12_store

PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="app" password="S3cr3t";'
)


def settings(**configs: Any) -> dict[str, Any]:
    return producer_settings(ConsumerConfig(bootstrap_servers="b1:9092,[::1]:9093", **configs))


def test_servers_and_client() -> None:
    found = settings(client_id="orders", reconnect_backoff_ms=70)
    assert found["bootstrap.servers"] == "b1:9092,[::1]:9093"
    assert (found["client.id"], found["security.protocol"]) == ("orders", "PLAINTEXT")
    assert found["reconnect.backoff.ms"] == 70
    assert not [name for name in found if name.startswith(("ssl", "sasl"))]


def test_certificates_of_files(tmp_path: Path) -> None:
    """J-08: as PEM, also from folders; an encrypted key goes with its password."""
    (tmp_path / "trusted").mkdir()
    (tmp_path / "trusted/ca.pem").write_text(ca_pem())
    found = settings(
        security_protocol="SSL",
        ssl_cafile=str(tmp_path / "trusted"),
        ssl_password="hunter2",
        ssl_ciphers="ECDHE+AESGCM",
        **files(tmp_path, "hunter2"),
    )
    assert found["ssl.ca.pem"].split() == ca_pem().split()
    assert found["ssl.certificate.pem"].split() == chain_pem(CLIENT).split()
    assert "ENCRYPTED PRIVATE KEY" in found["ssl.key.pem"]
    assert found["ssl.key.password"] == "hunter2"
    assert found["ssl.cipher.suites"] == "ECDHE+AESGCM"
    assert found["ssl.endpoint.identification.algorithm"] == "https"


def test_certificates_of_a_store(tmp_path: Path) -> None:
    found = settings(
        security_protocol="SSL",
        ssl_keystore_location=pkcs12_store(tmp_path, "hunter2"),
        ssl_keystore_password="hunter2",
        ssl_endpoint_identification_algorithm="",
        ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    )
    assert "BEGIN CERTIFICATE" in found["ssl.certificate.pem"]
    assert "PRIVATE KEY" in found["ssl.key.pem"]
    assert found["ssl.endpoint.identification.algorithm"] == "none"
    assert found["ssl.cipher.suites"] == "ECDHE-RSA-AES128-GCM-SHA256"
    assert "ssl.ca.pem" not in found, "those of the system"


def test_certificates_of_texts() -> None:
    found = settings(
        security_protocol="SSL",
        ssl_ca_pem=ca_pem(),
        ssl_certificate_pem=chain_pem(CLIENT),
        ssl_key_pem=key_pem(CLIENT),
    )
    assert found["ssl.ca.pem"].split() == ca_pem().split()
    assert found["ssl.key.pem"].split() == key_pem(CLIENT).split()


@pytest.mark.parametrize(
    "login",
    [
        {"sasl_mechanism": "PLAIN", "sasl_plain_username": "app", "sasl_plain_password": "S3cr3t"},
        {"sasl_jaas_config": PLAIN_JAAS},
        {
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "app",
            "sasl_plain_password": lambda: "S3cr3t",
        },
    ],
    ids=["keywords", "JAAS", "callable"],
)
def test_users_and_passwords(login: dict[str, Any]) -> None:
    found = settings(security_protocol="SASL_PLAINTEXT", **login)
    assert found["sasl.mechanism"] == "PLAIN"
    assert (found["sasl.username"], found["sasl.password"]) == ("app", "S3cr3t")


def test_a_token_endpoint() -> None:
    found = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://login.example/oauth?tenant=1",
        sasl_oauthbearer_client_credentials_client_id="id",
        sasl_oauthbearer_client_credentials_client_secret="S3cr3t",
        sasl_oauthbearer_scope="kafka",
        sasl_oauthbearer_extensions="logicalCluster=lkc-1,identityPoolId=pool-2",
    )
    url = found["sasl.oauthbearer.token.endpoint.url"]
    assert url == "https://login.example:443/oauth?tenant=1"
    assert found["sasl.oauthbearer.method"] == "oidc"
    assert found["sasl.oauthbearer.client.id"] == "id"
    assert found["sasl.oauthbearer.client.secret"] == "S3cr3t"
    assert found["sasl.oauthbearer.scope"] == "kafka"
    assert found["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1,identityPoolId=pool-2"


@pytest.mark.parametrize("expires_ms", [4_000_000_000_000, None])
def test_a_token_provider(expires_ms: int | None) -> None:
    token = OAuthToken("t" * 30, expires_ms, "me", {"a": "b"})
    found = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_login_callback_handler_class=lambda: token,
    )
    value, expiry_s, principal, extensions = found["oauth_cb"]("")
    assert (value, principal, extensions) == ("t" * 30, "me", {"a": "b"})
    if expires_ms is None:
        assert 0 < expiry_s - time.time() <= 60, "it is asked again soon"
    else:
        assert expiry_s == 4_000_000_000


def test_kerberos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfast.security.sasl.sasl_settings.gssapi_package", lambda: None)
    keytab = tmp_path / "keytab"
    keytab.touch()
    found = settings(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="broker",
        sasl_kerberos_principal="app@REALM",
        sasl_kerberos_keytab=str(keytab),
    )
    assert {name: value for name, value in found.items() if name.startswith("sasl.")} == {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "broker",
        "sasl.kerberos.principal": "app@REALM",
        "sasl.kerberos.keytab": str(keytab),
    }


REFUSED = {
    "context": {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()},
    "delegation token": {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "id",
        "sasl_plain_password": "S3cr3t",
        "sasl_delegation_token": True,
    },
    "encoded credentials": {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "https://login.example/",
        "sasl_oauthbearer_client_credentials_client_id": "id",
        "sasl_oauthbearer_client_credentials_client_secret": "S3cr3t",
        "sasl_oauthbearer_header_urlencode": True,
    },
}


@pytest.mark.parametrize("configs", REFUSED.values(), ids=REFUSED)
def test_what_librdkafka_cannot_do_is_refused(configs: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="not for a producer of dead letters") as caught:
        settings(**configs)
    assert "S3cr3t" not in str(caught.value)
