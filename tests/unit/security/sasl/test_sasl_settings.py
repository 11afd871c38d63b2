"""Settings of a log-in: what goes together, what is refused when the consumer is made."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kfast.errors import ConfigurationError, MissingDependencyError
from kfast.security.sasl import sasl_settings
from kfast.security.sasl.sasl_settings import SaslSettings
from kfast.settings.secret import Secret
from tests.unit.configs import config

MODULE = "org.apache.kafka.common.security"
USER = {"sasl.username": "app", "sasl.password": "S3cr3t"}
URL = "https://idp/token"
CLIENT = {
    "sasl.oauthbearer.token.endpoint.url": URL,
    "sasl.oauthbearer.client.id": "id",
    "sasl.oauthbearer.client.secret": "S3cr3t",
}


def read(settings: dict[str, Any], protocol: str = "SASL_SSL") -> SaslSettings:
    return SaslSettings.of(config({"security.protocol": protocol, **settings}))


# --- user and password ----------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_and_password(mechanism: str) -> None:
    """S-04: in any case, by either client's names."""
    found = read({"sasl.mechanisms": mechanism.lower(), **USER})
    assert (found.mechanism, found.user, found.password) == (mechanism, "app", Secret("S3cr3t"))
    assert found.is_named
    assert "S3cr3t" not in repr(found)


def test_a_line_for_java_is_the_same() -> None:
    """S-04"""
    line = f'{MODULE}.plain.PlainLoginModule required username="app" password="S3cr3t";'
    assert read({"sasl.jaas.config": line}) == read({"sasl.mechanism": "PLAIN", **USER})
    assert read({"sasl.jaas.config": line, **USER}) == read({"sasl.mechanism": "PLAIN", **USER})
    line = line.replace("plain.Plain", "scram.Scram").replace(";", " tokenauth=true;")
    found = read({"sasl.jaas.config": line, "sasl.mechanism": "SCRAM-SHA-512"})
    assert found.is_delegation_token


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (USER, "sasl_mechanism is not set, but sasl_plain_username and sasl_plain_password"),
        ({"sasl.mechanism": "PLAIN"}, "sasl_plain_username is not set"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "app"}, "sasl_plain_password is not set"),
        ({"sasl.mechanism": "PLAIN", **USER, "sasl.username": ""}, "username is empty"),
        ({"sasl.mechanism": "PLAIN", **USER, "sasl.password": ""}, "password is empty"),
        ({"sasl.mechanism": "PLAIN", **USER, "sasl.username": "a\0"}, "contains a NUL character"),
        ({"sasl.mechanism": "PLAIN", **USER, "sasl.password": "S3cr3t\0"}, "contains a NUL"),
        ({"sasl.mechanism": "PLAIN", **USER, "sasl.password": "S3cr3t\ud800"}, "not UTF-8"),
        ({"sasl.mechanism": "PLAIN", **USER, "sasl.delegation.token": True}, "is for SCRAM"),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "sasl_plain_username is not set"),
        (
            {"sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required username=a;"},
            "ScramLoginModule has two",
        ),
        (
            {"sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;"}
            | {"sasl.mechanism": "PLAIN"},
            "sasl_mechanism=PLAIN does not fit the module",
        ),
        (
            {"sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required username=other;"}
            | USER,
            "sasl_plain_username and sasl_jaas_config are given two values",
        ),
        (
            {"sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required password=S3cr3t2;"}
            | USER,
            "sasl_plain_password and sasl_jaas_config are given two values",
        ),
    ],
)
def test_user_and_password_that_cannot_work(settings: dict[str, Any], text: str) -> None:
    """S-06: refused when the consumer is made."""
    with pytest.raises(ConfigurationError, match=text) as refused:
        read(settings)
    assert refused.value.hint
    assert "S3cr3t" not in str(refused.value)


def test_a_readable_password_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """S-02"""
    with caplog.at_level(logging.WARNING):
        read({"sasl.mechanism": "SCRAM-SHA-512", **USER}, "SASL_PLAINTEXT")
        read({"sasl.mechanism": "PLAIN", **USER})
        assert not caplog.messages
        read({"sasl.mechanism": "PLAIN", **USER}, "SASL_PLAINTEXT")
    assert caplog.messages == [
        "PLAIN over SASL_PLAINTEXT: the password crosses the network readable"
    ]


