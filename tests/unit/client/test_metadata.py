"""Metadata: what is believed of an answer, and when the next one is due."""

from __future__ import annotations

import time

import pytest

from kfast.client.metadata import Metadata, MetadataScope, Node
from kfast.errors import KafkaConnectionError
from kfast.types import ZERO_UUID, TopicPartition
from tests.fake_clock import FakeClock
from tests.unit.client.frames import metadata, partition, topic, topic_id
from tests.unit.configs import config

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def view(clock: FakeClock) -> Metadata:
    made = Metadata(config(), clock)
    made.set_topics({"t"})
    return made


# --- the snapshot ---------------------------------------------------------------------------------


def test_an_answer_becomes_a_snapshot(view: Metadata, clock: FakeClock) -> None:
    before = view.cluster
    answer = metadata(topic("t", partition(0, 1, 5), partition(1, 2, 6, offline=(2,))))
    assert view.update(answer, clock.now)
    cluster = view.cluster
    assert before.brokers == {}, "a snapshot never changes"
    assert cluster.brokers[2] == Node(2, "b2", 9092)
    assert cluster.leader_for(T1) == Node(2, "b2", 9092)
    assert cluster.leader_epoch_for(T0) == 5
    assert cluster.partitions_for_topic("t") == {0, 1}
    assert cluster.topic_partitions("t") == [T0, T1]
    assert cluster.topic_id("t") == topic_id(7)
    assert cluster.topic_names.get(topic_id(7)) == "t"
    assert cluster.is_offline(T1, 2)
    assert not cluster.is_offline(T0, 2)
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 1)
    assert view.version == 1


def test_what_is_not_known_is_none(view: Metadata) -> None:
    assert view.cluster.leader_for(T0) is None
    assert view.cluster.leader_epoch_for(T0) is None
    assert view.cluster.partitions_for_topic("t") is None
    assert view.cluster.topic_partitions("t") == []
    assert view.cluster.topic_id("t") is None
    assert view.cluster.topic_names.get(topic_id(7)) is None


# --- when -----------------------------------------------------------------------------------------


def test_refreshes_come_with_age(view: Metadata, clock: FakeClock) -> None:
    """M-01: a refresh is due every metadata_max_age_ms."""
    assert view.time_to_next_update(clock.now) == 0, "the first one at once"
    view.update(metadata(topic("t", partition(0))), clock.now)
    assert not view.is_update_needed
    assert view.time_to_next_update(clock.now) == 300_000
    assert view.time_to_next_update(clock.advance(299_000)) == 1_000
    assert view.time_to_next_update(clock.advance(1_000)) == 0


def test_requested_refreshes_back_off_while_nothing_improves(
    view: Metadata, clock: FakeClock
) -> None:
    """M-01: on demand at once, then with exponential backoff until an answer brings something."""
    answer = metadata(topic("t", partition(0, 1, 5)))
    view.update(answer, clock.now)
    clock.advance(10_000)
    view.request_update()
    assert view.time_to_next_update(clock.now) == 0
    waits = []
    for _ in range(6):
        view.update(answer, clock.now)
        view.request_update()
        waits.append(view.time_to_next_update(clock.now))
        clock.advance(waits[-1])
    assert waits == [100, 200, 400, 800, 1000, 1000]
    view.update(metadata(topic("t", partition(0, 2, 6))), clock.now)
    view.request_update()
    assert view.time_to_next_update(clock.now) == 100, "progress starts over"


def test_failed_refreshes_back_off(view: Metadata, clock: FakeClock) -> None:
    """M-01: failures pause as well, and are readable."""
    error = KafkaConnectionError("no")
    waits = []
    for _ in range(5):
        view.failed(error, clock.now)
        waits.append(view.time_to_next_update(clock.now))
        clock.advance(waits[-1])
    assert waits == [100, 200, 400, 800, 1000]
    assert view.last_error is error
    view.update(metadata(topic("t", partition(0))), clock.now)
    assert view.last_error is None


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 80), (0.5, 100), (0.9999, 120)])
def test_pauses_are_spread(view: Metadata, clock: FakeClock, chance: float, wait: int) -> None:
    """M-01: 20 % jitter."""
    clock.random_value = chance
    view.failed(KafkaConnectionError("no"), clock.now)
    assert view.time_to_next_update(clock.now) == wait


