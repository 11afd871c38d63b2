"""PLAIN: its token, and passwords that cannot be sent."""

from __future__ import annotations

from typing import Any

import pytest

from kfast.errors import AuthenticationError, SaslAuthenticationError
from kfast.security.sasl.mechanism import Work
from kfast.security.sasl.plain import PlainMechanism
from kfast.settings.secret import Secret
from kfast.testing.sasl import PlainServer, Refused
from tests.unit.security.sasl.exchanges import NODE, run, token_of


def test_the_token_is_that_of_rfc_4616() -> None:
    """S-04"""
    mechanism = PlainMechanism(NODE, "tim", Secret("tanstaaftanstaaf"))
    assert run(mechanism, PlainServer({"tim": "tanstaaftanstaaf"})) == [b"\0tim\0tanstaaftanstaaf"]
    assert mechanism.is_complete


def test_user_and_password_are_utf_8() -> None:
    """S-04"""
    mechanism = PlainMechanism(NODE, "jürgen", Secret("Ⅸ pass"))
    run(mechanism, PlainServer({"jürgen": "Ⅸ pass"}))
    assert mechanism.is_complete


def test_a_server_token_means_nothing() -> None:
    mechanism = PlainMechanism(NODE, "app", Secret("pw"))
    mechanism.first()
    mechanism.answer(Secret(b"welcome"))
    assert mechanism.is_complete


def test_a_password_callable_is_asked_at_each_authentication() -> None:
    """S-04: off the network thread."""
    passwords = iter(["one", "two"])
    secret = Secret(lambda: next(passwords))
    for expected in (b"\0app\0one", b"\0app\0two"):
        first = PlainMechanism(NODE, "app", secret).first()
        assert isinstance(first, Work)
        assert token_of(first) == expected


class S3cr3tError(Exception):
    pass


def _raise() -> str:
    raise S3cr3tError("S3cr3t")


@pytest.mark.parametrize(
    ("password", "cause"),
    [
        (lambda: "", "returned an empty text"),
        (lambda: b"S3cr3t", "returned bytes, not str"),
        (lambda: None, "returned NoneType, not str"),
        (lambda: "S3cr3t\0", "contains a NUL character"),
        (lambda: "S3cr3t\ud800", "cannot be encoded"),
        (_raise, "raised S3cr3tError"),
    ],
)
def test_a_password_callable_without_a_password(password: Any, cause: str) -> None:
    """S-09: what it raised or returned is not shown."""
    mechanism = PlainMechanism(NODE, "app", Secret(password))
    with pytest.raises(AuthenticationError, match=cause) as refused:
        token_of(mechanism.first())
    assert refused.value.user == "app"
    assert "S3cr3t" not in str(refused.value).replace("S3cr3tError", "")
    assert refused.value.__cause__ is None


def test_a_refused_password() -> None:
    """S-06"""
    mechanism = PlainMechanism(NODE, "app", Secret("wrong"))
    with pytest.raises(Refused) as refused:
        run(mechanism, PlainServer({"app": "right"}))
    error = mechanism.refused(str(refused.value))
    assert isinstance(error, SaslAuthenticationError)
    assert str(error).splitlines() == [
        'login failed for user "app" (PLAIN) on b1:9096',
        "cause: the broker refused the credentials: SASL_AUTHENTICATION_FAILED (error 58)",
        'found: "Authentication failed: Invalid username or password"',
        "try: check sasl_plain_username and sasl_plain_password",
    ]
    assert (error.mechanism, error.user, error.node) == ("PLAIN", "app", 1)
