"""CredentialWatch: another password, a renewed token or renewed files; how often it looks."""

from __future__ import annotations

from kfast._base.clock import ExponentialBackoff
from kfast.network.credentials import CHECK_MS, CredentialWatch
from kfast.security.sasl.login import LoginFacts, SaslLogins
from kfast.security.sasl.mechanism import Work
from kfast.security.sasl.plain import PasswordSource, PlainMechanism
from kfast.security.sasl.token_cache import RefreshRule, TokenCache
from kfast.settings.secret import Secret
from kfast.types import OAuthToken
from tests.fake_clock import FakeClock
from tests.simulation.login_steps import LoginSteps

FACTS = LoginFacts("PLAIN", True, False)


def logins(look_for_change: Work | None = None, tokens: TokenCache | None = None) -> SaslLogins:
    return SaslLogins(
        FACTS,
        LoginSteps(),
        lambda node: PlainMechanism(node, "app", Secret("x")),
        lambda: 0.5,
        tokens,
        look_for_change=look_for_change,
    )


def test_without_anything_that_can_change() -> None:
    watch = CredentialWatch(None, int)
    watch.refused()
    assert not any(watch.have_changed(ms) for ms in range(0, 10_000, 100))


def test_renewed_files_count_within_a_second() -> None:
    """S-13"""
    version = 1
    watch = CredentialWatch(None, lambda: version)
    watch.refused()
    assert not watch.have_changed(0)
    version = 2
    assert not watch.have_changed(CHECK_MS - 1)
    assert watch.have_changed(CHECK_MS)
    watch.refused()
    assert not watch.have_changed(2 * CHECK_MS)


def test_another_password_counts() -> None:
    """S-13: it is asked once a second, and compared with that of the last log-in."""
    passwords = ["one"]
    asked: list[int] = []

    def password() -> str:
        asked.append(1)
        return passwords[-1]

    source = PasswordSource(Secret(password))
    source()
    watch = CredentialWatch(logins(Work(source.look_for_change)), int)
    watch.refused()
    for ms in range(0, 3 * CHECK_MS, 100):
        assert not watch.have_changed(ms)
    assert len(asked) == 1 + 3
    passwords.append("two")
    assert not watch.have_changed(3 * CHECK_MS)  # it is asked now, on the login worker
    assert watch.have_changed(3 * CHECK_MS + 1)
    watch.forget()
    source()
    watch.refused()
    assert not watch.have_changed(9 * CHECK_MS)
    assert not watch.have_changed(9 * CHECK_MS + 1)


def test_a_password_callable_that_raises_has_not_changed() -> None:
    """S-06: the next log-in reports it."""

    def password() -> str:
        raise ValueError("no vault")

    watch = CredentialWatch(logins(Work(PasswordSource(Secret(password)).look_for_change)), int)
    watch.refused()
    assert not watch.have_changed(0)
    assert not watch.have_changed(1)


def test_a_token_renewed_in_the_background_counts() -> None:
    """S-11, S-13: one that a log-in asked for does not: each has one after a refusal."""
    clock = FakeClock()

    def ask() -> OAuthToken:
        return OAuthToken("t", clock.wall_ms() + 100_000)

    tokens = TokenCache(ask, RefreshRule(), ExponentialBackoff(100, 100), clock)
    tokens.token()
    watch = CredentialWatch(logins(tokens=tokens), int)
    watch.refused()
    tokens.drop()
    tokens.token()
    assert not watch.have_changed(0)
    clock.advance(90_000)
    tokens.refresh(clock.now_ms())
    assert watch.have_changed(CHECK_MS)