def test_new_topics_are_asked_for_without_waiting_for_age(view: Metadata, clock: FakeClock) -> None:
    view.update(metadata(topic("t", partition(0))), clock.now)
    clock.advance(1_000)
    view.set_topics({"t", "u"})
    assert view.time_to_next_update(clock.now) == 0
    view.update(
        metadata(topic("t", partition(0)), topic("u", partition(0), id_number=8)), clock.now
    )
    view.set_topics({"u"})
    assert not view.is_update_needed, "fewer topics need no refresh"
    view.set_topics({"t", "u"})
    assert not view.is_update_needed, "what is in the snapshot is as new as the rest of it"
    view.set_topics({"u"})
    view.update(metadata(topic("u", partition(0), id_number=8)), clock.now)
    assert set(view.cluster.topics) == {"u"}, "gone with the next refresh"


def test_transient_topics_are_asked_for_until_cleared(view: Metadata, clock: FakeClock) -> None:
    view.update(metadata(topic("t", partition(0))), clock.now)
    view.add_transient_topics({"x"})
    assert view.is_update_needed
    assert view.scope() == MetadataScope(frozenset({"t", "x"}))
    view.update(
        metadata(topic("t", partition(0)), topic("x", partition(0), id_number=8)), clock.now
    )
    assert set(view.cluster.topics) == {"t", "x"}
    view.clear_transient_topics()
    assert view.topics == frozenset({"t"})
    view.set_topics({"t", "x"})
    assert not view.is_update_needed, "it was looked up a moment ago"


def test_an_answer_to_a_narrower_question_leaves_the_refresh_due(
    view: Metadata, clock: FakeClock
) -> None:
    scope = view.scope()
    view.set_topics({"t", "u"})
    view.update(metadata(topic("t", partition(0))), clock.now, scope=scope)
    assert view.is_update_needed
    assert view.topic_errors == {}, "a topic that was not asked for is not unknown"


def test_all_topics(view: Metadata, clock: FakeClock) -> None:
    """M-07: for patterns all topics are asked for, and followed as they come and go."""
    view.set_topics(None)
    assert view.scope() == MetadataScope(None)
    both = metadata(
        topic("a", partition(0), id_number=1),
        topic("__consumer_offsets", partition(0), id_number=2, is_internal=True),
    )
    view.update(both, clock.now)
    assert set(view.cluster.topics) == {"a", "__consumer_offsets"}
    assert view.cluster.topics["__consumer_offsets"].is_internal
    view.update(metadata(topic("b", partition(0), id_number=3)), clock.now)
    assert "b" in view.cluster.topics
    for _ in range(2):
        view.update(metadata(topic("b", partition(0), id_number=3)), clock.now)
    assert set(view.cluster.topics) == {"b"}
    assert view.topic_errors == {}
    assert not view.is_update_needed


# --- epochs and ids -------------------------------------------------------------------------------


def test_a_lower_epoch_is_not_believed(view: Metadata, clock: FakeClock) -> None:
    """M-02: a broker that is behind cannot take a partition back to its old leader."""
    view.update(metadata(topic("t", partition(0, 2, 6))), clock.now)
    view.update(metadata(topic("t", partition(0, 1, 5))), clock.now)
    assert view.cluster.leader_epoch_for(T0) == 6
    assert view.cluster.leader_for(T0) == Node(2, "b2", 9092)


def test_a_recreated_topic_starts_afresh(view: Metadata, clock: FakeClock) -> None:
    """M-02: a new topic id brings lower epochs and fewer partitions, and nothing old survives."""
    view.update(metadata(topic("t", partition(0, 2, 6), partition(1, 2, 6))), clock.now)
    view.update(metadata(topic("t", partition(0, 1, 0), id_number=8)), clock.now)
    assert view.cluster.topic_id("t") == topic_id(8)
    assert view.cluster.leader_epoch_for(T0) == 0
    assert view.cluster.partitions_for_topic("t") == {0}
    assert view.cluster.topic_names.get(topic_id(7)) is None


