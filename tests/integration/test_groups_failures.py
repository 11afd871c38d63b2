"""Groups on real brokers when members and coordinators die: nothing is lost, little comes twice."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any, Final

import pytest

from kfast import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.group_members import Member, Members, feeding
from tests.integration.support import admin, leader_of, tps, until
from tests.soaking import soaking

pytestmark = pytest.mark.integration

COOPERATIVE: Final[dict[str, Any]] = {"partition_assignment_strategy": ["cooperative-sticky"]}
CHURN_SECONDS: Final = soaking(7, 180)


def coordinator_of(servers: str, group_id: str) -> int:
    """Return the node that coordinates a group."""
    client = admin(servers)  # its answers go with it
    return int(client.describe_consumer_groups([group_id])[group_id].result(20).coordinator.id)


@pytest.mark.parametrize("commit", ["auto", "batch"])
def test_a_member_is_killed_while_it_works(
    kafka: LocalKafka, new_topic: TopicFactory, commit: str
) -> None:
    """A-02, G-26: the batch in work was not committed; whoever has its partitions next gets it."""
    topic = new_topic(4)
    partitions = tps(topic, 4)
    settings = {"session_timeout_ms": 2_000, "auto_commit_interval_ms": 0, **COOPERATIVE}
    with (
        Members(kafka.bootstrap_servers, topic, **settings) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        one = group.start("m1", commit=commit, process_ms=400)
        other = group.start("m2", commit=commit)
        group.until_shared(partitions)
        one.until_event("committed", 2)
        done = one.count("delivered")
        one.until(lambda: one.count("delivered") > done, "it works on the next batch")
        one.kill()
        assert one.count("delivered") == one.count("processed") + 1
        in_work = one.all("delivered")[-1]["ranges"]
        other.until(lambda: other.owned == set(partitions), "everything taken over")
        ends = feed.stop()
        ledger = group.until_read(ends)
        ledger.check(ends)
        for name, partition, first, last in in_work:
            again = [
                r
                for e in other.all("delivered")
                for r in e["ranges"]
                if r[:2] == [name, partition] and r[2] <= first
            ]
            assert again, (name, partition, first, last)


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_churn(kafka: LocalKafka, new_topic: TopicFactory, strategy: str) -> None:
    """G-26, G-11, A-03: members start, leave, stall, are held and killed all the time."""
    dice = random.Random(f"churn {strategy}")
    topic = new_topic(8)
    partitions = tps(topic, 8)
    settings = {
        "partition_assignment_strategy": [strategy],
        "session_timeout_ms": 2_000,
        "max_poll_interval_ms": 2_500,
    }
    with (
        Members(kafka.bootstrap_servers, topic, **settings) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        for number in range(3):
            group.start(f"m{number}")
        group.until_shared(partitions)
        until_time = time.monotonic() + CHURN_SECONDS
        while time.monotonic() < until_time:
            members = group.running
            what = dice.choice(["start", "close", "kill", "stall", "hold", "enforce"])
            if len(members) < 2 or (what == "start" and len(members) < 5):
                number += 1
                group.start(f"m{number}", commit=dice.choice(["auto", "batch", "revoked"]))
            elif what in ("close", "kill") and len(members) > 2:
                member = dice.choice(members)
                member.close() if what == "close" else member.kill()
            elif what == "stall":
                dice.choice(members).tell("stall", 3)
            elif what == "hold":
                member = dice.choice(members)
                member.pause()
                time.sleep(2.5)
                member.resume()
            elif what == "enforce":
                dice.choice(members).tell("enforce_rebalance")
            time.sleep(dice.uniform(0, 0.7))
        group.until_shared(partitions)
        ends = feed.stop()
        group.until_read(ends).check(ends)


# --- coordinators ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_the_coordinator_goes(
    healed_kafka3: LocalKafka, new_topic3: TopicFactory, how: str
) -> None:
    """G-04, G-05, G-25: reading goes on, another node takes over, and there is no rebalance."""
    topic = new_topic3(6)
    partitions = tps(topic, 6)
    servers = healed_kafka3.bootstrap_servers
    settings = {"session_timeout_ms": 25_000, "request_timeout_ms": 4_000, **COOPERATIVE}
    with (
        Members(servers, topic, **settings) as group,
        feeding(servers, partitions, per_second=200) as feed,
    ):
        one, two = group.start("m1"), group.start("m2")
        group.until_shared(partitions)
        one.until(lambda: one.generation == two.generation, "both settled")
        for member in (one, two):
            member.until_event("committed")
        before = (one.generation, one.count("revoked"), two.count("revoked"))
        node = coordinator_of(servers, group.group_id)
        others = {tp for tp in partitions if leader_of(servers, tp) != node}
        read = {m.name: sum(m.delivered(tp) for tp in others) for m in (one, two)}
        begun = time.monotonic()

        def reads_on(member: Member) -> bool:
            return sum(map(member.delivered, others)) > read[member.name] + 20

        def commits_on(member: Member) -> bool:
            return bool(member.all("committed")[-1]["t"] > begun + 5.0)

        if how == "killed":
            healed_kafka3.kill_node(node)
        else:
            healed_kafka3.stop_node(node)
        for member in (one, two):
            member.until(partial(reads_on, member), "records of the other leaders")
        for member in (one, two):
            member.until(partial(commits_on, member), "commits go on", 40)
        ends = feed.stop()
        group.until_read(ends, 60).check(ends)
        assert (one.generation, one.count("revoked"), two.count("revoked")) == before
        assert one.count("lost") == two.count("lost") == 0
        assert until(lambda: coordinator_of(servers, group.group_id), "a coordinator") != node
