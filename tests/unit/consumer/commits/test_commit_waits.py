"""When the commit queue wants to be looked at again."""

from __future__ import annotations

from kfast.consumer.group.membership import MemberIdentity
from kfast.protocol.messages.offset_commit import OffsetCommitRequest
from tests.unit.consumer.fakes import T0
from tests.unit.consumer.group.coordinator_harness import GROUP
from tests.unit.consumer.group.harness import GroupHarness


def test_an_overdue_commit_in_flight_is_waited_for_without_a_busy_loop() -> None:
    """C-02: an asynchronous commit that was sent late ends with its answer."""
    group = GroupHarness(subscribes=True, identity=MemberIdentity(GROUP, 1, "m"))
    result = group.commit({T0: 5}, timeout_ms=None)
    group.advance(10_000)
    group.find()
    request = group.take(OffsetCommitRequest)
    group.advance(group.config.request_timeout_ms - 10_000)
    assert group.next_poll_ms > 0
    group.reply_commit(request)
    assert result.is_done
    assert result.error is None
