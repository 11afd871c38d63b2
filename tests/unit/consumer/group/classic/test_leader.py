"""The member that leads: reading the others, assigning, watching the topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import cast

import pytest

from kfast.client.cluster import Cluster, Node
from kfast.consumer.group.assignors.assignor import (
    ConsumerPartitionAssignor,
    GroupMember,
    RebalanceProtocol,
)
from kfast.consumer.group.classic.leader import read_member
from kfast.errors import ConfigurationError, InconsistentGroupProtocolError, KafkaError
from kfast.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponseMember
from kfast.protocol.messages.sync_group import SyncGroupRequest
from kfast.types import TopicPartition
from tests.unit.consumer.clusters import cluster
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.classic.harness import (
    ME,
    ClassicHarness,
    assignments_of,
    metadata_of,
)

U0 = TopicPartition("u", 0)
FOUR = {T0: (1, 5), T1: (1, 5), T2: (3, 5), U0: (1, 5)}


def elected(
    members: Mapping[str, bytes] | None = None,
    assignors: list[ConsumerPartitionAssignor] | None = None,
    leaders: Mapping[TopicPartition, tuple[int, int]] = FOUR,
    **configs: object,
) -> ClassicHarness:
    """Return a member that has just been made the leader of these."""
    member = ClassicHarness(leaders=leaders, assignors=assignors, **configs)  # type: ignore[arg-type]
    member.find()
    group = {ME: metadata_of("t"), "other": metadata_of("t")} if members is None else members
    member.reply_join(1, leader=ME, members=group)
    return member


def handed_in(member: ClassicHarness) -> dict[str, set[TopicPartition]]:
    (request,) = member.waiting(SyncGroupRequest)
    return assignments_of(request)


class Custom(ConsumerPartitionAssignor):
    """A user's own assignor: does what the test says."""

    name = "custom"
    supported_protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    def __init__(self, result: object) -> None:
        self.result = result
        self.seen: Sequence[GroupMember] = ()
        self.assigned: list[object] = []

    def assign(
        self, cluster: Cluster, members: Sequence[GroupMember]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        self.seen = members
        if isinstance(self.result, Exception):
            raise self.result
        return cast("Mapping[str, Sequence[TopicPartition]]", self.result)

    def on_assignment(
        self, partitions: Sequence[TopicPartition], generation_id: int, user_data: bytes | None
    ) -> None:
        self.assigned.append((set(partitions), generation_id, user_data))


class EagerOnly(Custom):
    name = "eager-only"
    supported_protocols = frozenset({RebalanceProtocol.EAGER})


# --- assigning ------------------------------------------------------------------------------------


def test_the_leader_assigns_with_the_assignor_the_group_chose() -> None:
    """G-01: everything once, to all members."""
    member = elected()
    assert handed_in(member) == {ME: {T0, T1}, "other": {T2}}
    member.reply_sync([T0, T1])
    member.app_polls()
    assert member.owned == {T0, T1}


def test_the_leader_gets_metadata_of_topics_only_others_want() -> None:
    """G-01: one refresh, then the assignment."""
    member = elected(
        {ME: metadata_of("t"), "other": metadata_of("t", "u")}, leaders={T0: (1, 5), T1: (1, 5)}
    )
    assert not member.sends(SyncGroupRequest)
    assert member.metadata.topics == frozenset("tu")
    assert member.metadata.is_update_needed
    member.refresh_metadata({T0: (1, 5), T1: (1, 5), U0: (1, 5)})
    assert handed_in(member) == {ME: {T0}, "other": {T1, U0}}


def test_missing_topics_do_not_delay_the_group_for_long() -> None:
    member = elected({ME: metadata_of("t", "v")})
    member.advance(4_999)
    assert not member.sends(SyncGroupRequest)
    assert member.next_poll_ms == 1
    member.advance(1)
    assert handed_in(member) == {ME: {T0, T1, T2}}


def test_topics_that_do_not_exist_are_not_waited_for() -> None:
    member = elected({ME: metadata_of("t", "v")})
    member.metadata.topic_errors = MappingProxyType({"v": 3})
    assert handed_in(member) == {ME: {T0, T1, T2}}


def test_a_follower_asks_for_its_own_topics_only() -> None:
    member = elected({ME: metadata_of("t"), "other": metadata_of("u")})
    assert member.subscriptions.metadata_topics() == {"t", "u"}
    member.reply_sync([T0])
    member.app_polls()
    member.beat(27)
    member.app_polls()
    assert member.sends(JoinGroupRequest)
    assert member.subscriptions.metadata_topics() == {"t"}


def test_the_default_runs_eager_and_can_switch() -> None:
    """G-16: [range, cooperative-sticky] revokes all, also when the group takes the second."""
    member = elected()
    member.reply_sync([T0, T1])
    member.app_polls()
    member.beat(27)
    member.app_polls()
    assert member.calls[-1] == ("revoked", {T0, T1})
    member.reply_join(2, protocol="cooperative-sticky")
    member.reply_sync([T0])
    member.app_polls()
    assert member.owned == {T0}


def test_assignors_without_a_common_protocol_are_refused() -> None:
    """G-16: at construction."""
    with pytest.raises(ConfigurationError):
        ClassicHarness(assignors=[EagerOnly({}), Custom({})])


# --- members that are not what they should be -----------------------------------------------------


def test_members_that_claim_nonsense() -> None:
    """G-19: duplicates and negative partitions are nothing, the leader goes on."""
    claims = metadata_of("t", "t", owned=[T0, T0, TopicPartition("t", -1)], generation=3)
    custom = Custom({ME: [T0], "other": [T1]})
    elected({ME: metadata_of("t"), "other": claims}, [custom])
    by_id = {one.member_id: one for one in custom.seen}
    assert by_id["other"].topics == ("t",)
    assert by_id["other"].owned_partitions == (T0,)
    assert by_id["other"].generation_id == 3


def test_a_member_whose_claims_cannot_be_read_owns_nothing() -> None:
    """G-19."""
    data = metadata_of("t", owned=[T0, T1])
    custom = Custom({})
    member = elected({ME: metadata_of("t"), "other": data[:-9]}, [custom])
    by_id = {one.member_id: one for one in custom.seen}
    assert by_id["other"] == GroupMember("other", ("t",))
    assert member.error() is None


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00", b"\x00\x03\x7f\xff\xff\xff"])
def test_a_member_that_cannot_be_read_gets_nothing(data: bytes) -> None:
    """G-19: reported once, as inconsistent; all other members go on."""
    group = {ME: metadata_of("t"), "other": data}
    member = elected(group)
    assert handed_in(member) == {ME: {T0, T1, T2}, "other": set()}
    error = member.error()
    assert isinstance(error, InconsistentGroupProtocolError)
    assert "other" in error.message
    member.reply_sync([T0, T1, T2])
    member.app_polls()
    member.beat(27)
    member.app_polls()
    member.reply_join(2, leader=ME, members=group)
    assert member.error() is None


def test_a_member_listed_twice() -> None:
    """G-19: counts once."""
    member = ClassicHarness(leaders=FOUR)
    member.find()
    request = member.take(JoinGroupRequest)
    members = [
        JoinGroupResponseMember(ME, None, metadata_of("t")),
        JoinGroupResponseMember("other", None, metadata_of("t")),
        JoinGroupResponseMember("other", None, metadata_of("u")),
    ]
    leading = member.member._leader
    assert leading.elected(members, member.now) == []
    assert [one.member_id for one in leading._members] == [ME, "other"]
    assert leading._members[1].topics == ("t",)
    assert request.node_id == 2


def test_double_claims_are_the_assignors_to_settle() -> None:
    """G-19, KAFKA-12984: of double claims the higher generation wins."""
    group = {
        ME: metadata_of("t", owned=[T0, T1], generation=4),
        "other": metadata_of("t", owned=[T1, T2], generation=5),
    }
    member = elected(group, partition_assignment_strategy="cooperative-sticky")
    shares = handed_in(member)
    assert T1 in shares["other"]
    assert T0 in shares[ME]


def test_reading_a_member_keeps_its_name_and_rack() -> None:
    entry = JoinGroupResponseMember("m", "static", metadata_of("t"))
    read = read_member(entry)
    assert read is not None
    assert (read.member_id, read.group_instance_id, read.rack_id) == ("m", "static", None)


# --- a user's own assignor ------------------------------------------------------------------------


def test_an_assignor_learns_of_its_assignment() -> None:
    custom = Custom({ME: [T0], "other": [T1]})
    member = elected(assignors=[custom])
    assert handed_in(member) == {ME: {T0}, "other": {T1}}
    member.reply_sync([T0])
    assert custom.assigned == [({T0}, 1, None)]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({ME: [T0], "other": [T0]}, "both"),
        ({ME: [U0]}, "not subscribed"),
        (ZeroDivisionError("oops"), "ZeroDivisionError: oops"),
    ],
)
def test_an_assignor_that_fails_is_reported_and_retried(result: object, words: str) -> None:
    member = elected(assignors=[Custom(result)])
    error = member.error()
    assert error is not None
    assert "custom" in error.message
    assert words in str(error)
    assert not member.sends(SyncGroupRequest)
    member.advance(1_000)
    assert member.joining().member_id == ME


