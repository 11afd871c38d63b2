"""PartitionStates: what waits, versions, and positions under a new view of a cluster."""

from __future__ import annotations

import pytest

from kfast.consumer import partition_states
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.partition_states import PartitionStates
from kfast.consumer.topic_partition_state import FetchState, TopicPartitionState
from kfast.settings.offset_reset import RESET_EARLIEST, RESET_LATEST
from kfast.types import TopicPartition
from tests.unit.consumer.clusters import cluster, topic_id_of
from tests.unit.consumer.fakes import T0, T1, T2

WAITING = (FetchState.INITIALIZING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION)


def states_at(position: FetchPosition) -> tuple[PartitionStates, TopicPartitionState]:
    """Return T0 alone, fetched from a position under leader 1 in epoch 5."""
    states = PartitionStates()
    states.update_leaders(cluster({T0: (1, 5)}))
    states.replace([T0])
    state = states.by_partition[T0]
    states.enter(state, FetchState.FETCHING, position)
    states.changed.clear()
    return states, state


# --- which partitions -----------------------------------------------------------------------------


def test_every_partition_that_is_not_fetched_waits_in_one_place() -> None:
    states = PartitionStates()
    states.replace([T0, T1, T2])
    assert list(states.waiting[FetchState.INITIALIZING]) == [T0, T1, T2]
    states.await_reset(states.by_partition[T0], RESET_LATEST)
    states.enter(states.by_partition[T1], FetchState.AWAIT_VALIDATION, FetchPosition(1, 1))
    states.enter(states.by_partition[T2], FetchState.FETCHING, FetchPosition(1))
    assert [list(states.waiting[state]) for state in WAITING] == [[], [T0], [T1]]
    assert repr(states) == "<PartitionStates 3 await_reset=1, await_validation=1>"
    states.replace([T2])
    assert [list(states.waiting[state]) for state in WAITING] == [[], [], []]
    assert repr(states) == "<PartitionStates 1>"


def test_the_dicts_stay_the_same_over_assignments() -> None:
    states = PartitionStates()
    by_partition, initializing = states.by_partition, states.waiting[FetchState.INITIALIZING]
    states.replace([T0])
    states.replace([T1])
    assert list(by_partition) == [T1]
    assert list(initializing) == [T1]


def test_what_comes_and_what_goes_has_changed_and_what_stays_has_not() -> None:
    states = PartitionStates()
    states.replace([T0, T1])
    kept = states.by_partition[T1]
    states.changed.clear()
    before = states.changes
    states.replace([T1, T2])
    assert states.changed.keys() == {T0, T2}
    assert states.changes > before
    assert states.by_partition[T1] is kept


def test_no_version_is_given_twice() -> None:
    """F-03: nor to a partition that comes back, or after a reset."""
    states = PartitionStates()
    seen = []
    for _ in range(2):
        states.replace([T0, T1])
        seen += [state.version for state in states.by_partition.values()]
        states.await_reset(states.by_partition[T0], RESET_EARLIEST)
        seen.append(states.by_partition[T0].version)
        states.enter(states.by_partition[T0], FetchState.FETCHING, FetchPosition(0))
        seen.append(states.by_partition[T0].version)
        states.replace([])
    assert seen == sorted(set(seen))


def test_a_remembered_position_is_taken_up_once() -> None:
    states, _ = states_at(FetchPosition(42))
    states.remember_positions(staying=set())
    states.replace([])
    states.replace([T0])
    state = states.by_partition[T0]
    assert (state.fetch_state, state.fetch_offset) == (FetchState.FETCHING, 42)
    states.replace([])
    states.replace([T0])
    assert states.by_partition[T0].fetch_state is FetchState.INITIALIZING


def test_positions_are_remembered_neither_of_what_stays_nor_under_another_topic_id() -> None:
    states, _ = states_at(FetchPosition(42))
    states.remember_positions(staying={T0})
    states.replace([])
    states.replace([T0])
    assert states.by_partition[T0].position is None
    states.enter(states.by_partition[T0], FetchState.FETCHING, FetchPosition(42))
    states.remember_positions(staying=set())
    states.replace([])
    states.update_leaders(cluster({T0: (1, 5)}, incarnation=1))
    states.replace([T0])
    assert states.by_partition[T0].position is None


def test_positions_of_partitions_that_do_not_come_back_are_forgotten_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """U-10: the oldest first, as topics come and go."""
    monkeypatch.setattr(partition_states, "MOST_REMEMBERED", 3)
    states = PartitionStates()
    for number in range(10):
        states.replace([TopicPartition(f"t{number}", 0)])
        state = states.by_partition[TopicPartition(f"t{number}", 0)]
        states.enter(state, FetchState.FETCHING, FetchPosition(number))
        states.remember_positions(staying=set())
    remembered = [n for n in range(10) if states.is_remembered(TopicPartition(f"t{n}", 0))]
    assert remembered == [7, 8, 9]


def test_forgotten_positions_are_not_taken_up() -> None:
    states, _ = states_at(FetchPosition(42))
    states.remember_positions(staying=set())
    states.forget_positions()
    states.replace([])
    states.replace([T0])
    assert states.by_partition[T0].position is None


# --- what a partition is doing --------------------------------------------------------------------