def test_a_broker_that_missed_the_recreation_is_ignored(view: Metadata, clock: FakeClock) -> None:
    """M-02, M-09: an id that was replaced never comes back."""
    view.update(metadata(topic("t", partition(0, 2, 6))), clock.now)
    view.update(metadata(topic("t", partition(0, 1, 0), id_number=8)), clock.now)
    view.update(metadata(topic("t", partition(0, 2, 6), partition(1, 2, 6))), clock.now)
    assert view.cluster.topic_id("t") == topic_id(8)
    assert view.cluster.partitions_for_topic("t") == {0}


def test_partitions_of_the_same_topic_never_vanish(view: Metadata, clock: FakeClock) -> None:
    """M-09: fewer partitions under the same id mean a broker that is behind."""
    view.update(metadata(topic("t", partition(0), partition(1))), clock.now)
    view.update(metadata(topic("t", partition(0))), clock.now)
    assert view.cluster.partitions_for_topic("t") == {0, 1}
    view.update(metadata(topic("t", partition(0), partition(1), partition(2))), clock.now)
    assert view.cluster.partitions_for_topic("t") == {0, 1, 2}, "growth is believed"


def test_epochs_of_old_versions_are_unknown(view: Metadata, clock: FakeClock) -> None:
    view.update(metadata(topic("t", partition(0, 1, 5))), clock.now, api_version=8)
    assert view.cluster.leader_epoch_for(T0) is None
    assert view.cluster.leader_for(T0) == Node(1, "b1", 9092)


def test_a_broker_without_topic_ids_does_not_erase_them(view: Metadata, clock: FakeClock) -> None:
    view.update(metadata(topic("t", partition(0))), clock.now)
    old = topic("t", partition(0))
    old.topic_id = ZERO_UUID
    view.update(metadata(old), clock.now, api_version=9)
    assert view.cluster.topic_id("t") == topic_id(7)


# --- gaps -----------------------------------------------------------------------------------------


def test_an_answer_without_brokers_changes_nothing(view: Metadata, clock: FakeClock) -> None:
    """M-04: an empty broker list is a failed refresh."""
    view.update(metadata(topic("t", partition(0))), clock.now)
    before, version = view.cluster, view.version
    assert not view.update(metadata(brokers={}), clock.now)
    assert view.cluster is before
    assert view.version == version
    assert view.is_update_needed
    assert view.time_to_next_update(clock.now) == 100
    assert view.last_error is not None
    assert view.last_error.retriable


def test_a_leaderless_partition_keeps_its_route(view: Metadata, clock: FakeClock) -> None:
    """M-04: while an election runs the old leader stays, and refreshes go on with backoff."""
    view.update(metadata(topic("t", partition(0, 1, 5), partition(1, 2, 5))), clock.now)
    electing = metadata(topic("t", partition(0, -1, 6, error=5), partition(1, 2, 5)))
    view.update(electing, clock.now)
    assert view.cluster.leader_for(T0) == Node(1, "b1", 9092)
    assert view.cluster.leader_epoch_for(T0) == 5
    assert view.is_update_needed
    view.update(metadata(topic("t", partition(0, 2, 7), partition(1, 2, 5))), clock.now)
    assert view.cluster.leader_for(T0) == Node(2, "b2", 9092)
    assert not view.is_update_needed


def test_of_all_topics_those_that_are_read_are_refreshed_for_a_leader(
    view: Metadata, clock: FakeClock
) -> None:
    """U-09: an offline partition of a topic that nobody reads is no reason to list all topics."""
    view.set_topics(None)
    view.read_topics = frozenset({"t"})
    offline = topic("u", partition(0, -1, 6, error=5), id_number=8)
    view.update(metadata(topic("t", partition(0)), offline), clock.now)
    assert view.time_to_next_update(clock.now) > 60_000
    view.read_topics = frozenset({"t", "u"})
    assert view.time_to_next_update(clock.now) <= 100
    view.update(metadata(topic("t", partition(0)), topic("u", partition(0, 1, 7), id_number=8)), 0)
    assert not view.is_update_needed


