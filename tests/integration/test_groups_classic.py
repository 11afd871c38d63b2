"""Groups of the classic protocol on a real broker, each member a process of its own."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest
from confluent_kafka.admin import NewPartitions

from kfast import LocalKafka, TopicPartition
from tests.integration.conftest import TopicFactory
from tests.integration.group_members import Member, Members, feeding
from tests.integration.support import PATIENCE_SECONDS, admin, tps, unique, until

pytestmark = pytest.mark.integration

STRATEGIES: Final = ("range", "cooperative-sticky")
COOPERATIVE: Final[dict[str, Any]] = {"partition_assignment_strategy": ["cooperative-sticky"]}
EAGER: Final[dict[str, Any]] = {"partition_assignment_strategy": ["range"]}


def settled(*members: Member) -> tuple[int, ...]:
    """Return the generation of each member and how often it was told to give something up."""
    return tuple(
        number
        for member in members
        for number in (member.generation, member.count("revoked") + member.count("lost"))
    )


# --- members come and go --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_come_and_go(kafka: LocalKafka, new_topic: TopicFactory, strategy: str) -> None:
    """G-01, G-08, G-09, G-10, G-26, A-01, A-03: one to five members; two leave, one is killed."""
    topic = new_topic(10)
    partitions = tps(topic, 10)
    settings = {"partition_assignment_strategy": [strategy], "session_timeout_ms": 3_000}
    with (
        Members(kafka.bootstrap_servers, topic, **settings) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        group.start("m1").until_event("delivered")
        group.start("m2", commit="revoked")
        group.until_shared(partitions)
        for name, commit in (("m3", "batch"), ("m4", "auto"), ("m5", "revoked")):
            group.start(name, commit=commit)
        group.until_shared(partitions)
        for name in ("m1", "m5"):  # the leader, and one that commits in on_partitions_revoked
            assert group.members[name].close()["took"] < 2
            group.until_shared(partitions)  # to commit in the middle of a rebalance is an error
        group.members["m4"].kill()
        group.until_shared(partitions)
        ends = feed.stop()
        ledger = group.until_read(ends)
        group.members["m2"].close()
        group.until_shared(partitions)
        group.members["m3"].close()
        ledger = group.ledger()
        ledger.check(ends)
        of_the_killed = {stint.tp for stints in ledger.stints.values() for stint in stints[-2:]}
        assert sum(map(ledger.duplicates, partitions)) == sum(map(ledger.duplicates, of_the_killed))
        assert not any(member.count("lost") for member in group.members.values())


def test_from_range_to_cooperative_in_a_rolling_restart(
    kafka: LocalKafka, new_topic: TopicFactory
) -> None:
    """G-16: members with both assignors run EAGER, and COOPERATIVE once all dropped range."""
    topic = new_topic(4)
    partitions = tps(topic, 4)
    both: dict[str, Any] = {"partition_assignment_strategy": ["range", "cooperative-sticky"]}
    with (
        Members(kafka.bootstrap_servers, topic) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        group.start("old1", **both).until_event("delivered")
        group.start("old2", **both)
        group.until_shared(partitions)
        revoked = group.members["old1"].all("revoked")
        assert [len(event["partitions"]) for event in revoked] == [4]  # all, to keep two
        for name in ("1", "2"):
            group.members[f"old{name}"].close()
            group.start(f"new{name}", **COOPERATIVE)
            group.until_shared(partitions)
        new1 = group.members["new1"]
        kept = new1.owned
        before = new1.count("revoked")
        group.start("new3", **COOPERATIVE)
        group.until_shared(partitions)
        assert new1.owned <= kept
        assert all(len(event["partitions"]) == 1 for event in new1.all("revoked")[before:])
        ends = feed.stop()
        group.until_read(ends).check(ends)


def test_unsubscribing_and_coming_back(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-23, G-24: who unsubscribes is missed at once, and welcome later."""
    topic = new_topic(4)
    partitions = tps(topic, 4)
    with (
        Members(kafka.bootstrap_servers, topic, **EAGER) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        one, two = group.start("m1"), group.start("m2")
        group.until_shared(partitions)
        one.do("unsubscribe")
        assert one.owned == set()
        group.until_shared(partitions, [two], timeout_seconds=5)
        one.do("subscribe", [topic])
        group.until_shared(partitions)
        ends = feed.stop()
        ledger = group.until_read(ends)
        ledger.check(ends)
        assert not any(map(ledger.duplicates, partitions))


# --- reasons to rebalance -------------------------------------------------------------------------


def test_a_changed_subscription(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-10, G-14: one rejoin each; topics that stay are not touched, others are given up."""
    first, second = new_topic(4), new_topic(3)
    with (
        Members(kafka.bootstrap_servers, first, **COOPERATIVE) as group,
        feeding(kafka.bootstrap_servers, tps(first, 4) + tps(second, 3)) as feed,
    ):
        one, two = group.start("m1"), group.start("m2")
        group.until_shared(tps(first, 4))
        before = settled(one, two)
        one.do("subscribe", [first, second])
        one.until(lambda: one.owned >= set(tps(second, 3)), "the second topic")
        two.until(lambda: two.generation == one.generation, "two knows")
        # Three of the second topic and one or two of the first are the fair share.
        assert one.generation - before[0] in (1, 2)
        one.do("subscribe", [second])
        two.until(lambda: two.owned == set(tps(first, 4)), "all of the first topic")
        one.until(lambda: one.owned == set(tps(second, 3)), "only the second")
        ends = feed.stop()
        ledger = group.until_read(ends)
        ledger.check(ends)
        assert len(ledger.stints[TopicPartition(second, 0)]) == 1  # never given up


def test_a_pattern_finds_new_topics(kafka: LocalKafka) -> None:
    """G-14, G-15, P-18: topics made later are joined for, and read from their beginning."""
    prefix = unique("pattern")
    kafka.create_topic(f"{prefix}-a", 2)
    kafka.create_topic(f"other-{prefix}", 1)
    partitions = tps(f"{prefix}-a", 2)
    settings = {"metadata_max_age_ms": 500, **COOPERATIVE}
    with Members(kafka.bootstrap_servers, **settings) as group:
        group.start("m1", pattern=f"{prefix}-.*")
        group.start("m2", pattern=f"{prefix}-.*")
        group.until_shared(partitions)
        kafka.create_topic(f"{prefix}-b", 2)
        partitions += tps(f"{prefix}-b", 2)
        with feeding(kafka.bootstrap_servers, partitions) as feed:
            group.until_shared(partitions)
            ends = feed.stop()
        ledger = group.until_read(ends)
        ledger.check(ends)
        assert set(ledger.stints) == set(partitions)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_partitions_are_added(kafka: LocalKafka, new_topic: TopicFactory, strategy: str) -> None:
    """G-14, P-18: the leader sees more partitions and they are shared; nothing is missed."""
    topic = new_topic(2)
    settings = {"metadata_max_age_ms": 500, "partition_assignment_strategy": [strategy]}
    with Members(kafka.bootstrap_servers, topic, **settings) as group:
        one, two = group.start("m1"), group.start("m2")
        group.until_shared(tps(topic, 2))
        before = one.generation
        client = admin(kafka.bootstrap_servers)
        client.create_partitions([NewPartitions(topic, 6)])[topic].result(PATIENCE_SECONDS)
        with feeding(kafka.bootstrap_servers, tps(topic, 6)) as feed:
            group.until_shared(tps(topic, 6))
            ends = feed.stop()
        ledger = group.until_read(ends)
        ledger.check(ends)
        assert one.generation == two.generation
        # One rebalance; under COOPERATIVE nothing has to be taken from anybody.
        assert one.generation == before + 1


def test_enforcing_a_rebalance(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-14: exactly one generation more; sticky members keep what they have."""
    topic = new_topic(4)
    with (
        Members(kafka.bootstrap_servers, topic, **COOPERATIVE) as group,
        feeding(kafka.bootstrap_servers, tps(topic, 4)) as feed,
    ):
        one, two = group.start("m1"), group.start("m2")
        shares = group.until_shared(tps(topic, 4))
        one.until(lambda: one.generation == two.generation, "both settled")
        before = settled(one, two)
        two.do("enforce_rebalance")
        one.until(lambda: one.generation == before[0] + 1, "the next generation")
        two.until(lambda: two.generation == before[0] + 1, "the next generation")
        ends = feed.stop()
        group.until_read(ends).check(ends)
        assert settled(one, two) == (before[0] + 1, before[1], before[0] + 1, before[3])
        assert group.shares() == shares


# --- static members -------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["leader", "follower"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_static_member_restarts(
    kafka: LocalKafka, new_topic: TopicFactory, strategy: str, who: str
) -> None:
    """G-20, G-22: within the session timeout it gets its partitions back and nobody notices."""
    topic = new_topic(4)
    settings = {"partition_assignment_strategy": [strategy], "session_timeout_ms": 15_000}
    with (
        Members(kafka.bootstrap_servers, topic, **settings) as group,
        feeding(kafka.bootstrap_servers, tps(topic, 4)) as feed,
    ):
        one = group.start("m1", group_instance_id="one")
        one.until_event("delivered")
        two = group.start("m2", group_instance_id="two")
        group.until_shared(tps(topic, 4))
        assert one.is_leader
        assert not two.is_leader
        gone, stays = (one, two) if who == "leader" else (two, one)
        before, owned = settled(stays), gone.owned
        gone.close()
        if who == "leader":
            again = group.start("again", group_instance_id="one")
        else:
            again = group.start("again", group_instance_id="two")
        again.until_event("delivered")
        assert again.owned == owned
        assert again.is_leader is (who == "leader")
        ends = feed.stop()
        group.until_read(ends).check(ends)
        assert settled(stays) == before
        assert again.generation == before[0]


def test_a_static_member_is_fenced(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-21: whoever comes later under the same name has it; the earlier one is told and ends."""
    topic = new_topic(2)
    with (
        Members(kafka.bootstrap_servers, topic, **EAGER) as group,
        feeding(kafka.bootstrap_servers, tps(topic, 2)) as feed,
    ):
        early = group.start("early", group_instance_id="one")
        early.until_event("delivered")
        late = group.start("late", group_instance_id="one")
        error = early.until_event("error")
        assert error["type"] == "FencedInstanceIdError", error
        assert "one" in error["message"]
        early.wait()
        late.until_event("delivered")
        ends = feed.stop()
        group.until_read(ends).check(ends)
        assert late.count("error") == late.count("lost") == 0


def test_close_operations(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-22: a static member can leave at once, a dynamic one can stay until its session ends."""
    topic = new_topic(3)
    with Members(kafka.bootstrap_servers, topic, session_timeout_ms=4_000, **COOPERATIVE) as group:
        stays = group.start("m1")
        group.start("static", group_instance_id="static")
        group.start("dynamic")
        group.until_shared(tps(topic, 3))
        group.members["static"].close("leave_group")
        begun = time.monotonic()
        until(
            lambda: sum(len(share) for share in group.shares().values()) == 3,
            "two members share all",
        )
        assert time.monotonic() - begun < 3
        begun = time.monotonic()
        group.members["dynamic"].close("remain_in_group")
        stays.until(lambda: len(stays.owned) == 3, "the session of the one that remained ends")
        assert time.monotonic() - begun > 2


# --- slow members ---------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_member_that_does_not_poll(
    kafka: LocalKafka, new_topic: TopicFactory, strategy: str
) -> None:
    """G-06, G-12, C-07: past max_poll_interval_ms others take over; commits fail; it returns."""
    topic = new_topic(4)
    partitions = tps(topic, 4)
    settings = {"partition_assignment_strategy": [strategy], "max_poll_interval_ms": 1_500}
    with (
        Members(kafka.bootstrap_servers, topic, **settings) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        slow, other = group.start("slow", commit="batch"), group.start("other", commit="batch")
        group.until_shared(partitions)
        slow.until_event("committed")
        slow.tell("stall", 5)
        slow.tell("commit")
        other.until(lambda: other.owned == set(partitions), "everything taken over")
        assert slow.count("lost") == 0  # it is not in poll() and cannot know
        slow.until_event("done", 2)
        assert [e["type"] for e in slow.all("error") if e["call"] == "commit"] == [
            "CommitFailedError"
        ]
        slow.until_event("lost")
        group.until_shared(partitions)
        ends = feed.stop()
        group.until_read(ends).check(ends)


def test_a_process_that_is_held(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-02, G-05, G-12: held past its session a member finds itself expelled and joins anew."""
    topic = new_topic(4)
    partitions = tps(topic, 4)
    with (
        Members(kafka.bootstrap_servers, topic, session_timeout_ms=2_000, **EAGER) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        held, other = group.start("held"), group.start("other")
        group.until_shared(partitions)
        held.until_event("committed")
        held.pause()
        other.until(lambda: other.owned == set(partitions), "everything taken over")
        held.resume()
        held.until_event("lost")
        group.until_shared(partitions)
        ends = feed.stop()
        group.until_read(ends).check(ends)
