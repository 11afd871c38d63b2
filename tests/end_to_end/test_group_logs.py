"""What a member of a group logs: routine at info, losses and resets as warnings, errors once.

Whoever operates a consumer sees its warnings only. These tests hold the words an operator would
look for, which name group, member, partition, offset and node.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pytest

from kfast import KafkaConsumer, TopicPartition
from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from tests.end_to_end.groups import (
    GROUP,
    PROTOCOLS,
    Notes,
    cluster_of,
    committed,
    join,
    member,
    poll_until,
    read_all,
)
from tests.end_to_end.stage import Stage

MakeStage = Callable[..., Stage]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

both = pytest.mark.parametrize("protocol", PROTOCOLS)

pytestmark = pytest.mark.usefixtures("nothing_is_printed")


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """Return what was logged at a level and above, all of it under "kfast"."""
    assert {record.name.partition(".")[0] for record in caplog.records} <= {"kfast"}
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


def at_work(stage: Stage, protocol: str, cluster: FakeCluster) -> KafkaConsumer:
    """Return a member that has read everything and committed it."""
    consumer = member(stage, protocol, enable_auto_commit=False)
    read_all(consumer, 20)
    consumer.commit()
    assert committed(cluster) == {0: 10, 1: 10}
    return consumer


@both
def test_a_rebalance_is_logged_at_info(
    make_stage: MakeStage, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """O-01, O-02: joining, sharing, taking over and leaving, with names and numbers."""
    cluster = cluster_of()
    stage = make_stage(cluster)
    first = at_work(stage, protocol, cluster)
    caplog.set_level(logging.INFO, "kfast")
    caplog.clear()
    second = member(stage, protocol, enable_auto_commit=False)
    join(first, second)
    metadata = second.group_metadata()
    second.close()
    join(first)
    text = "\n".join(said(caplog, logging.INFO))
    assert said(caplog, logging.WARNING) == []
    joined = {
        "classic": f"Joined group {GROUP}: generation {metadata.generation_id}, "
        f"member {metadata.member_id}, assignor range",
        "consumer": f"Joining group {GROUP} as member {metadata.member_id}",
    }
    assert joined[protocol] in text
    assert "Assigned 1 partitions (1 added)" in text
    assert re.search(r"Reading t-[01] from offset 10 \(committed\)", text)
    left = {
        "classic": f"Member {metadata.member_id} leaves group {GROUP}: ",
        "consumer": f"Member {metadata.member_id} has left group {GROUP}",
    }
    assert left[protocol] in text
    assert "Assigned 2 partitions" in text


@both
def test_a_lost_membership_is_a_warning_with_its_partitions(
    make_stage: MakeStage, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """O-02, G-12: who was thrown out, of which group, and what was lost; coming back is routine."""
    cluster = cluster_of()
    notes = Notes()
    consumer = member(make_stage(cluster), protocol, listener=notes, enable_auto_commit=False)
    read_all(consumer, 20)
    consumer.commit()
    metadata = consumer.group_metadata()
    caplog.clear()
    cluster.groups.expire_member(GROUP, metadata.member_id)
    poll_until(
        lambda: notes.calls[-1:] == [("assigned", [0, 1])] and len(notes.calls) == 3, consumer
    )
    group_warning, lost = said(caplog, logging.WARNING)
    expected = {
        "classic": f"No longer a member of group {GROUP} (was {metadata.member_id} in generation "
        f"{metadata.generation_id}), 2 partitions lost: ",
        "consumer": f"Group {GROUP} has fenced member {metadata.member_id}, "
        f"epoch {metadata.generation_id} (",
    }
    assert group_warning.startswith(expected[protocol])
    assert "UNKNOWN_MEMBER_ID" in group_warning
    assert lost == "Lost 2 partitions: t-0, t-1"


@both
def test_starting_without_or_behind_a_committed_offset_is_a_warning(
    make_stage: MakeStage, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """O-02, P-01, P-10: the policy decides where to start, and the log says that it did."""
    cluster = cluster_of()
    stage = make_stage(cluster)
    writer = stage.consumer(group_id=GROUP, enable_auto_commit=False)
    writer.assign([T0])
    writer.commit({T0: 2})
    writer.close()
    with cluster.changing():
        cluster.log("t", 0).delete_before(5)
    consumer = member(stage, protocol, enable_auto_commit=False)
    caplog.clear()
    assert read_all(consumer, 15) == {0: list(range(5, 10)), 1: list(range(10))}
    assert sorted(said(caplog, logging.WARNING)) == [
        f"Group {GROUP} has no committed offset of t-1 (never committed, or expired):"
        " reset to earliest",
        "Offset 2 of t-0 is gone: reset to offset 5 (earliest), 3 records skipped",
    ]


@both
def test_a_coordinator_that_is_away_for_long_is_not_logged_at_every_attempt(
    make_stage: MakeStage, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """O-01, G-25: reading goes on, the membership stays, and the log stays short."""
    cluster = cluster_of()
    stage = make_stage(cluster)
    consumer = at_work(stage, protocol, cluster)
    before = consumer.group_metadata()
    api = {"classic": ApiKey.HEARTBEAT, "consumer": ApiKey.CONSUMER_GROUP_HEARTBEAT}[protocol]
    caplog.set_level(logging.INFO, "kfast")
    caplog.clear()
    cluster.groups.start_loading(GROUP)
    asked = len(cluster.requests.select(api))
    poll_until(lambda: len(cluster.requests.select(api)) >= asked + 8, consumer)
    cluster.append("t", 0, [b"x"] * 3)
    assert read_all(consumer, 3) == {0: [10, 11, 12]}
    assert said(caplog, logging.WARNING) == []
    assert len(said(caplog, logging.INFO)) <= 2
    cluster.groups.finish_loading(GROUP)
    asked = len(cluster.requests.select(api))
    poll_until(lambda: len(cluster.requests.select(api)) >= asked + 3, consumer)
    assert consumer.group_metadata() == before
    assert said(caplog, logging.WARNING) == []


@both
def test_a_coordinator_that_moves_is_logged_once(
    make_stage: MakeStage, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """O-02, G-25: with the node that lost the group; the move is routine."""
    cluster = FakeCluster(2)
    cluster.features["group.version"] = 1
    cluster.groups.settings.group_consumer_heartbeat_interval_ms = 50
    cluster.create_topic("t", 2)
    for partition in range(2):
        cluster.append("t", partition, [b"x"] * 10)
    consumer = at_work(make_stage(cluster), protocol, cluster)
    before = consumer.group_metadata()
    api = {"classic": ApiKey.HEARTBEAT, "consumer": ApiKey.CONSUMER_GROUP_HEARTBEAT}[protocol]
    old = cluster.groups.coordinator(GROUP)
    new = next(node for node in cluster.nodes if node != old)
    caplog.set_level(logging.INFO, "kfast.consumer")
    caplog.clear()
    cluster.groups.move_coordinator(GROUP, new)
    poll_until(lambda: len(cluster.requests.select(api, node=new)) >= 3, consumer)
    assert consumer.group_metadata() == before
    assert said(caplog, logging.WARNING) == []
    logged = [line for line in said(caplog, logging.INFO) if "Coordinator" in line]
    assert len(logged) == 1
    assert logged[0].startswith(f"Coordinator {old} of group {GROUP} is lost: ")
