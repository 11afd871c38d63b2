"""The client credentials grant: the request, and every answer of an endpoint."""

from __future__ import annotations

import json
from urllib.parse import parse_qs

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfast.errors import AuthenticationError, ConfigurationError, KafkaError
from kfast.security.sasl.oidc import (
    ClientCredentials,
    Endpoint,
    is_retriable,
    read_answer,
    read_endpoint,
    token_request,
)
from kfast.settings.secret import Secret
from kfast.types import OAuthToken

CREDENTIALS = ClientCredentials("app", Secret("S3cr3t"))
NOW_MS = 1_000_000


def answer(status: int, body: object) -> OAuthToken | KafkaError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_answer(status, Secret(data), CREDENTIALS, NOW_MS)


# --- endpoint -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("https://idp.example/token", Endpoint(True, "idp.example", 443, "/token")),
        ("https://idp.example:8443", Endpoint(True, "idp.example", 8443, "/")),
        ("HTTPS://idp.example/a/b?c=d", Endpoint(True, "idp.example", 443, "/a/b?c=d")),
        ("http://localhost:8080/token", Endpoint(False, "localhost", 8080, "/token")),
        ("http://127.0.0.1/token", Endpoint(False, "127.0.0.1", 80, "/token")),
        ("http://[::1]:80/token", Endpoint(False, "::1", 80, "/token")),
    ],
)
def test_an_endpoint(url: str, endpoint: Endpoint) -> None:
    """S-04"""
    assert read_endpoint(url) == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "http://idp.example/token",
        "http://127.0.0.1.example/token",
        "http://localhost.example/token",
        "file:///etc/passwd",
        "ftp://localhost/token",
        "localhost/token",
        "",
        "https:///token",
        "https://app:S3cr3t@idp.example/token",
        "https://idp.example:99999/token",
        "https://idp.example/to ken",
        "https://idp.example/token\r\nX: y",
        "https://[::1/token",
        "https://ïdp.example/token",
    ],
)
def test_an_endpoint_that_must_not_be_used(url: str) -> None:
    """S-09: https, or this machine; nothing else is ever fetched."""
    with pytest.raises(ConfigurationError) as refused:
        read_endpoint(url)
    assert "S3cr3t" not in str(refused.value)


# --- request --------------------------------------------------------------------------------------


def test_the_request() -> None:
    """S-04: RFC 6749, section 4.4."""
    body, authorization, headers = token_request(CREDENTIALS)
    assert body.reveal() == b"grant_type=client_credentials"
    assert authorization.reveal() == "Basic YXBwOlMzY3IzdA=="
    assert headers == {
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def test_scope_and_encoding() -> None:
    """S-04"""
    credentials = ClientCredentials("a:b", Secret("c d&"), "kafka read", True)
    body, authorization, _ = token_request(credentials)
    assert parse_qs(body.reveal().decode())["scope"] == ["kafka read"]
    assert authorization.reveal() == "Basic YSUzQWI6YytkJTI2"


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lifetime", "expires_at_ms"),
    [(3600, NOW_MS + 3_600_000), (1.5, NOW_MS + 1500), ("60", NOW_MS + 60_000), (None, None)],
)
def test_a_token(lifetime: object, expires_at_ms: int | None) -> None:
    """S-04"""
    body = {"access_token": "t", "expires_in": lifetime, "token_type": "Bearer"}
    assert answer(200, body) == OAuthToken("t", expires_at_ms)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", "access_token is missing or no text"),
        (b"<html>", "access_token is missing or no text"),
        ([], "access_token is missing or no text"),
        ({}, "access_token is missing or no text"),
        ({"access_token": ""}, "access_token is missing or no text"),
        ({"access_token": 5}, "access_token is missing or no text"),
        ({"access_token": "S3cr3t", "expires_in": 0}, "expires_in is no positive number"),
        ({"access_token": "S3cr3t", "expires_in": -1}, "expires_in is no positive number"),
        ({"access_token": "S3cr3t", "expires_in": True}, "expires_in is no positive number"),
        ({"access_token": "S3cr3t", "expires_in": "1e3"}, "expires_in is no positive number"),
        ({"access_token": "S3cr3t", "expires_in": 1e300}, "expires_in is no positive number"),
        ({"access_token": "S3cr3t", "expires_in": [1]}, "expires_in is no positive number"),
        (b'{"access_token": "S3cr3t", "expires_in": NaN}', "expires_in is no positive number"),
    ],
)
def test_an_answer_without_a_token(body: object, cause: str) -> None:
    """S-06"""
    error = answer(200, body)
    assert isinstance(error, AuthenticationError)
    assert error.message == 'no OAuth token: the token endpoint sent none for client "app"'
    assert error.cause == cause
    assert "S3cr3t" not in str(error)


def test_a_refusal() -> None:
    """S-06"""
    error = answer(401, {"error": "invalid_client", "error_description": "bad\ncredentials"})
    assert isinstance(error, AuthenticationError)
    assert str(error).splitlines() == [
        'no OAuth token: the token endpoint refused client "app": 401 invalid_client',
        "found: bad credentials",
        "try: check client id, client secret and scope",
    ]
    assert (error.user, error.is_transient) == ("app", False)


@pytest.mark.parametrize("body", [b"", b"[" * 60_000, {"error": 5}, {"error": None}, []])
def test_a_refusal_without_a_reason(body: object) -> None:
    """S-06"""
    error = answer(302, body)
    assert isinstance(error, AuthenticationError)
    assert error.message.endswith('refused client "app": 302')


def test_what_is_tried_again() -> None:
    """S-06"""
    assert [s for s in (301, 400, 401, 403, 404, 429, 500, 503) if is_retriable(s)] == [
        429,
        500,
        503,
    ]
    error = answer(503, b"")
    assert isinstance(error, AuthenticationError)
    assert error.is_transient


KEYS = st.sampled_from(["error", "error_description", "access_token", "expires_in", "x"])
VALUES = st.none() | st.booleans() | st.floats() | st.integers() | st.text("aé\x1b\n\u202e ")


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(100, 599),
    st.binary(max_size=50) | st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES)),
)
def test_any_answer(status: int, body: object) -> None:
    """S-05: a token or an error that can be shown."""
    found = answer(status, body)
    if isinstance(found, OAuthToken):
        assert status == 200
    else:
        assert all(line.isprintable() for line in str(found).splitlines())
