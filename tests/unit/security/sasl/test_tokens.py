"""Token providers of every shape, and when a token is renewed."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfast._base.clock import ExponentialBackoff
from kfast.errors import AuthenticationError, KafkaTimeoutError
from kfast.security.sasl.token_cache import RefreshRule, TokenCache
from kfast.security.sasl.token_provider import completed, token_source
from kfast.settings.secret import Secret
from kfast.types import OAuthToken
from tests.fake_clock import FakeClock


def jwt(**claims: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


def ask(provider: Any, argument: str = "") -> OAuthToken:
    return token_source(provider, Secret(argument), "OAUTHBEARER")()


# --- providers ------------------------------------------------------------------------------------


class Provider:
    """As kafka-python wants it."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def token(self) -> object:
        return self._answer


class ProviderWithExtensions(Provider):
    def extensions(self) -> dict[str, str]:
        return {"pool": "a"}


@pytest.mark.parametrize(
    ("provider", "token"),
    [
        (lambda: "t", OAuthToken("t")),
        (lambda: ("t", 1234.5), OAuthToken("t", 1_234_500)),
        (lambda: OAuthToken("t", 5, "app", {"x": "y"}), OAuthToken("t", 5, "app", {"x": "y"})),
        (lambda text: (text, 10), OAuthToken("text", 10_000)),
        (lambda text="default": text, OAuthToken("default")),
        (lambda text: (text, 10, "p", {"x": "y"}), OAuthToken("text", 10_000, None, {"x": "y"})),
        (Provider("t"), OAuthToken("t")),
        (Provider(OAuthToken("t")), OAuthToken("t")),
        (ProviderWithExtensions("t"), OAuthToken("t", extensions={"pool": "a"})),
    ],
)
def test_every_shape_of_a_provider(provider: object, token: OAuthToken) -> None:
    """S-04, S-11: kafka-python's, librdkafka's, and a plain callable."""
    assert ask(provider, "text") == token


@pytest.mark.parametrize(
    "answer",
    [None, b"S3cr3t", 5, ["S3cr3t"], ("S3cr3t",), ("S3cr3t", "soon"), ("S3cr3t", -1),
     ("S3cr3t", float("nan")), ("S3cr3t", True), ("S3cr3t", 1e300), (5, 6),
     ("S3cr3t", 5, "p", ["x"]), ("S3cr3t", 10**400), "S3cr3t with blanks",
     OAuthToken(5), OAuthToken("S3cr3t", "soon"), OAuthToken("S3cr3t", float("inf")),  # type: ignore[arg-type]
     OAuthToken("S3cr3t", None, 5), OAuthToken("S3cr3t", extensions=None)],  # type: ignore[arg-type]
)  # fmt: skip
def test_an_answer_that_is_no_token(answer: object) -> None:
    """S-09"""
    with pytest.raises(AuthenticationError, match="no OAuth token") as refused:
        ask(lambda: answer)
    assert "S3cr3t" not in str(refused.value)


TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhcHAifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("raised", "cause", "is_cause"),
    [
        (ValueError("no network"), "ValueError: no network", True),
        (ValueError(), "ValueError", True),
        (RuntimeError(f"refused {TOKEN} today"), "RuntimeError: refused ... today", False),
        (AuthenticationError(TOKEN), "AuthenticationError: ...", False),
        (SystemExit(1), "SystemExit: 1", True),
    ],
)
def test_a_provider_that_raises(raised: BaseException, cause: str, is_cause: bool) -> None:
    """S-09, U-06: its text is shown, without what may be a token; the worker does not end."""

    def provider() -> str:
        raise raised

    with pytest.raises(AuthenticationError) as refused:
        ask(provider)
    assert refused.value.message == "no OAuth token: the token provider failed"
    assert refused.value.cause == cause
    assert (refused.value.__cause__ is raised) is is_cause
    assert TOKEN not in str(refused.value)


# --- claims ---------------------------------------------------------------------------------------


def test_claims_complete_a_token() -> None:
    """S-07: expiry and subject of a JWT, unverified."""
    token = completed(OAuthToken(jwt(exp=1234.5, sub="app")))
    assert (token.expires_at_ms, token.principal) == (1_234_500, "app")
    known = OAuthToken(jwt(exp=1234, sub="app"), 5, "me")
    assert completed(known) == known


@pytest.mark.parametrize(
    "value",
    [
        "opaque",
        "a.b.c",
        "a.é.c",
        "a." + "A" * 70_000 + ".c",
        jwt(exp="soon", sub=5),
        jwt(exp=True, sub=""),
        jwt(exp=-1),
        jwt(exp=1e300),
        jwt(exp=10**400),
        jwt(exp=None),
        "e30." + base64.urlsafe_b64encode(b"[" * 40_000).decode() + ".c2ln",
        "e30." + base64.urlsafe_b64encode(b'{"exp": NaN}').decode() + ".c2ln",
    ],
)
def test_claims_that_mean_nothing(value: str) -> None:
    """S-07: any failure is an unknown expiry."""
    token = completed(OAuthToken(value))
    assert (token.expires_at_ms, token.principal) == (None, None)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.text("aA_-.=é{", max_size=100), st.text("a.", max_size=10))