# --- tokens ---------------------------------------------------------------------------------------


def test_a_token_provider() -> None:
    """S-04"""

    def provider() -> str:
        return "t"

    for name in ("sasl_oauth_token_provider", "oauth_cb", "sasl.login.callback.handler.class"):
        found = read({"sasl.mechanism": "OAUTHBEARER", name: provider})
        assert found.provider is provider
        assert found.endpoint is None


def test_a_token_endpoint() -> None:
    """S-04"""
    line = f'{MODULE}.oauthbearer.OAuthBearerLoginModule required clientId="id" '
    line += 'clientSecret="S3cr3t" scope="s" extension_pool="p";'
    by_line = read({"sasl.jaas.config": line, "sasl.oauthbearer.token.endpoint.url": URL})
    by_keys = read(
        {
            **CLIENT,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.scope": "s",
            "sasl.oauthbearer.extensions": "pool=p",
        }
    )
    assert by_line == by_keys
    assert by_keys.credentials is not None
    assert by_keys.credentials.client_secret == Secret("S3cr3t")
    assert by_keys.extensions == {"pool": "p"}
    assert "S3cr3t" not in repr(by_keys)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (CLIENT, "sasl_mechanism is not set, but sasl_oauthbearer_token_endpoint_url and"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "needs a source of tokens"),
        ({"sasl.mechanism": "OAUTHBEARER", **CLIENT, "oauth_cb": lambda: "t"}, "exclude each"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": URL},
            "client_id is not set",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", **CLIENT, "sasl.oauthbearer.client.secret": ""},
            "client_secret is empty",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda: "t"}
            | {"sasl.oauthbearer.method": "oidc"},
            "method=oidc needs sasl_oauthbearer_token_endpoint_url",
        ),
        ({"sasl.mechanism": "OAUTHBEARER", "oauth_cb": object()}, "class: object"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda: "t"}
            | {"sasl.oauthbearer.extensions": "a=b"},
            "sasl_oauthbearer_extensions is for",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", **CLIENT, "sasl.oauthbearer.extensions": "auth=S3"},
            "bad value for sasl_oauthbearer_extensions",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", **CLIENT}
            | {"sasl.oauthbearer.token.endpoint.url": "http://idp/token"},
            "http is not https",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": "com.example.Handler"},
            "does not load classes by name",
        ),
    ],
)
def test_tokens_that_cannot_work(settings: dict[str, Any], text: str) -> None:
    """S-06, S-09: no class is loaded, no other URL fetched."""
    with pytest.raises(ConfigurationError, match=text) as refused:
        read(settings)
    assert refused.value.hint
    assert "S3cr3t" not in str(refused.value)


# --- Kerberos, packages ---------------------------------------------------------------------------


def test_kerberos(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """S-04: Kafka's default mechanism."""
    monkeypatch.setattr(sasl_settings, "gssapi_package", lambda: None)
    assert read({}).mechanism == "GSSAPI"
    assert not read({}).is_named
    assert read({}).service == "kafka"
    keytab = tmp_path / "app.keytab"
    keytab.touch()
    found = read(
        {
            "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required "
            f'useKeyTab=true keyTab="{keytab}" principal="app@R" serviceName="broker";'
        }
    )
    assert found.keytab == str(keytab)
    assert (found.service, found.principal) == ("broker", "app@R")
    missing = {"sasl.kerberos.keytab": str(tmp_path / "none")}
    with pytest.raises(ConfigurationError, match="no such file"):
        read(missing)


@pytest.mark.parametrize(("mechanism", "extra"), [("GSSAPI", "gssapi"), ("AWS_MSK_IAM", "aws")])
def test_a_missing_package_is_reported_when_the_consumer_is_made(
    mechanism: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-11"""
    for package in ("gssapi", "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingDependencyError, match=f"sasl_mechanism={mechanism} needs") as error:
        read({"sasl.mechanism": mechanism})
    assert error.value.hint == f'pip install "kfast[{extra}]"'
