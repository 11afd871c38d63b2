"""Secret: never shown, compared by what it holds."""

from __future__ import annotations

import pickle

import pytest

from kfast.settings.secret import Secret


@pytest.mark.parametrize("value", ["S3cr3t", b"S3cr3t", lambda: "S3cr3t"])
def test_a_secret_is_shown_nowhere(value: str) -> None:
    """S-09"""
    secret = Secret(value)
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret!r:>20}"):
        assert shown.strip() == "<secret>"
    with pytest.raises(TypeError, match="not pickled") as refused:
        pickle.dumps(secret)
    assert "S3cr3t" not in str(refused.value)


def test_a_secret_reveals_itself() -> None:
    assert Secret("S3cr3t").reveal() == "S3cr3t"
    assert Secret(b"S3cr3t").reveal() == b"S3cr3t"
    assert not Secret("S3cr3t").is_callable


def test_a_callable_is_asked_each_time() -> None:
    """S-09: so that a password can be replaced while the consumer runs."""
    passwords = iter(["first", "second"])
    secret = Secret(lambda: next(passwords))
    assert secret.is_callable
    assert (secret.reveal(), secret.reveal()) == ("first", "second")


def test_secrets_are_compared_by_what_they_hold() -> None:
    def ask() -> str:
        return "a"

    assert Secret("ä\ud800") == Secret("ä\ud800")
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != Secret(b"a")
    assert Secret("a") != "a"
    assert Secret(ask) == Secret(ask)
    assert Secret(ask) != Secret("a")
