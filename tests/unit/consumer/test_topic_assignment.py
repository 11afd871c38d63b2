"""TopicAssignmentManager: from subscription and cluster to partitions."""

from __future__ import annotations

import re

import pytest

from kfast.consumer.fetch_position import FetchPosition
from kfast.errors import InvalidTopicError, TopicAuthorizationError
from kfast.types import TopicPartition
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.harness import Harness

A0 = TopicPartition("a", 0)
B0 = TopicPartition("b", 0)
INTERNAL = TopicPartition("__consumer_offsets", 0)


def leaders(*partitions: TopicPartition) -> dict[TopicPartition, tuple[int, int]]:
    return dict.fromkeys(partitions, (1, 5))


def assigned(harness: Harness) -> set[TopicPartition]:
    harness.turn()
    return set(harness.subscriptions.assigned_partitions())


def test_subscribed_topics_become_all_their_partitions() -> None:
    harness = Harness(leaders(T0, T1, A0))
    harness.subscriptions.subscribe({"t", "missing"})
    assert assigned(harness) == {T0, T1}
    assert harness.metadata.topics == frozenset({"t", "missing"})
    harness.subscriptions.subscribe({"a"})
    assert assigned(harness) == {A0}
    assert harness.metadata.topics == frozenset({"a"})


def test_new_partitions_are_added_without_touching_the_others() -> None:
    """M-08: growth is picked up; positions of the others stay."""
    harness = Harness(leaders(T0))
    harness.subscriptions.subscribe({"t"})
    harness.turn()
    harness.subscriptions.seek(T0, FetchPosition(9))
    harness.set_leaders(leaders(T0, T1))
    assert assigned(harness) == {T0, T1}
    assert harness.position(T0) == 9


def test_a_topic_that_appears_later_is_read() -> None:
    """M-05: subscribed before it exists."""
    harness = Harness(leaders(T0))
    harness.subscriptions.subscribe({"a"})
    assert assigned(harness) == set()
    harness.wakeup.look()
    harness.set_leaders(leaders(T0, A0))
    assert assigned(harness) == {A0}
    assert harness.wakeup.wait(0)


def test_a_pattern_follows_the_topics_of_the_cluster() -> None:
    """M-07: new matches are added, vanished ones dropped, at each refresh."""
    harness = Harness(leaders(A0))
    harness.subscriptions.subscribe_pattern(re.compile("[ab]"))
    assert assigned(harness) == {A0}
    assert harness.metadata.topics is None
    assert harness.subscriptions.subscription() == {"a"}
    harness.set_leaders(leaders(B0, T0))
    assert assigned(harness) == {B0}
    assert harness.subscriptions.subscription() == {"b"}


@pytest.mark.parametrize("excludes", [True, False])
def test_internal_topics_match_only_if_configured(excludes: bool) -> None:
    """M-07: exclude_internal_topics."""
    harness = Harness(exclude_internal_topics=excludes)
    harness.set_leaders(leaders(A0, INTERNAL), internal=["__consumer_offsets"])
    harness.subscriptions.subscribe_pattern(re.compile(".*"))
    assert assigned(harness) == ({A0} if excludes else {A0, INTERNAL})


def test_a_topic_that_flickers_is_not_reset() -> None:
    """M-09: it goes on where it was."""
    harness = Harness(leaders(A0, B0))
    harness.subscriptions.subscribe_pattern(re.compile("[ab]"))
    harness.turn()
    harness.subscriptions.seek(A0, FetchPosition(42))
    harness.set_leaders(leaders(B0))
    assert assigned(harness) == {B0}
    harness.set_leaders(leaders(A0, B0))
    assert assigned(harness) == {A0, B0}
    assert harness.position(A0) == 42


def test_manual_assignment_is_taken_as_it_is() -> None:
    """M-05: metadata is asked for the topics, the partitions may not exist yet."""
    harness = Harness(leaders(T0))
    harness.subscriptions.assign_from_user([T0, A0])
    assert assigned(harness) == {T0, A0}
    assert harness.metadata.topics == frozenset({"a", "t"})
    harness.subscriptions.unsubscribe()
    assert assigned(harness) == set()
    assert harness.metadata.topics == frozenset()


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (29, TopicAuthorizationError, 'not allowed to read topic "a"'),
        (17, InvalidTopicError, 'no topic can have the name "a"'),
    ],
)
def test_topics_that_cannot_be_read_are_raised_while_others_flow(
    code: int, kind: type[Exception], text: str
) -> None:
    """S-08: by name, at each poll, until it is allowed."""
    harness = Harness(leaders(T0))
    harness.metadata.topic_errors = {"a": code, "other": 29}
    harness.subscriptions.subscribe({"a", "t"})
    assert assigned(harness) == {T0}
    for _ in range(2):
        with pytest.raises(kind, match=text):
            harness.collect()
    harness.metadata.topic_errors = {}
    harness.set_leaders(leaders(T0, A0))
    assert assigned(harness) == {T0, A0}
    assert harness.collect() == {}


def test_retriable_topic_errors_are_waited_out() -> None:
    """M-05: a topic that is not there yet is no error of the poll."""
    harness = Harness(leaders(T0))
    harness.metadata.topic_errors = {"a": 3}
    harness.subscriptions.subscribe({"a"})
    harness.turn()
    assert harness.collect() == {}


def test_nothing_is_done_while_nothing_changes() -> None:
    """F-23: no work per turn."""
    harness = Harness(leaders(T0))
    harness.subscriptions.subscribe({"t"})
    harness.turn()
    before = harness.subscriptions.assignment_version
    harness.set_leaders(leaders(T0))
    harness.turn()
    assert harness.subscriptions.assignment_version == before
    assert "AUTO_TOPICS" in repr(harness.managers.assignment)


def test_with_a_group_topics_are_known_and_partitions_are_not_assigned() -> None:
    """G-14: the group assigns; a pattern's topics and those of the whole group are looked up."""
    harness = Harness(leaders(T0, A0), group_id="g")
    harness.subscriptions.subscribe({"t"})
    assert assigned(harness) == set()
    assert harness.metadata.topics == frozenset({"t"})
    harness.subscriptions.set_group_topics({"t", "a"})
    harness.subscriptions.subscribe({"t", "missing"})
    harness.turn()
    assert harness.metadata.topics == frozenset({"t", "missing", "a"})
    harness.subscriptions.unsubscribe()
    harness.subscriptions.subscribe_pattern(re.compile("[at]"))
    assert assigned(harness) == set()
    assert harness.subscriptions.subscription() == {"a", "t"}
    assert harness.metadata.topics is None
