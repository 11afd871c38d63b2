"""OAUTHBEARER: its token and extensions, the server's refusal, tokens that cannot be sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfast.errors import AuthenticationError, SaslAuthenticationError
from kfast.security.sasl.oauthbearer import OAuthBearerMechanism
from kfast.settings.secret import Secret
from kfast.testing.sasl import OAuthBearerServer, Refused
from kfast.types import OAuthToken
from tests.unit.security.sasl.exchanges import NODE, run, token_of

NOW_MS = 1_000_000


def mechanism(token: OAuthToken) -> OAuthBearerMechanism:
    return OAuthBearerMechanism(NODE, lambda: token, lambda: NOW_MS)


def test_the_token_is_that_of_rfc_7628() -> None:
    """S-04"""
    token = OAuthToken("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", principal="app")
    log_in = mechanism(token)
    assert run(log_in, OAuthBearerServer(lambda value: value == token.value)) == [
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    ]
    assert log_in.is_complete
    assert log_in.user == "app"


def test_extensions_are_sent() -> None:
    """S-04: KIP-342."""
    server = OAuthBearerServer(lambda value: True)
    run(mechanism(OAuthToken("t", extensions={"logicalCluster": "lkc-1", "x": "a b\t"})), server)
    assert server.extensions == {"logicalCluster": "lkc-1", "x": "a b\t"}


@pytest.mark.parametrize(
    ("expires_at_ms", "cause"),
    [
        (NOW_MS - 100_000, "the broker refused the token (invalid_token), which expired 100 s ago"),
        (NOW_MS + 100_000, "the broker refused the token (invalid_token)"),
        (None, "the broker refused the token (invalid_token)"),
    ],
)
def test_a_refused_token(expires_at_ms: int | None, cause: str) -> None:
    """S-06: the client sends one byte, and waits for the broker's error."""
    log_in = mechanism(OAuthToken("t", expires_at_ms, "app"))
    with pytest.raises(Refused):
        run(log_in, OAuthBearerServer(lambda value: False))
    assert not log_in.is_complete
    error = log_in.refused("Authentication failed")
    assert isinstance(error, SaslAuthenticationError)
    assert str(error).splitlines() == [
        'login failed for user "app" (OAUTHBEARER) on b1:9096',
        f"cause: {cause}",
        'found: "Authentication failed"',
        "try: check the token's issuer, audience and expiry",
    ]


def test_a_refusal_without_a_name_names_the_scope() -> None:
    """S-06"""
    log_in = mechanism(OAuthToken("t"))
    log_in.first().run()
    answer = log_in.answer(Secret(json.dumps({"status": "no\n", "scope": "kafka"}).encode()))
    assert token_of(answer) == b"\x01"
    error = log_in.refused(None)
    assert error.message == "login failed for OAUTHBEARER on b1:9096"
    assert error.cause == "the broker refused the token (no)"
    assert error.found == "it wants the scope kafka"


@pytest.mark.parametrize(
    "token",
    [
        OAuthToken(""),
        OAuthToken("S3cr3t token"),
        OAuthToken("S3cr3t\x01auth=x"),
        OAuthToken("S3cr3té"),
        OAuthToken("=S3cr3t"),
        OAuthToken("S" * 65_536),
        OAuthToken("t", extensions={"auth": "S3cr3t"}),
        OAuthToken("t", extensions={"with1": "S3cr3t"}),
        OAuthToken("t", extensions={"x": ""}),
        OAuthToken("t", extensions={"x": "S3cr3t\x01"}),
        OAuthToken("t", extensions={"x": 5}),  # type: ignore[dict-item]
    ],
)
def test_a_token_that_cannot_be_sent(token: OAuthToken) -> None:
    """S-09: it is refused here, and not shown."""
    with pytest.raises(AuthenticationError, match="cannot be sent") as refused:
        token_of(mechanism(token).first())
    assert "S3cr3t" not in str(refused.value)
    assert "S3cr3t" not in repr(token)


def test_nothing_may_follow_the_end() -> None:
    log_in = mechanism(OAuthToken("t"))
    log_in.first().run()
    log_in.answer(Secret(b""))
    with pytest.raises(AuthenticationError, match="token where none belongs"):
        log_in.answer(Secret(b""))


def test_a_refusal_is_followed_by_an_error_only() -> None:
    log_in = mechanism(OAuthToken("t"))
    log_in.first().run()
    log_in.answer(Secret(b"{}"))
    with pytest.raises(AuthenticationError, match="token where none belongs"):
        log_in.answer(Secret(b""))
    assert not log_in.is_complete


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.binary(min_size=1, max_size=200),
        (st.none() | st.floats() | st.text("aé\x1b\n\u202e ") | st.lists(st.booleans())).map(
            lambda value: json.dumps({"status": value, "scope": value}).encode()
        ),
        st.just(b"[" * 60_000),
    )
)
def test_hostile_tokens_never_authenticate(token: bytes) -> None:
    """S-05"""
    log_in = mechanism(OAuthToken("t"))
    log_in.first().run()
    assert token_of(log_in.answer(Secret(token))) == b"\x01"
    assert not log_in.is_complete
    assert all(each.isprintable() for each in str(log_in.refused(None)).splitlines())