def test_to_stop_what_has_stopped_changes_nothing() -> None:
    states, state = states_at(FetchPosition(0))

    def pause() -> None:
        states.set_paused([state], is_paused=True)

    def hold() -> None:
        states.set_pending_callback([T0, T1], is_pending=True)  # T1 is not assigned

    for stop in (pause, hold):
        before = states.changes
        stop()
        assert (states.changes, list(states.changed)) == (before + 1, [T0])
        states.changed.clear()
        stop()
        assert (states.changes, list(states.changed)) == (before + 1, [])


def test_a_position_without_a_leader_gets_the_one_of_now() -> None:
    states, state = states_at(FetchPosition(7))
    assert state.position == FetchPosition(7, None, 1, 5)
    states.enter(state, FetchState.FETCHING, FetchPosition(8, None, 3, 4))
    assert state.position == FetchPosition(8, None, 3, 4)


# --- the cluster ----------------------------------------------------------------------------------


@pytest.mark.parametrize("leader", [(1, 5), (-1, 6)], ids=["the same", "none"])
def test_without_another_leader_nothing_changes(leader: tuple[int, int]) -> None:
    states, state = states_at(FetchPosition(7, 4))
    before, state.preferred_read_replica = state.version, 3
    states.update_leaders(cluster({T0: leader}))
    assert state.position == FetchPosition(7, 4, 1, 5)
    assert (state.version, state.preferred_read_replica, states.changed) == (before, 3, {})


@pytest.mark.parametrize("leader", [(2, 6), (1, 6)], ids=["another", "another epoch"])
def test_a_position_with_an_epoch_is_in_doubt_under_another_leader(
    leader: tuple[int, int],
) -> None:
    """P-13: the leader or only its epoch changed."""
    states, state = states_at(FetchPosition(7, 4))
    before = state.version
    state.preferred_read_replica, state.preferred_until_ms = 3, 1_000
    states.update_leaders(cluster({T0: leader}))
    assert state.position == FetchPosition(7, 4, *leader)
    assert list(states.waiting[FetchState.AWAIT_VALIDATION]) == [T0]
    assert state.version > before
    preferred: tuple[int | None, int] = (state.preferred_read_replica, state.preferred_until_ms)
    assert preferred == (None, 0)
    assert states.changed.keys() == {T0}


def test_a_doubt_moves_on_with_the_leader() -> None:
    states, state = states_at(FetchPosition(7, 4))
    states.update_leaders(cluster({T0: (2, 6)}))
    in_doubt = state.version
    states.update_leaders(cluster({T0: (3, 7)}))
    assert (state.fetch_state, state.version > in_doubt) == (FetchState.AWAIT_VALIDATION, True)
    assert state.position == FetchPosition(7, 4, 3, 7)


def test_validation_ends_when_the_brokers_send_no_epochs() -> None:
    states, state = states_at(FetchPosition(7, 4))
    states.update_leaders(cluster({T0: (2, 6)}))
    states.update_leaders(cluster({T0: (3, -1)}))
    assert state.fetch_state is FetchState.FETCHING
    assert state.position == FetchPosition(7, 4, 3, None)


def test_a_position_without_an_epoch_follows_the_leader_and_what_is_in_flight_stays_good() -> None:
    states, state = states_at(FetchPosition(7))
    before = state.version
    states.update_leaders(cluster({T0: (2, 6)}))
    assert (state.fetch_state, state.version) == (FetchState.FETCHING, before)
    assert state.position == FetchPosition(7, None, 2, 6)
    assert states.changed.keys() == {T0}


def test_a_position_that_is_being_reset_waits_for_the_reset() -> None:
    states, state = states_at(FetchPosition(7, 4))
    states.await_reset(state, RESET_LATEST)
    before = state.version
    states.update_leaders(cluster({T0: (2, 6)}))
    assert (state.fetch_state, state.version) == (FetchState.AWAIT_RESET, before)
    assert state.position == FetchPosition(7, 4, 1, 5)


def test_a_topic_created_again_starts_without_a_position() -> None:
    """A new state under the new id; what user and group stopped stays stopped."""
    states, old = states_at(FetchPosition(7, 4))
    states.set_paused([old], is_paused=True)
    states.set_pending_callback([T0], is_pending=True)
    states.set_subscribed(lambda topic: topic == "t")
    ids = topic_id_of("t", 0), topic_id_of("t", 1)
    assert states.update_leaders(cluster({T0: (1, 5)}, incarnation=1)) == [(T0, *ids)]
    new = states.by_partition[T0]
    assert new is not old
    assert (new.fetch_state, new.position) == (FetchState.INITIALIZING, None)
    assert new.topic_id == topic_id_of("t", 1)
    assert (new.is_paused, new.is_pending_callback, new.is_subscribed) == (True, True, False)
    assert new.version > old.version
    assert states.update_leaders(cluster({T0: (1, 5)}, incarnation=1)) == []


def test_an_id_that_is_learnt_late_belongs_to_the_topic_there_was() -> None:
    states = PartitionStates()
    states.replace([T0])
    state = states.by_partition[T0]
    states.update_leaders(cluster({T0: (1, 5)}))
    assert states.by_partition[T0] is state
    assert state.topic_id == topic_id_of("t")
    states.update_leaders(cluster({T0: (1, 5)}, has_topic_ids=False))
    assert state.topic_id == topic_id_of("t")
