"""ErrorMailbox: keys, order, stickiness."""

from __future__ import annotations

from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.error_mailbox import ErrorMailbox
from kfast.errors import KafkaError, TopicAuthorizationError
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0


def is_current(_: TopicPartition, version: int) -> bool:
    return version == 2


def taken(errors: ErrorMailbox) -> str | None:
    error = errors.take(is_current)
    return None if error is None else error.message


def test_a_later_error_of_the_same_key_replaces_the_earlier() -> None:
    errors = ErrorMailbox(ApplicationWakeup())
    for attempt in range(1000):
        errors.put(TopicAuthorizationError(f"attempt {attempt}", topic="t"))
    assert [taken(errors), taken(errors)] == ["attempt 999", None]


def test_a_plain_error_is_raised_once() -> None:
    errors = ErrorMailbox(ApplicationWakeup())
    assert taken(errors) is None
    errors.put(KafkaError("x"))
    assert errors.has_errors
    assert taken(errors) == "x"
    assert not errors.has_errors


def test_sticky_errors_alternate_until_they_are_cleared() -> None:
    errors = ErrorMailbox(ApplicationWakeup())
    errors.put(KafkaError("a"), key="a", is_sticky=True)
    errors.put(KafkaError("b"), key="b", is_sticky=True)
    assert [taken(errors) for _ in range(4)] == ["a", "b", "a", "b"]
    errors.clear("a")
    errors.clear("b")
    errors.clear("b")
    assert not errors.has_errors


def test_an_error_put_meanwhile_is_not_dropped_by_its_predecessor() -> None:
    errors = ErrorMailbox(ApplicationWakeup())
    errors.put(KafkaError("old"), key="k", partition=(T0, 1))

    def moves_on(_: TopicPartition, version: int) -> bool:
        errors.put(KafkaError("new"), key="k")
        return False

    assert errors.take(moves_on) is None
    assert taken(errors) == "new"


def test_errors_about_another_version_are_dropped() -> None:
    errors = ErrorMailbox(ApplicationWakeup())
    errors.put(KafkaError("old"), key="a", partition=(T0, 1), is_sticky=True)
    errors.put(KafkaError("now"), key="b", partition=(T0, 2), is_sticky=True)
    assert taken(errors) == "now"
    errors.clear("b")
    assert not errors.has_errors
    assert taken(errors) is None


def test_the_text_of_an_error_is_completed_when_it_is_put() -> None:
    errors = ErrorMailbox(ApplicationWakeup(), lambda error: KafkaError(f"{error.message}!"))
    errors.put(KafkaError("x"))
    assert repr(errors) == "<ErrorMailbox ['KafkaError']>"
    assert taken(errors) == "x!"


def test_an_error_ends_a_wait() -> None:
    """B-08"""
    wakeup = ApplicationWakeup()
    errors = ErrorMailbox(wakeup)
    wakeup.look()
    errors.put(KafkaError("x"))
    assert wakeup.wait(0)
