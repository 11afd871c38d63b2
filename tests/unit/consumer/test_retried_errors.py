"""RetriedErrors: what is logged, known and certain of errors that go on."""

from __future__ import annotations

import logging

import pytest

from kfast.consumer.retried_errors import NOTICE_MS, RetriedError, RetriedErrors, Stage
from kfast.errors import ErrorCode, KafkaError, exception_for
from tests.unit.configs import config

BEGUN_MS = 1_000
LOADING = exception_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "not yet", hint="wait")
MOVED = exception_for(ErrorCode.NOT_COORDINATOR, "it moved")
REBALANCING = exception_for(ErrorCode.REBALANCE_IN_PROGRESS, "it rebalances")


def errors_of(**configs: object) -> RetriedErrors:
    return RetriedErrors(config({"group_id": "g", **configs}))


def cause(reason: RetriedError | None) -> str | None:
    return None if reason is None else reason.cause


def test_one_warning_for_each_kind_of_error_that_lasts(caplog: pytest.LogCaptureFixture) -> None:
    """Y-03: and one line when it is over; what passes within three seconds is not logged."""
    caplog.set_level(logging.INFO, "kfast")
    retries = errors_of()
    for ms in (0, 100, NOTICE_MS - 1):
        retries.failed(Stage.COORDINATOR, LOADING, BEGUN_MS + ms)
    assert caplog.messages == []
    for ms in range(NOTICE_MS, 60_000, 1_000):
        retries.failed(Stage.COORDINATOR, LOADING, BEGUN_MS + ms)
    retries.failed(Stage.COORDINATOR, MOVED, BEGUN_MS + 60_000)
    retries.failed(Stage.COORDINATOR, LOADING, BEGUN_MS + 61_000)
    retries.succeeded(Stage.COORDINATOR, BEGUN_MS + 62_000)
    assert [message.partition(" (")[0] for message in caplog.messages] == [
        'the coordinator of group "g" was not reached within 3.0 s',
        'the coordinator of group "g" was not reached within 60.0 s',
        'the coordinator of group "g" is reached after 62.0 s',
    ]
    assert "; wait" in caplog.messages[0]
    assert retries.failing == ()


def test_an_attempt_that_took_long_counts_from_its_beginning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Y-03: a broker that does not answer within the request timeout."""
    retries = errors_of()
    retries.failed(Stage.COORDINATOR, LOADING, 31_000, begun_ms=1_000)
    assert len(caplog.messages) == 1


def test_the_first_stage_that_fails_is_the_reason() -> None:
    """Y-03: the others need it."""
    retries = errors_of()
    retries.failed(Stage.COMMITTED_OFFSETS, MOVED, BEGUN_MS)
    retries.failed(Stage.COORDINATOR, LOADING, BEGUN_MS + 1)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in (cause(retries.timeout_reason(BEGUN_MS + 1)) or "")
    retries.ended(Stage.COORDINATOR)
    assert (cause(retries.timeout_reason(BEGUN_MS + 1)) or "").startswith("it moved")


def test_what_never_worked_is_known_at_once_and_certain_after_bootstrap_timeout_ms() -> None:
    """Y-03: then waiting for it does not help any call."""
    retries = errors_of(bootstrap_timeout_ms=5_000)
    retries.failed(Stage.COORDINATOR, LOADING, BEGUN_MS)
    assert retries.timeout_reason(BEGUN_MS) is not None
    assert retries.certain(BEGUN_MS + 4_999) is None
    reason = retries.certain(BEGUN_MS + 5_000)
    assert reason is not None
    error = retries.raised(reason, BEGUN_MS + 5_000)
    assert error.message == 'the coordinator of group "g" was not reached within 5000 ms'
    assert "COORDINATOR_LOAD_IN_PROGRESS" in (error.cause or "")
    assert error.hint == "wait"


def test_what_worked_before_is_never_certain() -> None:
    """Y-03: brokers restart; it is known once it lasts."""
    retries = errors_of()
    retries.succeeded(Stage.COORDINATOR, BEGUN_MS)
    retries.failed(Stage.COORDINATOR, LOADING, BEGUN_MS)
    assert retries.timeout_reason(BEGUN_MS + NOTICE_MS - 1) is None
    assert retries.timeout_reason(BEGUN_MS + NOTICE_MS) is not None
    assert retries.certain(BEGUN_MS + 10_000_000) is None


def test_a_rebalance_may_take_the_session_timeout() -> None:
    """Y-04: until then a member that died is waited for; it is never certain."""
    retries = errors_of(session_timeout_ms=10_000)
    retries.failed(Stage.MEMBERSHIP, REBALANCING, BEGUN_MS)
    waiting = KafkaError("JoinGroup is not answered")
    retries.failed(Stage.MEMBERSHIP, waiting, BEGUN_MS + 4_000, is_rebalance=True)
    assert retries.failing[0].error is waiting
    assert retries.timeout_reason(BEGUN_MS + 9_999) is None
    assert retries.timeout_reason(BEGUN_MS + 10_000) is not None
    assert retries.certain(BEGUN_MS + 10_000_000) is None
