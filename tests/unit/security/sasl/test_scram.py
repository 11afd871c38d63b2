"""SCRAM: the vectors of the RFCs, an independent server, and every way a server can be wrong."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfast.errors import AuthenticationError
from kfast.security.sasl.mechanism import Work
from kfast.security.sasl.scram import ScramMechanism
from kfast.settings.secret import Secret
from kfast.testing.sasl import Refused, ScramServer
from tests.unit.security.sasl.exchanges import NODE, run, token_of

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
"""RFC 7677, section 3."""


def scram(
    name: str = "SCRAM-SHA-256",
    user: str = "user",
    password: str = "pencil",
    **options: bool,
) -> ScramMechanism:
    return ScramMechanism(NODE, name, user, Secret(password), NONCE, **options)


def started() -> ScramMechanism:
    mechanism = scram()
    mechanism.first()
    return mechanism


def proven() -> ScramMechanism:
    mechanism = started()
    mechanism.answer(Secret(FIRST.encode()))
    return mechanism


# --- vectors and an independent server ------------------------------------------------------------


def test_the_exchange_of_rfc_7677() -> None:
    """S-04"""
    mechanism = scram()
    assert token_of(mechanism.first()) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert (
        token_of(mechanism.answer(Secret(FIRST.encode())))
        == (f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").encode()
    )
    assert not mechanism.is_complete
    final = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert mechanism.answer(Secret(final)) is None
    assert mechanism.is_complete


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("user", "password"),
    [("app", "secret"), ("odd,na=me", "=,="), ("jürgen", "Ⅸ"), ("a" * 300, "b" * 300)],
)
def test_log_in_at_an_independent_server(name: str, user: str, password: str) -> None:
    """S-04: user and password are their UTF-8 bytes, as Kafka stores them."""
    mechanism = scram(name, user, password)
    server = ScramServer(name.replace("SCRAM-", "").replace("-", "").lower(), {user: password})
    run(mechanism, server)
    assert mechanism.is_complete
    assert server.is_done


def test_a_delegation_token_is_marked() -> None:
    """S-04"""
    mechanism = scram(user="id", password="hmac", is_delegation_token=True)
    run(mechanism, ScramServer("sha256", {}, tokens={"id": "hmac"}))
    assert mechanism.is_complete


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    user=st.text("aZ=,é €\u2168", min_size=1, max_size=20),
    password=st.text("aZ=,é €\u2168", min_size=1, max_size=20),
    salt=st.binary(min_size=1, max_size=1024),
)
def test_any_user_and_password_log_in(user: str, password: str, salt: bytes) -> None:
    """S-04"""
    mechanism = scram(user=user, password=password)
    run(mechanism, ScramServer("sha256", {user: password}, salt=salt))
    assert mechanism.is_complete


def test_many_iterations_are_work_for_another_thread() -> None:
    """S-05: so that heartbeats of other connections go on."""
    for iterations, is_work in ((4096, False), (16_384, False), (16_385, True)):
        mechanism = started()
        first = f"r={SERVER_NONCE},s=MTIz,i={iterations}".encode()
        assert isinstance(mechanism.answer(Secret(first)), Work) is is_work


def test_a_password_callable_is_work_and_asked_once() -> None:
    """S-04"""
    asked: list[int] = []

    def password() -> str:
        asked.append(1)
        return "pencil"

    mechanism = ScramMechanism(NODE, "SCRAM-SHA-256", "user", Secret(password), NONCE)
    assert not isinstance(mechanism.first(), Work)
    run(mechanism, ScramServer("sha256", {"user": "pencil"}))
    assert mechanism.is_complete
    assert asked == [1]


def test_a_wrong_password_is_refused_by_the_server() -> None:
    """S-06"""
    mechanism = scram(password="wrong")
    with pytest.raises(Refused) as refused:
        run(mechanism, ScramServer("sha256", {"user": "pencil"}))
    assert str(mechanism.refused(str(refused.value))).startswith(
        'login failed for user "user" (SCRAM-SHA-256) on b1:9096\n'
    )
    assert not mechanism.is_complete


# --- servers that are wrong -----------------------------------------------------------------------

UNTRUSTED = 'b1:9096 is not to be trusted with user "user" (SCRAM-SHA-256)'
MALFORMED = "b1:9096 sent a malformed SCRAM message"


@pytest.mark.parametrize(
    ("first", "message", "cause"),
    [
        (f"r={SERVER_NONCE},s=MTIz,i=1", UNTRUSTED, "it asks for 1 iterations, fewer than 4096"),
        (f"r={SERVER_NONCE},s=MTIz,i=4095", UNTRUSTED, "asks for 4095 iterations, fewer than 4096"),
        (f"r={SERVER_NONCE},s=MTIz,i=0", UNTRUSTED, "fewer than 4096"),
        (f"r={SERVER_NONCE},s=MTIz,i=1000001", UNTRUSTED, "1000001 iterations, more than 1000000"),
        (f"r={SERVER_NONCE},s=MTIz,i=999999999", UNTRUSTED, "more than 1000000"),
        (f"r={NONCE},s=MTIz,i=4096", UNTRUSTED, "its nonce does not continue ours"),
        ("r=other,s=MTIz,i=4096", UNTRUSTED, "its nonce does not continue ours"),
        (f"r=x{SERVER_NONCE},s=MTIz,i=4096", UNTRUSTED, "its nonce does not continue ours"),
        (f"m=x,r={SERVER_NONCE},s=MTIz,i=4096", UNTRUSTED, "demands an extension"),
        ("e=unknown-user", UNTRUSTED, "it refused the user: unknown-user"),
        ("e=", MALFORMED, "its attribute r"),
        ("", MALFORMED, "its attribute r"),
        (f"s=MTIz,r={SERVER_NONCE},i=4096", MALFORMED, "its attribute r"),
        (f"r={SERVER_NONCE}", MALFORMED, "its attribute r"),
        (f"r={SERVER_NONCE},i=4096,s=MTIz", MALFORMED, "its attribute s"),
        (f"r={SERVER_NONCE},s=,i=4096", MALFORMED, "its attribute s"),
        (f"r={SERVER_NONCE},s=MTI,i=4096", MALFORMED, "its attribute s"),
        (f"r={SERVER_NONCE},s=M=Iz,i=4096", MALFORMED, "its attribute s"),
        (f"r={SERVER_NONCE},s=MT-z,i=4096", MALFORMED, "its attribute s"),
        (f"r={SERVER_NONCE},s={'QUFB' * 342},i=4096", MALFORMED, "its attribute s"),
        (f"r={SERVER_NONCE},s=MTIz", MALFORMED, "its attribute s"),
        (f"r={SERVER_NONCE},s=MTIz,i=", MALFORMED, "its attribute i"),
        (f"r={SERVER_NONCE},s=MTIz,i=-5000", MALFORMED, "its attribute i"),
        (f"r={SERVER_NONCE},s=MTIz,i=4096.0", MALFORMED, "its attribute i"),
        (f"r={SERVER_NONCE},s=MTIz,i=١٢٣٤٥", MALFORMED, "its attribute i"),
        (f"r={SERVER_NONCE},s=MTIz,i=10000000000", UNTRUSTED, "10000000000 iterations, more than"),
        (f"r={SERVER_NONCE},s=MTIz,i={'9' * 25}", UNTRUSTED, "iterations of 25 digits, more than"),
        (f"r={SERVER_NONCE},s=MTIz,i={'9' * 60_000}", UNTRUSTED, "iterations of 60000 digits"),
        (f"r={SERVER_NONCE},s=MTIz,i={'0' * 60_000}1", UNTRUSTED, "1 iterations, fewer than"),
        (f"r={SERVER_NONCE},s=MTIz,i=4096,", MALFORMED, "its attribute i"),
        (f"r={SERVER_NONCE},s=MTIz,i=4096\n", MALFORMED, "its attribute i"),
        (f"r={SERVER_NONCE},s=MTIz,i=4096" + ",x=y" * 20_000, MALFORMED, "it is too long"),
    ],
)
def test_a_first_message_that_is_wrong(first: str, message: str, cause: str) -> None:
    """S-05: refused before any key is derived, and nothing of its bytes is shown."""
    mechanism = started()
    with pytest.raises(AuthenticationError) as refused:
        mechanism.answer(Secret(first.encode()))
    assert refused.value.message == message
    assert cause in str(refused.value.cause)
    assert not mechanism.is_complete
    assert (refused.value.mechanism, refused.value.user) == ("SCRAM-SHA-256", "user")
    for part in re.findall(r"[A-Za-z0-9%$]{4,}", first):
        if part not in {"unknown", "user"} and not part.isdigit():
            assert part not in str(refused.value)


def test_extensions_behind_the_iterations_are_ignored() -> None:
    mechanism = started()
    assert mechanism.answer(Secret(FIRST.encode() + b",x=1,y=a b")) is not None


@pytest.mark.parametrize(
    ("final", "message", "cause"),
    [
        ("v=" + base64.b64encode(bytes(32)).decode(), UNTRUSTED, "wrong server signature"),
        ("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4", UNTRUSTED, "wrong server signature"),
        ("v=", UNTRUSTED, "wrong server signature"),
        ("v=é", UNTRUSTED, "wrong server signature"),
        ("e=invalid-proof", UNTRUSTED, "it refused the proof: invalid-proof"),
        ("e=", MALFORMED, "its attribute v"),
        ("e=\x1b[31m", MALFORMED, "its attribute v"),
        ("", MALFORMED, "its attribute v"),
        (FIRST, MALFORMED, "its attribute v"),
    ],
)
def test_a_final_message_that_is_wrong(final: str, message: str, cause: str) -> None:
    """S-05: a server that does not know the password is not the broker."""
    mechanism = proven()
    with pytest.raises(AuthenticationError) as refused:
        mechanism.answer(Secret(final.encode()))
    assert refused.value.message == message
    assert cause in str(refused.value.cause)
    assert not mechanism.is_complete


def test_nothing_may_follow_the_end() -> None:
    mechanism = proven()
    final = Secret(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    mechanism.answer(final)
    with pytest.raises(AuthenticationError, match="went on after the end"):
        mechanism.answer(final)


MUTATED = [FIRST.encode(), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    token=st.one_of(
        st.binary(max_size=200),
        st.tuples(
            st.sampled_from(MUTATED), st.integers(0, 80), st.binary(max_size=3), st.integers(0, 3)
        ).map(lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + t[3] :]),
    ),
    is_final=st.booleans(),
)
def test_hostile_tokens_never_authenticate(token: bytes, is_final: bool) -> None:
    """S-05: whatever a server sends is an AuthenticationError, or nothing is proven by it."""
    mechanism = proven() if is_final else started()
    try:
        mechanism.answer(Secret(token))
    except AuthenticationError:
        assert not mechanism.is_complete
    else:
        assert mechanism.is_complete == (is_final and token.startswith(MUTATED[1]))