def test_a_partition_that_never_had_a_leader(view: Metadata, clock: FakeClock) -> None:
    view.update(metadata(topic("t", partition(0, -1, 0, error=5))), clock.now)
    assert view.cluster.partitions_for_topic("t") == {0}
    assert view.cluster.leader_for(T0) is None
    assert view.is_update_needed


@pytest.mark.parametrize("code", [3, 5])
def test_a_missing_topic_is_asked_for_again(view: Metadata, clock: FakeClock, code: int) -> None:
    """M-05: an unknown topic does not disturb others and is found once it appears."""
    view.set_topics({"t", "u"})
    found = topic("u", partition(0), id_number=8)
    view.update(metadata(topic("t", error=code), found), clock.now)
    assert view.topic_errors == {"t": code}
    assert view.cluster.leader_for(TopicPartition("u", 0)) is not None
    assert view.is_update_needed
    for _ in range(9):
        clock.advance(view.time_to_next_update(clock.now))
        view.update(metadata(topic("t", error=code), found), clock.now)
    assert view.time_to_next_update(clock.now) == 1_000, "never slower than retry_backoff_max_ms"
    view.update(metadata(topic("t", partition(0)), found), clock.now)
    assert view.topic_errors == {}
    assert not view.is_update_needed


@pytest.mark.parametrize(("code", "may_be_mended"), [(17, False), (29, True)])
def test_a_refused_topic_is_asked_for_again_only_if_that_may_help(
    view: Metadata, clock: FakeClock, code: int, may_be_mended: bool
) -> None:
    view.set_topics({"t", "u"})
    view.update(metadata(topic("t", error=code), topic("u", partition(0), id_number=8)), clock.now)
    assert view.topic_errors == {"t": code}
    assert view.is_update_needed is may_be_mended
    assert "u" in view.cluster.topics


def test_a_revoked_permission_keeps_the_route(view: Metadata, clock: FakeClock) -> None:
    view.update(metadata(topic("t", partition(0))), clock.now)
    view.update(metadata(topic("t", error=29)), clock.now)
    assert view.topic_errors == {"t": 29}
    assert view.cluster.leader_for(T0) is not None
    assert view.cluster.topics["t"].error_code == 29
    view.update(metadata(topic("t", partition(0))), clock.now)
    assert view.topic_errors == {}


def test_a_flickering_topic_is_kept(view: Metadata, clock: FakeClock) -> None:
    """M-09: one broker that does not know the topic makes nobody lose it."""
    view.update(metadata(topic("t", partition(0, 1, 5))), clock.now)
    for _ in range(10):
        view.update(metadata(topic("t", error=3)), clock.now)
        assert view.cluster.leader_epoch_for(T0) == 5
        assert view.topic_errors == {"t": 3}
        view.update(metadata(topic("t", partition(0, 1, 5))), clock.now)
        assert view.topic_errors == {}


def test_a_deleted_topic_goes(view: Metadata, clock: FakeClock) -> None:
    """M-09: three answers in a row without the topic are believed."""
    view.update(metadata(topic("t", partition(0))), clock.now)
    for _ in range(3):
        view.update(metadata(topic("t", error=3)), clock.now)
    assert "t" not in view.cluster.topics
    assert view.topic_errors == {"t": 3}
    view.update(metadata(topic("t", partition(0), id_number=9)), clock.now)
    assert view.cluster.topic_id("t") == topic_id(9)


# --- hints ----------------------------------------------------------------------------------------


def test_a_newer_leader_is_taken_from_a_hint(view: Metadata, clock: FakeClock) -> None:
    """M-03: KIP-951: the new leader and its endpoint are used at once."""
    view.update(metadata(topic("t", partition(0, 1, 5), partition(1, 1, 5))), clock.now)
    version = view.version
    changed = view.update_leaders({T0: (3, 6)}, [(3, "b3", 9093, None)])
    assert changed == {T0}
    assert view.cluster.leader_for(T0) == Node(3, "b3", 9093)
    assert view.cluster.leader_epoch_for(T0) == 6
    assert view.cluster.leader_for(T1) == Node(1, "b1", 9092)
    assert view.version == version + 1


