"""PendingResult: one outcome, first come."""

from __future__ import annotations

import pytest

from kfast.consumer.pending_result import PendingResult, all_of
from kfast.errors import IllegalStateError, KafkaTimeoutError


def test_a_value_is_there_after_complete() -> None:
    pending: PendingResult[int] = PendingResult()
    assert (pending.is_done, pending.complete(7), pending.is_done) == (False, True, True)
    assert pending.value == 7
    assert pending.error is None


def test_an_error_is_raised_by_value() -> None:
    pending: PendingResult[int] = PendingResult()
    error = KafkaTimeoutError("too late")
    assert pending.fail(error)
    assert pending.error is error
    with pytest.raises(KafkaTimeoutError, match="too late"):
        _ = pending.value


def test_the_first_outcome_wins() -> None:
    pending: PendingResult[int] = PendingResult()
    pending.fail(KafkaTimeoutError("too late"))
    assert not pending.complete(7)
    assert pending.error is not None


def test_callbacks_run_once_before_or_after_the_end() -> None:
    pending: PendingResult[int] = PendingResult()
    seen: list[int] = []
    pending.add_callback(lambda done: seen.append(done.value))
    assert seen == []
    pending.complete(1)
    pending.complete(2)
    pending.add_callback(lambda done: seen.append(done.value + 10))
    assert seen == [1, 11]


def test_a_pending_value_cannot_be_read() -> None:
    with pytest.raises(IllegalStateError):
        _ = PendingResult[int]().value


def test_repr_has_the_state() -> None:
    pending: PendingResult[int] = PendingResult()
    assert repr(pending) == "<PendingResult pending>"
    pending.fail(KafkaTimeoutError("x"))
    assert "KafkaTimeoutError" in repr(pending)


def test_several_results_end_together_with_all_values() -> None:
    parts: list[PendingResult[int]] = [PendingResult(), PendingResult()]
    together = all_of(parts)
    parts[1].complete(2)
    assert not together.is_done
    parts[0].complete(1)
    assert together.value == [1, 2]


def test_the_first_error_of_several_cancels_the_others() -> None:
    parts: list[PendingResult[int]] = [PendingResult(), PendingResult()]
    together = all_of(parts)
    parts[1].fail(KafkaTimeoutError("too late"))
    with pytest.raises(KafkaTimeoutError, match="too late"):
        _ = together.value
    assert parts[0].is_done


def test_a_caller_that_stops_waiting_cancels_all() -> None:
    parts: list[PendingResult[int]] = [PendingResult(), PendingResult()]
    all_of(parts).cancel()
    assert all(each.is_done for each in parts)
