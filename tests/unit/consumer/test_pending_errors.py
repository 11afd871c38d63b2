"""PendingErrors: keys, order, stickiness."""

from __future__ import annotations

from kfast.consumer.pending_errors import PendingErrors
from kfast.errors import KafkaError, TopicAuthorizationError


def test_a_later_error_of_the_same_key_replaces_the_earlier() -> None:
    errors = PendingErrors()
    for attempt in range(1000):
        errors.put(TopicAuthorizationError(f"attempt {attempt}", topic="t"))
    assert [entry.error.message for entry in errors.entries()] == ["attempt 999"]


def test_a_plain_error_is_raised_once() -> None:
    errors = PendingErrors()
    errors.put(KafkaError("x"))
    errors.raised(errors.entries()[0])
    assert not errors


def test_sticky_errors_alternate_until_they_are_cleared() -> None:
    errors = PendingErrors()
    errors.put(KafkaError("a"), key="a", is_sticky=True)
    errors.put(KafkaError("b"), key="b", is_sticky=True)
    seen = []
    for _ in range(4):
        entry = errors.entries()[0]
        seen.append(entry.key)
        errors.raised(entry)
    assert seen == ["a", "b", "a", "b"]
    errors.clear("a")
    errors.clear("b")
    errors.clear("b")
    assert not errors


def test_an_entry_that_was_replaced_is_not_dropped_by_its_predecessor() -> None:
    errors = PendingErrors()
    errors.put(KafkaError("old"), key="k")
    old = errors.entries()[0]
    errors.put(KafkaError("new"), key="k")
    errors.drop(old)
    errors.raised(old)
    assert [entry.error.message for entry in errors.entries()] == ["new"]