def test_any_claims(payload: str, rest: str) -> None:
    """S-07"""
    completed(OAuthToken(f"{rest}.{payload}.{rest}"))


# --- renewal --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("life_s", "random", "age_s"),
    [
        (3600, 0.5, 2880),  # 0.8 of its life
        (3600, 0.0, 2700),  # 0.75
        (3600, 1.0, 3060),  # 0.85
        (1000, 0.5, 700),  # 300 s before its end
        (400, 0.5, 100),  # both
        (361, 0.5, 61),
        (100, 0.5, 80),  # too short for both: the factor alone
        (1, 0.5, 0.8),
    ],
)
def test_when_a_token_is_renewed(life_s: int, random: float, age_s: float) -> None:
    """S-07: Java's rule."""
    assert RefreshRule().age_ms(life_s * 1000, random) == int(age_s * 1000)


class Source:
    """Returns tokens with this life, or raises."""

    def __init__(self, clock: FakeClock, life_ms: int | None) -> None:
        self.asked = 0
        self.fails = False
        self._clock = clock
        self._life_ms = life_ms

    def __call__(self) -> OAuthToken:
        self.asked += 1
        if self.fails:
            raise KafkaTimeoutError("the endpoint is down")
        life_ms = self._life_ms
        expires = None if life_ms is None else self._clock.wall_ms() + life_ms
        return OAuthToken(f"t{self.asked}", expires)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def cache_of(clock: FakeClock, source: Callable[[], OAuthToken]) -> TokenCache:
    return TokenCache(source, RefreshRule(), ExponentialBackoff(100, 10_000, jitter=0), clock)


def test_one_token_serves_until_it_is_renewed(clock: FakeClock) -> None:
    """S-07, S-11"""
    source = Source(clock, 3_600_000)
    cache = cache_of(clock, source)
    assert [cache.token().value for _ in range(3)] == ["t1"] * 3
    assert cache.next_refresh_ms is not None
    clock.advance(cache.next_refresh_ms - clock.now_ms() - 1)
    cache.refresh(clock.now_ms())
    assert source.asked == 1
    clock.advance(1)
    cache.refresh(clock.now_ms())
    assert cache.token().value == "t2"
    assert cache.renewals == 1


def test_a_log_in_renews_a_token_whose_time_has_come(clock: FakeClock) -> None:
    """S-07"""
    cache = cache_of(clock, Source(clock, 100_000))
    assert cache.token().value == "t1"
    clock.advance(90_000)
    assert cache.token().value == "t2"


def test_a_renewal_that_fails_is_tried_again_while_the_token_lives(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """S-07: after its end a log-in raises."""
    source = Source(clock, 100_000)
    cache = cache_of(clock, source)
    cache.token()
    source.fails = True
    waits = []
    with caplog.at_level(logging.WARNING):
        while cache.next_refresh_ms is not None:
            waits.append(cache.next_refresh_ms - clock.now_ms())
            clock.advance(waits[-1])
            cache.refresh(clock.now_ms())
    assert waits[1:9] == [100, 200, 400, 800, 1600, 3200, 6400, 10_000]
    assert "the OAuth token expires in" in caplog.text
    with pytest.raises(KafkaTimeoutError):
        cache.token()
    source.fails = False
    assert cache.token().value.startswith("t")
    assert cache.next_refresh_ms is not None


def test_a_source_that_breaks_does_not_end_renewals(clock: FakeClock) -> None:
    """S-11: nor the login worker, which renews."""
    source = Source(clock, 3_600_000)
    cache = cache_of(clock, source)
    cache.token()
    source.asked = "broken"  # type: ignore[assignment]
    assert cache.next_refresh_ms is not None
    clock.advance(cache.next_refresh_ms - clock.now_ms())
    cache.refresh(clock.now_ms())
    assert cache.next_refresh_ms == clock.now_ms() + 100


def test_a_token_of_unknown_expiry_is_asked_for_by_each_log_in(clock: FakeClock) -> None:
    """S-07"""
    cache = cache_of(clock, Source(clock, None))
    assert [cache.token().value for _ in range(2)] == ["t1", "t2"]
    assert cache.next_refresh_ms is None


def test_a_token_that_was_refused_is_replaced(clock: FakeClock) -> None:
    """S-06"""
    source = Source(clock, 3_600_000)
    cache = cache_of(clock, source)
    cache.token()
    cache.drop()
    source.fails = True
    with pytest.raises(KafkaTimeoutError):
        cache.token()  # not the refused one again
    source.fails = False
    assert [cache.token().value for _ in range(2)] == ["t3", "t3"]


def test_an_expired_token_is_sent_once(clock: FakeClock) -> None:
    """S-07: the broker decides, its clock may differ."""
    cache = cache_of(clock, Source(clock, -5))
    assert [cache.token().value for _ in range(2)] == ["t1", "t2"]
    assert cache.next_refresh_ms is None
