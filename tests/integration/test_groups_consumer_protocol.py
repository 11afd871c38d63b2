"""KIP-848 groups on real brokers, each member a process of its own that may stall or be killed.

What the ledger checks of each (see ``group_ledger``): offsets rise without gaps within an
assignment, nothing of a partition comes after its revocation, everything produced is delivered, and
nothing comes twice but behind the last commit of a member that did not end in good order.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from confluent_kafka.admin import NewPartitions

from kfast import KafkaConsumer, LocalKafka
from kfast.errors import UnsupportedAssignorError
from tests.integration.conftest import TopicFactory
from tests.integration.console_member import console_member
from tests.integration.group_ledger import Event
from tests.integration.group_members import Member, Members, feeding
from tests.integration.support import GROUP_COMMAND, PATIENCE_SECONDS, admin, tps, unique, until

pytestmark = pytest.mark.integration

CONSUMER: Final[dict[str, Any]] = {"group_protocol": "consumer"}


def told(*members: Member) -> list[tuple[int, int, int]]:
    """Return how often each member was told of a change, additions of nothing left out."""
    return [
        (
            sum(bool(event["partitions"]) for event in member.all("assigned")),
            member.count("revoked"),
            member.count("lost"),
        )
        for member in members
    ]


def errors_of(member: Member) -> list[Event]:
    """Return what calls raised, those of a consumer that is closed left out."""
    closed = min((e["t"] for e in member.all("closed")), default=float("inf"))
    return [e for e in member.all("error") if e["t"] < closed]


def no_errors(*members: Member) -> None:
    """Check that no call raised anywhere."""
    for member in members:
        assert not errors_of(member), member.tail(50)


# --- members come and go --------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go(kafka: LocalKafka, new_topic: TopicFactory, assignor: str) -> None:
    """K-01, K-04, K-06, K-08, G-26, A-03: one to four; one leaves, one is killed, one is held."""
    topic = new_topic(8)
    partitions = tps(topic, 8)
    with (
        Members(
            kafka.bootstrap_servers, topic, group_remote_assignor=assignor, **CONSUMER
        ) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        leaves = group.start("leaves")
        leaves.until_event("delivered")
        killed = group.start("killed", commit="revoked")
        group.until_shared(partitions)
        held, stays = group.start("held", commit="batch"), group.start("stays")
        shares = group.until_shared(partitions)
        if assignor == "range":
            for share in shares.values():
                numbers = sorted(tp.partition for tp in share)
                assert numbers == list(range(numbers[0], numbers[0] + 2)), shares
        assert leaves.close()["took"] < 2
        group.until_shared(partitions)
        clean = killed.owned | held.owned
        killed.kill()
        held.pause()
        stays.until(lambda: stays.owned == set(partitions), "everything taken over")
        held.resume()
        held.until_event("lost")
        group.until_shared(partitions)
        ends = feed.stop()
        group.until_read(ends)
        held.close()
        stays.close()
        ledger = group.ledger()
        ledger.check(ends)
        assert not any(ledger.duplicates(tp) for tp in set(partitions) - clean)
        assert [m.count("lost") for m in (leaves, killed, held, stays)] == [0, 0, 1, 0]
        assert "fenced" in " ".join(e["message"] for e in held.all("log"))
        no_errors(leaves, killed, stays)
        # It may have been held in the middle of a commit.
        assert {e["type"] for e in errors_of(held)} <= {"CommitFailedError"}


def test_a_member_that_does_not_poll(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-06, G-12, K-08, C-07: past max_poll_interval_ms others take over; it returns later."""
    topic = new_topic(4)
    partitions = tps(topic, 4)
    with (
        Members(kafka.bootstrap_servers, topic, max_poll_interval_ms=1_500, **CONSUMER) as group,
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
        error = slow.until_event("error")
        assert (error["type"], error["call"]) == ("CommitFailedError", "commit")
        slow.until_event("lost")
        group.until_shared(partitions)
        ends = feed.stop()
        group.until_read(ends).check(ends)
        assert other.count("lost") == 0


def test_partitions_are_added(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """K-04, K-05, M-08: they are read at once, although metadata is fresh for minutes yet."""
    topic = new_topic(2)
    with Members(kafka.bootstrap_servers, topic, **CONSUMER) as group:
        one, two = group.start("m1"), group.start("m2")
        group.until_shared(tps(topic, 2))
        before = [member.count("revoked") for member in (one, two)]
        client = admin(kafka.bootstrap_servers)
        client.create_partitions([NewPartitions(topic, 6)])[topic].result(PATIENCE_SECONDS)
        with feeding(kafka.bootstrap_servers, tps(topic, 6)) as feed:
            group.until_shared(tps(topic, 6))
            ends = feed.stop()
        group.until_read(ends).check(ends)
        assert [member.count("revoked") for member in (one, two)] == before


def test_a_python_pattern(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """K-10, M-07: matched by every member itself; a topic created later is found."""
    first = new_topic(2)
    with Members(kafka.bootstrap_servers, metadata_max_age_ms=500, **CONSUMER) as group:
        pattern = rf"{first}(-[a-z]+(?<!not))?$"  # RE2 has no look-behind
        for name in ("m1", "m2"):
            group.start(name, pattern=pattern)
        group.until_shared(tps(first, 2))
        kafka.create_topic(f"{first}-not", 1)
        kafka.create_topic(f"{first}-more", 2)
        partitions = [*tps(first, 2), *tps(f"{first}-more", 2)]
        group.until_shared(partitions)
        with feeding(kafka.bootstrap_servers, partitions) as feed:
            ends = feed.stop()
        group.until_read(ends).check(ends)
        no_errors(*group.members.values())


def test_an_assignor_the_brokers_do_not_have(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """K-09: raised by every poll until the end, naming the setting and quoting the broker."""
    with KafkaConsumer(
        new_topic(),
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=unique("assignor"),
        group_remote_assignor="sticky",
        **CONSUMER,
    ) as consumer:
        for _ in range(2):
            with pytest.raises(UnsupportedAssignorError, match='no assignor "sticky"') as caught:
                until(lambda: consumer.poll(200), "an error")
        assert "group_remote_assignor" in str(caught.value)
        assert "ServerAssignor sticky is not supported" in str(caught.value), "the broker's words"


# --- static members -------------------------------------------------------------------------------


def test_a_static_member_restarts(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-20, K-08, K-09: it gets its partitions back, nobody notices; killed, it has to wait."""
    topic = new_topic(4)
    with (
        Members(kafka.bootstrap_servers, topic, **CONSUMER) as group,
        feeding(kafka.bootstrap_servers, tps(topic, 4)) as feed,
    ):
        one = group.start("m1", group_instance_id="one")
        two = group.start("m2", group_instance_id="two")
        group.until_shared(tps(topic, 4))
        owned, before = one.owned, told(two)
        one.close()
        again = group.start("again", group_instance_id="one")
        again.until_event("delivered")
        assert again.owned == owned
        assert told(two) == before
        again.kill()
        early = group.start("early", group_instance_id="one")
        error = early.until_event("error")
        assert (error["type"], error["call"]) == ("UnreleasedInstanceIdError", "poll")
        early.close()
        two.until(lambda: two.owned == set(tps(topic, 4)), "its session has ended")
        late = group.start("late", group_instance_id="one")
        group.until_shared(tps(topic, 4))
        ends = feed.stop()
        group.until_read(ends).check(ends)
        assert late.count("error") == two.count("error") == 0


def test_a_static_member_whose_name_is_taken(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """G-21, K-09, K-06: refused while the owner lives; after its session the owner is fenced."""
    topic = new_topic(4)
    partitions = tps(topic, 4)
    with (
        Members(kafka.bootstrap_servers, topic, **CONSUMER) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        early = group.start("early", group_instance_id="one")
        stays = group.start("stays")
        group.until_shared(partitions)
        before = told(early, stays)
        rival = group.start("rival", group_instance_id="one")
        rival.until_event("error", 2)
        for error in rival.all("error"):
            assert (error["type"], error["call"]) == ("UnreleasedInstanceIdError", "poll")
            assert '"one"' in error["message"]
        assert rival.close()["took"] < 2
        read = early.delivered()
        early.until(lambda: early.delivered() > read, "the owner reads on")
        assert told(early, stays) == before

        early.pause()
        stays.until(lambda: stays.owned == set(partitions), "its session has ended")
        late = group.start("late", group_instance_id="one")
        group.until_shared(partitions, [late, stays])
        before = told(late, stays)
        early.resume()
        error = early.until_event("error")
        assert (error["type"], error["call"]) == ("FencedInstanceIdError", "poll")
        assert '"one"' in error["message"]
        early.wait()
        assert (early.count("lost"), early.count("error")) == (1, 1)
        ends = feed.stop()
        group.until_read(ends).check(ends)
        assert told(late, stays) == before
        no_errors(late, stays)


# --- with others ----------------------------------------------------------------------------------


def test_with_java_and_librdkafka(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """K-04, G-18: three clients share; Kafka's tool shows the group; the union is everything."""
    topic = new_topic(6)
    partitions = tps(topic, 6)
    servers = kafka.bootstrap_servers
    with (
        Members(servers, topic, **CONSUMER) as group,
        feeding(servers, partitions) as feed,
    ):
        ours = group.start("ours")
        settings = {"servers": servers, "group_id": group.group_id, "topic": topic, **CONSUMER}
        foreign = group.add(
            "confluent",
            "tests.integration.foreign_member",
            *("confluent", json.dumps({**settings, "name": "confluent"})),
        )
        group.until_shared(partitions)
        properties = {
            "group.id": group.group_id,
            "group.protocol": "consumer",
            "client.id": "java",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 300,
        }
        with console_member(servers, topic, properties) as java:
            until(
                lambda: (
                    [len(m.owned) for m in (ours, foreign)] == [2, 2]
                    and set(java.offsets()) == set(partitions) - ours.owned - foreign.owned
                ),
                "two partitions each",
            )
            names = ("--bootstrap-server", servers, "--group", group.group_id, "--describe")
            state = kafka.run_tool(GROUP_COMMAND, *names, "--state").split()
            assert {"uniform", "Stable", "3"} <= set(state), state
            told_by_tool = kafka.run_tool(GROUP_COMMAND, *names, "--members", "--verbose")
            mine = next(line for line in told_by_tool.splitlines() if " ours " in line)
            numbers = sorted(tp.partition for tp in ours.owned)
            assert f"{topic}:{','.join(map(str, numbers))}" in mine, told_by_tool
            java.leave()
            read_by_java = java.offsets()
        group.until_shared(partitions)
        foreign.close()
        ours.until(lambda: ours.owned == set(partitions), "everything")
        ends = feed.stop()

        def is_all_read() -> bool:
            done = group.ledger().processed
            return all(
                done[tp] | set(read_by_java.get(tp, ())) == set(range(end))
                for tp, end in ends.items()
            )

        ours.until(is_all_read, "everything is read by somebody")
        ours.close()
        ledger = group.ledger()
        for tp, end in ends.items():
            theirs = read_by_java.get(tp, [])
            assert theirs == sorted(set(theirs))
            assert len(theirs) + len(ledger.delivered[tp]) == end, f"{tp}: nothing twice"
        no_errors(*group.members.values())


def test_a_group_moves_to_the_protocol_and_back(kafka: LocalKafka, new_topic: TopicFactory) -> None:
    """K-12: member by member, while records come; nothing is lost and nothing comes twice."""
    topic = new_topic(6)
    partitions = tps(topic, 6)
    with (
        Members(kafka.bootstrap_servers, topic) as group,
        feeding(kafka.bootstrap_servers, partitions) as feed,
    ):
        for name in ("classic1", "classic2"):
            group.start(name)
        group.until_shared(partitions)
        for number in ("1", "2"):
            group.start(f"consumer{number}", **CONSUMER)
            group.until_shared(partitions)
            group.members[f"classic{number}"].close()
            group.until_shared(partitions)
        for number in ("1", "2"):
            group.start(f"back{number}")
            group.until_shared(partitions)
            group.members[f"consumer{number}"].close()
            group.until_shared(partitions)
        ends = feed.stop()
        ledger = group.until_read(ends)
        ledger.check(ends)
        assert not any(map(ledger.duplicates, partitions))
        assert not any(member.count("lost") for member in group.members.values())
        no_errors(*group.members.values())
