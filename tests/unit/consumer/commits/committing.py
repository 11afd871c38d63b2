"""Consumers and members that commit."""

from __future__ import annotations

from typing import Any

from kfast.consumer.group.membership import MemberIdentity
from kfast.protocol.messages.offset_commit import OffsetCommitRequest
from tests.unit.consumer.group.coordinator_harness import GROUP
from tests.unit.consumer.group.harness import GroupHarness

MEMBER = MemberIdentity(GROUP, 7, "m-1")
NEXT = MemberIdentity(GROUP, 8, "m-1")


def assigned(**configs: Any) -> GroupHarness:
    """Make a consumer with partitions assigned by hand that knows its coordinator."""
    harness = GroupHarness(**configs)
    harness.finder.require(harness.now)
    harness.find()
    return harness


def member(identity: MemberIdentity = MEMBER, **configs: Any) -> GroupHarness:
    """Make a member of a group that knows its coordinator."""
    harness = GroupHarness(subscribes=True, identity=identity, **configs)
    harness.finder.require(harness.now)
    harness.find()
    return harness


def sent(harness: GroupHarness) -> OffsetCommitRequest:
    message = harness.waiting(OffsetCommitRequest)[0].message
    assert isinstance(message, OffsetCommitRequest)
    return message