def test_a_hand_over_under_the_cooperative_protocol_is_refused() -> None:
    """KIP-429: what another member still owns is not given away in this round."""
    group = {ME: metadata_of("t"), "other": metadata_of("t", owned=[T0], generation=3)}
    member = elected(group, [Custom({ME: [T0], "other": []})])
    error = member.error()
    assert error is not None
    assert "t-0" in str(error)
    allowed = elected(group, [Custom({ME: [T1], "other": []})])
    assert handed_in(allowed) == {ME: {T1}, "other": set()}


def test_an_assignor_that_fails_in_on_assignment() -> None:
    class Failing(Custom):
        def on_assignment(
            self, partitions: Sequence[TopicPartition], generation_id: int, user_data: bytes | None
        ) -> None:
            raise ValueError("no")

    member = elected(assignors=[Failing({ME: [T0]})])
    member.reply_sync([T0])
    error = member.error()
    assert isinstance(error, KafkaError)
    assert "on_assignment" in str(error)
    member.advance(1_000)
    assert member.sends(JoinGroupRequest)


# --- watching -------------------------------------------------------------------------------------


def leading(**configs: object) -> ClassicHarness:
    member = elected({ME: metadata_of("t", "u")}, **configs)  # type: ignore[arg-type]
    member.reply_sync([T0, T1, T2])
    member.app_polls()
    member.take_calls()
    return member


