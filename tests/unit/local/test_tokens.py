"""Tokens of LocalKafka, and the endpoint that gives them out."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from kfast.local.tokens import TokenEndpoint, TokenIssuer

USERS = {"app": "secret", "a b": "p%:q"}
GRANT = {"grant_type": "client_credentials"}


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="module")
def endpoint(issuer: TokenIssuer) -> Iterator[TokenEndpoint]:
    made = TokenEndpoint("127.0.0.1", USERS, issuer)
    yield made
    made.close()


def decode(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def claims_of(token: str, jwks: Path) -> dict[str, Any]:
    """Verify a token with the published key, as a broker does, and return its claims."""
    (key,) = json.loads(jwks.read_text())["keys"]
    x, y = (int.from_bytes(decode(key[name]), "big") for name in "xy")
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    header, payload, signature = token.split(".")
    assert json.loads(decode(header)) == {"alg": "ES256", "typ": "JWT", "kid": key["kid"]}
    raw = decode(signature)
    r, s = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
    signed = f"{header}.{payload}".encode()
    public.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))
    claims: dict[str, Any] = json.loads(decode(payload))
    return claims


def test_a_token_is_signed_and_names_its_user(issuer: TokenIssuer) -> None:
    claims = claims_of(issuer.token("app", 60, {}), issuer.jwks)
    assert claims["sub"] == "app"
    assert abs(claims["exp"] - time.time() - 60) < 5
    assert claims["exp"] - claims["iat"] == 60


def test_claims_can_be_changed_and_left_out(issuer: TokenIssuer) -> None:
    token = issuer.token("app", -100, {"aud": "other", "iss": None, "groups": ["a"]})
    claims = claims_of(token, issuer.jwks)
    assert claims["aud"] == "other"
    assert "iss" not in claims
    assert claims["groups"] == ["a"]
    assert claims["iat"] <= claims["exp"] < time.time()


def post(
    endpoint: TokenEndpoint,
    form: Mapping[str, str] | bytes,
    basic: str | None = None,
    path: str | None = None,
) -> tuple[int, dict[str, Any]]:
    url = urlsplit(endpoint.url)
    body = form if isinstance(form, bytes) else urlencode(form).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if basic is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(basic.encode()).decode()
    assert url.hostname is not None
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
    try:
        connection.request("POST", path or url.path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("user", "basic", "more"),
    [
        ("app", "app:secret", {}),
        ("app", None, {"client_id": "app", "client_secret": "secret"}),
        ("a b", "a b:p%:q", {}),
        ("a b", f"{quote('a b')}:{quote('p%:q')}", {}),
    ],
    ids=["basic", "form", "as it is", "encoded"],
)
def test_the_endpoint_gives_a_token_for_the_credentials_of_a_user(
    endpoint: TokenEndpoint,
    issuer: TokenIssuer,
    user: str,
    basic: str | None,
    more: dict[str, str],
) -> None:
    status, answer = post(endpoint, {**GRANT, **more}, basic)
    assert status == 200
    assert answer["token_type"] == "Bearer"
    claims = claims_of(answer["access_token"], issuer.jwks)
    assert claims["sub"] == user
    assert claims["exp"] - claims["iat"] == answer["expires_in"]
    assert "scope" not in claims


def test_a_scope_is_granted(endpoint: TokenEndpoint, issuer: TokenIssuer) -> None:
    _, answer = post(endpoint, {**GRANT, "scope": "read write"}, "app:secret")
    assert answer["scope"] == "read write"
    assert claims_of(answer["access_token"], issuer.jwks)["scope"] == "read write"


@pytest.mark.parametrize(
    ("form", "basic", "status", "error"),
    [
        (GRANT, "app:wrong", 401, "invalid_client"),
        (GRANT, "other:secret", 401, "invalid_client"),
        (GRANT, None, 401, "invalid_client"),
        ({"grant_type": "password"}, "app:secret", 400, "unsupported_grant_type"),
        ({}, "app:secret", 400, "unsupported_grant_type"),
        (b"\xff\xfe", "app:secret", 400, "invalid_request"),
    ],
)
def test_refusals_are_those_of_rfc_6749(
    endpoint: TokenEndpoint,
    form: Mapping[str, str] | bytes,
    basic: str | None,
    status: int,
    error: str,
) -> None:
    found, answer = post(endpoint, form, basic)
    assert (found, answer["error"]) == (status, error)
    assert "access_token" not in answer


def test_other_paths_are_not_found(endpoint: TokenEndpoint) -> None:
    assert post(endpoint, GRANT, "app:secret", "/other")[0] == 404


def test_a_malformed_authorization_is_refused(endpoint: TokenEndpoint) -> None:
    url = urlsplit(endpoint.url)
    assert url.hostname is not None
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
    connection.request("POST", url.path, urlencode(GRANT), {"Authorization": "Basic !!!"})
    assert connection.getresponse().status == 400
    connection.close()


def test_a_changed_secret_counts_at_the_next_request(issuer: TokenIssuer) -> None:
    users = {"app": "old"}
    endpoint = TokenEndpoint("127.0.0.1", users, issuer)
    users["app"] = "new"
    assert post(endpoint, GRANT, "app:old")[0] == 401
    assert post(endpoint, GRANT, "app:new")[0] == 200
    servers = server_threads()
    endpoint.close()
    assert server_threads() == servers - 1
    with pytest.raises(ConnectionRefusedError):
        post(endpoint, GRANT, "app:new")


def server_threads() -> int:
    return sum(thread.name == "token-endpoint" for thread in threading.enumerate())
