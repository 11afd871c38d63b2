"""The words of refusals and denials: what is shown of hostile text, and who may not do what."""

from __future__ import annotations

import pickle

import pytest

from kfast.client.refusals import again
from kfast.errors import (
    AuthenticationError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
    exception_for,
)
from kfast.security.authentication_errors import denied, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand\x1b[31m red", "two lines and [31m red"),
        ("\u202eabc", "abc"),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 80 + "..."),
        ("\n" * 1000, "..."),
    ],
)
def test_hostile_text_is_one_short_line(text: str, shown: str) -> None:
    """S-05"""
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (
            exception_for(29, "no", topic="orders"),
            [
                'user "app" may not read topic orders',
                "cause: TOPIC_AUTHORIZATION_FAILED (error 29)",
                "try: kafka-acls.sh --add --allow-principal User:app --operation READ "
                "--topic orders",
            ],
        ),
        (
            exception_for(29, topic="orders", operation="describe"),
            [
                'user "app" may not describe topic orders',
                "cause: TOPIC_AUTHORIZATION_FAILED (error 29)",
                "try: kafka-acls.sh --add --allow-principal User:app --operation READ "
                "--topic orders",
            ],
        ),
        (
            exception_for(30),
            [
                'user "app" may not use group my group',
                "cause: GROUP_AUTHORIZATION_FAILED (error 30)",
                "try: kafka-acls.sh --add --allow-principal User:app --operation READ "
                "--group 'my group'",
            ],
        ),
        (
            exception_for(31),
            [
                'user "app" may not do this on the cluster',
                "cause: CLUSTER_AUTHORIZATION_FAILED (error 31)",
                "try: kafka-acls.sh --add --allow-principal User:app --operation DESCRIBE "
                "--cluster",
            ],
        ),
    ],
)
def test_a_denial_names_user_and_resource(error: KafkaError, lines: list[str]) -> None:
    """S-08"""
    found = denied(error, "app", "my group")
    assert type(found) is type(error)
    assert str(found).splitlines() == lines
    assert (found.code, found.topic) == (error.code, error.topic)
    assert found.args == (lines[0],)
    assert str(pickle.loads(pickle.dumps(found))) == str(found)
    assert error.message != lines[0]


def test_a_denial_without_a_log_in() -> None:
    """S-08: brokers call it ANONYMOUS."""
    found = denied(exception_for(29, topic="t"), None, None)
    assert isinstance(found, TopicAuthorizationError)
    assert found.user is None
    assert found.message == "this connection may not read topic t"
    assert "--allow-principal User:ANONYMOUS " in str(found.hint)


def test_a_name_is_quoted_for_the_shell() -> None:
    """S-08"""
    found = denied(exception_for(29, topic="t"), "odd na$me", None)
    assert "--allow-principal 'User:odd na$me' " in str(found.hint)


@pytest.mark.parametrize(
    "error",
    [
        KafkaError("other"),
        TopicAuthorizationError("some topics of the group"),
        GroupAuthorizationError("no group is set"),
    ],
)
def test_other_errors_stay_as_they_are(error: KafkaError) -> None:
    assert denied(error, "app", None) is error


def test_cluster_denials_need_no_group() -> None:
    assert denied(ClusterAuthorizationError("no"), None, None).message.startswith("this connection")


def test_an_error_raised_again_has_a_traceback_of_its_own() -> None:
    """S-06: one that is raised for minutes must not grow."""
    first = AuthenticationError("no", user="app", node=1)
    first.__cause__ = ValueError("why")
    with pytest.raises(AuthenticationError):
        raise first
    second = again(first)
    assert second is not first
    assert (str(second), second.user, second.node) == (str(first), "app", 1)
    assert second.__cause__ is first.__cause__
    assert second.__traceback__ is None