def test_new_partitions_are_one_rejoin() -> None:
    """G-14, M-08: also of topics that only others subscribe to; exactly one."""
    for added in (TopicPartition("t", 3), TopicPartition("u", 1)):
        member = leading()
        member.refresh_metadata({**FOUR, added: (1, 5)})
        member.app_polls()
        assert added.topic in (member.joining().reason or "")
        member.reply_join(2, leader=ME, members={ME: metadata_of("t", "u")})
        member.reply_sync([T0])
        member.app_polls()
        member.refresh_metadata({**FOUR, added: (1, 5)})
        assert not member.sends(JoinGroupRequest)


def test_a_deleted_topic_is_a_rejoin() -> None:
    """G-14."""
    member = leading()
    member.refresh_metadata({T0: (1, 5), T1: (1, 5), T2: (3, 5)})
    member.app_polls()
    assert "[u]" in (member.joining().reason or "")


def test_moved_leaders_are_no_rejoin() -> None:
    """G-14: counts matter, leaders do not."""
    member = leading()
    member.refresh_metadata(dict.fromkeys(FOUR, (3, 9)))
    member.app_polls()
    assert not member.sends(JoinGroupRequest)


def test_other_topics_are_no_rejoin() -> None:
    """G-14."""
    member = leading()
    member.refresh_metadata({**FOUR, TopicPartition("w", 0): (1, 5)})
    member.app_polls()
    assert not member.sends(JoinGroupRequest)


def test_followers_do_not_watch() -> None:
    """G-14: the leader only."""
    member = ClassicHarness()
    member.join()
    member.refresh_metadata({**FOUR, TopicPartition("t", 3): (1, 5)})
    member.app_polls()
    assert not member.sends(JoinGroupRequest)


def with_racks(racks: Sequence[str | None], nodes: Sequence[int] = (1, 2, 3)) -> Cluster:
    view = cluster(FOUR)
    return replace(
        view,
        brokers=MappingProxyType(
            {n: Node(n, f"b{n}", 9092, racks[n - 1]) for n in nodes},
        ),
    )


@pytest.mark.parametrize(("client_rack", "rejoins"), [("a", True), ("", False)])
def test_changed_racks_matter_to_clients_with_one(client_rack: str, rejoins: bool) -> None:
    """G-14, KIP-881."""
    member = ClassicHarness(leaders=FOUR, client_rack=client_rack)
    member.metadata.cluster = with_racks("aab")
    member.find()
    member.reply_join(1, leader=ME, members={ME: metadata_of("t")})
    member.reply_sync([T0])
    member.app_polls()
    member.metadata.cluster = with_racks("aac")
    member.app_polls()
    assert member.sends(JoinGroupRequest) is rejoins


def test_a_broker_that_is_gone_has_not_changed_its_rack() -> None:
    """G-14: a restart of a broker is no reason to rebalance."""
    member = ClassicHarness(leaders=FOUR, client_rack="a")
    member.metadata.cluster = with_racks("abc")
    member.find()
    member.reply_join(1, leader=ME, members={ME: metadata_of("t")})
    member.reply_sync([T0])
    member.app_polls()
    member.metadata.cluster = with_racks("abc", nodes=[1, 2])
    member.app_polls()
    member.metadata.cluster = with_racks("abc")
    member.app_polls()
    assert not member.sends(JoinGroupRequest)


def test_a_leader_that_skips_the_assignment_detects_changes() -> None:
    """G-20, KIP-814: it hands in nothing, and topics it learns of are no change."""
    member = ClassicHarness(leaders={T0: (1, 5)}, group_instance_id="i")
    member.find()
    member.reply_join(
        5, leader=ME, members={ME: metadata_of("t"), "x": metadata_of("u")}, skip_assignment=True
    )
    assert handed_in(member) == {}
    member.reply_sync([T0])
    member.app_polls()
    member.refresh_metadata({T0: (1, 5), U0: (1, 5)})
    assert not member.sends(JoinGroupRequest)
    member.refresh_metadata({T0: (1, 5), T1: (1, 5), U0: (1, 5)})
    member.app_polls()
    assert member.sends(JoinGroupRequest)
