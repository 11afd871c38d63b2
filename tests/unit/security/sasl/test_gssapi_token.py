"""GSSAPI: the order of its tokens, with a security context in memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfast.errors import AuthenticationError
from kfast.security.sasl.gssapi_token import GssapiMechanism
from kfast.security.sasl.mechanism import Work
from kfast.settings.secret import Secret
from tests.unit.security.sasl.exchanges import NODE, token_of

OFFER = b"\x01\x01\x00\x00"


class Wrapped(NamedTuple):
    message: bytes


class GssError(Exception):
    """As ``gssapi.exceptions.GSSError``."""

    maj_code = 851968
    min_code = 100001

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        return ["Unspecified GSS failure"] if is_major else ["Ticket expired"]


class Context:
    """Established after ``rounds`` tokens of the server; wraps by a prefix."""

    def __init__(self, rounds: int = 1, last: bytes | None = None) -> None:
        self.initiator_name = "app@REALM"
        self.complete = rounds == 0
        self._rounds = rounds
        self._last = last
        self.received: list[bytes | None] = []

    def step(self, token: bytes | None) -> bytes | None:
        if token == b"bad":
            raise GssError
        self.received.append(token)
        self.complete = len(self.received) > self._rounds
        return self._last if self.complete else b"c%d" % len(self.received)

    def wrap(self, message: bytes, encrypt: bool) -> Wrapped:
        assert not encrypt
        return Wrapped(b"wrapped:" + message)

    def unwrap(self, token: bytes) -> Wrapped:
        if not token.startswith(b"wrapped:"):
            raise GssError
        return Wrapped(token.removeprefix(b"wrapped:"))


def log_in(context: Context) -> GssapiMechanism:
    return GssapiMechanism(NODE, "kafka@b1", lambda: context)


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("last", [None, b"", b"last"])
def test_the_exchange_of_rfc_4752(rounds: int, last: bytes | None) -> None:
    """S-04: an empty token if the last step gave none, then no layer and the own name."""
    context = Context(rounds, last)
    mechanism = log_in(context)
    first = mechanism.first()
    assert isinstance(first, Work)
    sent = [token_of(first)]
    for each in range(rounds):
        step = mechanism.answer(Secret(b"s%d" % each))
        assert isinstance(step, Work)
        sent.append(token_of(step))
    assert sent == [*(b"c%d" % (each + 1) for each in range(rounds)), last or b""]
    assert context.received == [None, *(b"s%d" % each for each in range(rounds))]
    answer = token_of(mechanism.answer(Secret(b"wrapped:" + OFFER)))
    assert answer == b"wrapped:\x01\x00\x00\x00app@REALM"
    assert [mechanism.is_complete, mechanism.answer(Secret(b""))] == [False, None]
    assert mechanism.is_complete
    assert mechanism.user == "app@REALM"


def _established() -> GssapiMechanism:
    mechanism = log_in(Context(1))
    token_of(mechanism.first())
    token_of(mechanism.answer(Secret(b"s")))
    return mechanism


def test_no_ticket() -> None:
    """S-06: in the words of Kerberos."""

    def fail() -> Any:
        raise GssError

    mechanism = GssapiMechanism(NODE, "kafka@b1.example", fail)
    with pytest.raises(AuthenticationError) as refused:
        token_of(mechanism.first())
    assert str(refused.value).splitlines() == [
        "no Kerberos ticket for kafka@b1.example",
        "found: Ticket expired",
        "try: kinit USER, or sasl_kerberos_keytab",
    ]


@pytest.mark.parametrize(
    ("token", "cause"),
    [
        (b"", "Ticket expired"),
        (b"wrapped:", "its offer of security layers is malformed"),
        (b"wrapped:\x01\x00\x00", "its offer of security layers is malformed"),
        (b"wrapped:\x01\x00\x00\x00\x00", "its offer of security layers is malformed"),
        (b"wrapped:\x06\x00\x00\x00", "it demands a security layer, which is not supported"),
    ],
)
def test_an_offer_of_layers_that_is_wrong(token: bytes, cause: str) -> None:
    """S-05"""
    mechanism = _established()
    with pytest.raises(AuthenticationError) as refused:
        token_of(mechanism.answer(Secret(token)))
    assert refused.value.cause == cause
    assert not mechanism.is_complete


def test_a_server_whose_token_is_wrong() -> None:
    """S-05: both sides authenticate themselves."""
    mechanism = log_in(Context(1))
    token_of(mechanism.first())
    with pytest.raises(AuthenticationError, match="not to be trusted"):
        token_of(mechanism.answer(Secret(b"bad")))
    assert not mechanism.is_complete


def test_nothing_may_follow_the_answer_of_layers() -> None:
    for last in (b"more", b""):
        mechanism = _established()
        token_of(mechanism.answer(Secret(b"wrapped:" + OFFER)))
        if not last:
            mechanism.answer(Secret(b""))
        with pytest.raises(AuthenticationError, match="token where none belongs"):
            mechanism.answer(Secret(last))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=20), max_size=4))
def test_hostile_tokens_never_authenticate(tokens: list[bytes]) -> None:
    """S-05"""
    mechanism = log_in(Context(2))
    token_of(mechanism.first())
    for token in tokens:
        try:
            token_of(mechanism.answer(Secret(token)))
        except AuthenticationError:
            break
    assert not mechanism.is_complete
