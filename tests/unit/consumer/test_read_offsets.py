"""ReadOffsets: under which topic id and leader epoch an offset was read."""

from __future__ import annotations

from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.read_offsets import MOST_PARTITIONS, MOST_RANGES, OffsetOrigin, ReadOffsets
from kfast.consumer.subscription_state import SubscriptionState
from kfast.consumer.topic_partition_state import (
    MOST_EPOCHS,
    AdvancePosition,
    FetchState,
    TopicPartitionState,
)
from kfast.settings.offset_reset import RESET_EARLIEST
from kfast.types import TopicPartition
from tests.unit.consumer.clusters import cluster, topic_id_of
from tests.unit.consumer.fakes import T0

ID = topic_id_of("t")


def subscriptions_at(position: FetchPosition, incarnation: int = 0) -> SubscriptionState:
    """Return T0 alone at a position."""
    subscriptions = SubscriptionState(RESET_EARLIEST)
    subscriptions.update_leaders(cluster({T0: (1, 5)}, incarnation=incarnation))
    subscriptions.assign_from_user([T0])
    subscriptions.seek(T0, position)
    enter(subscriptions)
    return subscriptions


def enter(subscriptions: SubscriptionState) -> None:
    """Have a position that was sought with its epoch fetched from."""
    state = subscriptions.assigned(T0)
    if state.fetch_state is FetchState.AWAIT_VALIDATION:
        assert subscriptions.complete_validation(T0, state.version)


def advance(subscriptions: SubscriptionState, to: int, epoch: int | None) -> None:
    step = AdvancePosition(T0, subscriptions.assigned(T0).version, to, epoch)
    assert subscriptions.advance_positions([step])


def epochs(subscriptions: SubscriptionState, *offsets: int) -> list[int | str | None]:
    """Return the leader epoch of each offset, "unread" for those that were not read."""
    found: list[int | str | None] = []
    for offset in offsets:
        origin = subscriptions.origins({T0: offset}).get(T0)
        found.append("unread" if origin is None else origin.leader_epoch)
    return found


def test_epochs_begin_behind_the_record_before() -> None:
    """R-06: an offset has the epoch of the record before it, the start that of the position."""
    subscriptions = subscriptions_at(FetchPosition(10, 3))
    assert epochs(subscriptions, 9, 10, 11) == ["unread", 3, "unread"]
    advance(subscriptions, 15, 3)
    advance(subscriptions, 20, 5)
    advance(subscriptions, 22, None)
    advance(subscriptions, 30, 6)
    assert epochs(subscriptions, 10, 11, 15) == [3, 3, 3]
    assert epochs(subscriptions, 16, 20, 21, 22) == [5, 5, 5, 5]
    assert epochs(subscriptions, 23, 30, 31) == [6, 6, "unread"]
    assert subscriptions.origins({T0: 20}) == {T0: OffsetOrigin(ID, 5)}


def test_a_seek_without_an_epoch_takes_that_of_what_was_read_there() -> None:
    """R-06: what was read since counts before what was read earlier."""
    subscriptions = subscriptions_at(FetchPosition(0))
    assert epochs(subscriptions, 0) == ["unread"]
    advance(subscriptions, 10, 3)
    subscriptions.seek(T0, FetchPosition(5))
    assert epochs(subscriptions, 4, 5, 10) == [3, 3, 3]
    advance(subscriptions, 8, 4)
    assert epochs(subscriptions, 4, 5, 6, 8, 9) == [3, 3, 4, 4, 3]
    subscriptions.unsubscribe()
    assert epochs(subscriptions, 4, 8, 11) == [3, 4, "unread"]


def test_what_was_read_of_a_topic_created_anew_counts_first() -> None:
    """R-10: only what has not been read of it is known to be of the former one."""
    subscriptions = subscriptions_at(FetchPosition(0))
    advance(subscriptions, 100, 7)
    subscriptions.update_leaders(cluster({T0: (1, 0)}, incarnation=1))
    new = topic_id_of("t", 1)
    subscriptions.seek(T0, FetchPosition(0))
    advance(subscriptions, 40, 0)
    assert subscriptions.origins({T0: 40}) == {T0: OffsetOrigin(new, 0)}
    assert subscriptions.origins({T0: 41}) == {T0: OffsetOrigin(ID, 7)}
    subscriptions.seek(T0, FetchPosition(90))
    assert subscriptions.origins({T0: 90}) == {T0: OffsetOrigin(new, None)}, "not that of the other"


def test_a_leader_that_changes_often_takes_no_memory() -> None:
    """R-06"""
    subscriptions = subscriptions_at(FetchPosition(0))
    for number in range(1, 200):
        advance(subscriptions, number, number)
    state = subscriptions.assigned(T0)
    assert len(state.epoch_starts) == MOST_EPOCHS + 1
    assert epochs(subscriptions, 199, 199 - MOST_EPOCHS, 100) == [199, 199 - MOST_EPOCHS, "unread"]


def test_many_seeks_and_partitions_take_no_memory() -> None:
    """R-06: the latest ranges stay; those that touch become one."""
    read = ReadOffsets()
    for number in range(5 * MOST_RANGES):
        state = TopicPartitionState(T0, number)
        state.set_position(FetchPosition(10 * number, 1), number)
        read.end(state)
        read.end(state)
    assert len(read._earlier[T0]) == MOST_RANGES
    for number in range(MOST_PARTITIONS + 5):
        state = TopicPartitionState(TopicPartition("u", number), number)
        state.set_position(FetchPosition(1, 1), number)
        read.end(state)
    assert len(read._earlier) == MOST_PARTITIONS
    assert repr(read) == f"<ReadOffsets of {MOST_PARTITIONS} partitions>"
