"""Commits and look-ups whose callers have stopped waiting."""

from __future__ import annotations

import pytest

from kfast.errors import WakeupError
from kfast.protocol.messages.offset_commit import OffsetCommitRequest
from kfast.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.unit.consumer.commits.committing import assigned
from tests.unit.consumer.fakes import T0
from tests.unit.consumer.group.harness import refused


def test_an_abandoned_commit_that_waits_leaves_the_queue() -> None:
    """R-01: between two attempts it is not sent again, and the next commit goes out at once."""
    harness = assigned()
    abandoned = harness.commit({T0: 1})
    harness.reply_commit(harness.take(OffsetCommitRequest), 14)
    later = harness.commit({T0: 2})
    abandoned.cancel()
    request = harness.take(OffsetCommitRequest)
    assert harness.committing(request) == {T0: 2}
    harness.reply_commit(request)
    assert later.value
    harness.advance(60_000)
    assert harness.nothing_sent(OffsetCommitRequest)
    assert harness.commits.flush().is_done


@pytest.mark.parametrize("code", [0, 14, 3])
def test_an_abandoned_commit_in_flight_is_not_sent_again(code: int) -> None:
    """R-01: its response ends it, and what comes after it does not wait for more than that."""
    harness = assigned()
    abandoned = harness.commit({T0: 1})
    request = harness.take(OffsetCommitRequest)
    abandoned.cancel()
    assert isinstance(abandoned.error, WakeupError)
    flushed = harness.commits.flush()
    order: list[str] = []
    flushed.add_callback(lambda _: order.append("flushed"))
    assert not order, "it may be stored yet"
    later = harness.commit({T0: 2})
    second = harness.take(OffsetCommitRequest)
    assert harness.committing(second) == {T0: 2}
    harness.reply_commit(request, code)
    assert order == ["flushed"]
    harness.reply_commit(second)
    assert later.value
    harness.advance(60_000)
    assert harness.nothing_sent(OffsetCommitRequest)


def test_a_commit_that_failed_early_ends_when_one_before_it_is_abandoned() -> None:
    """R-01, C-02: what waits for its turn to fail does not wait for ever."""
    harness = assigned()
    abandoned = harness.commit({T0: 1})
    harness.reply_commit(harness.take(OffsetCommitRequest), 14)
    refused = harness.commit({T0: -1})
    abandoned.cancel()
    assert refused.is_done


def test_an_abandoned_look_up_of_committed_offsets_is_not_sent_again() -> None:
    """R-02"""
    harness = assigned()
    abandoned = harness.fetch(T0)
    request = harness.take(OffsetFetchRequest)
    abandoned.cancel()
    harness.reply_fetch(request, {T0: refused(14)})
    harness.advance(5_000)
    assert harness.nothing_sent(OffsetFetchRequest)
    waiting = harness.fetch(T0)
    waiting.cancel()
    assert harness.nothing_sent(OffsetFetchRequest)