@pytest.mark.parametrize("hint", [(2, 5), (2, 4), (2, -1), (3, 6)])
def test_stale_and_unusable_hints_are_ignored(
    view: Metadata, clock: FakeClock, hint: tuple[int, int]
) -> None:
    """M-03: not newer, no epoch, or a broker nobody knows."""
    view.update(metadata(topic("t", partition(0, 1, 5))), clock.now)
    before = view.cluster
    assert view.update_leaders({T0: hint}) == set()
    assert view.cluster is before


def test_a_coordinator_can_be_made_known(view: Metadata, clock: FakeClock) -> None:
    view.update(metadata(), clock.now)
    view.add_broker(Node(9, "b9", 9092))
    view.add_broker(Node(1, "other", 1))
    assert view.cluster.brokers[9] == Node(9, "b9", 9092)
    assert view.cluster.brokers[1] == Node(1, "b1", 9092), "metadata knows better"


# --- the rest -------------------------------------------------------------------------------------


def test_rebootstrap_forgets_brokers_and_keeps_topics(view: Metadata, clock: FakeClock) -> None:
    """M-10: the epochs seen so far outlive a rebootstrap."""
    view.update(metadata(topic("t", partition(0, 1, 5))), clock.now)
    view.request_rebootstrap("why")
    assert view.take_rebootstrap_request() == "why"
    assert view.take_rebootstrap_request() is None
    view.rebootstrap()
    assert view.cluster.brokers == {}
    assert view.cluster.leader_for(T0) is None
    assert view.cluster.leader_epoch_for(T0) == 5
    assert view.time_to_next_update(clock.now) == 0
    moved = {1: ("new", 1)}
    view.update(metadata(topic("t", partition(0, 1, 4)), brokers=moved), clock.now)
    assert view.cluster.leader_epoch_for(T0) == 5


def test_topics_are_created_only_when_asked_for_by_name(clock: FakeClock) -> None:
    """M-06: Kafka's default for allow_auto_create_topics creates nothing here."""
    assert not Metadata(config(), clock).allow_auto_topic_creation
    assert not Metadata(config(allow_auto_create_topics=False), clock).allow_auto_topic_creation
    assert Metadata(config(allow_auto_create_topics=True), clock).allow_auto_topic_creation


def test_ten_thousand_partitions(clock: FakeClock) -> None:
    """M-11: merging is linear and far below a poll's 100 ms."""
    view = Metadata(config(), clock)
    view.set_topics(None)

    def answer(topics: int) -> object:
        return metadata(
            *(
                topic(f"t{n}", *(partition(p, 1 + p % 2, 3) for p in range(10)), id_number=n + 1)
                for n in range(topics)
            )
        )

    def cost(topics: int) -> float:
        response = answer(topics)
        best = 1e9
        for _ in range(3):
            start = time.process_time()
            view.update(response, clock.now)  # type: ignore[arg-type]
            best = min(best, time.process_time() - start)
        return best

    small, large = cost(100), cost(1_000)
    assert len(view.cluster.topics) == 1_000
    assert large < 40 * max(small, 1e-3), "ten times the topics, about ten times the work"


def test_topics_that_come_and_go_leave_nothing_behind(view: Metadata, clock: FakeClock) -> None:
    """U-10: neither those that are deleted nor the ids of one that is created again and again."""
    view.set_topics(None)
    for number in range(50):
        view.update(metadata(topic("t", partition(0)), topic(f"x{number}", partition(0))), 0)
        for _ in range(3):
            view.update(metadata(topic("t", partition(0))), 0)
    assert not view._history
    for number in range(50):
        view.update(metadata(topic("t", partition(0), id_number=number)), 0)
    assert len(view._history["t"].retired_ids) <= 8
    view.update(metadata(topic("t", partition(0), id_number=48)), 0)
    assert view.cluster.topic_id("t") == topic_id(49), "of a broker that is behind"
