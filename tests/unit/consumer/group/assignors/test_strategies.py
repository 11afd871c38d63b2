"""partition_assignment_strategy, and the check of what a user's assignor returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import kfast
from kfast.client.cluster import Cluster
from kfast.consumer.group.assignors import (
    ASSIGNORS,
    check_assignment,
    is_built_in,
    resolve_assignors,
    select_rebalance_protocol,
)
from kfast.consumer.group.assignors.sticky_claims import encode_generation
from kfast.errors import ConfigurationError, IllegalStateError
from kfast.types import TopicPartition
from tests.unit.configs import config

EAGER, COOPERATIVE = kfast.RebalanceProtocol.EAGER, kfast.RebalanceProtocol.COOPERATIVE


class FirstTakesAll(kfast.ConsumerPartitionAssignor):
    """What the documentation shows."""

    name = "first-takes-all"

    def assign(
        self, cluster: Cluster, members: Sequence[kfast.GroupMember]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        shares: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for topic in {topic for member in members for topic in member.topics}:
            first = min(m.member_id for m in members if topic in m.topics)
            shares[first] += cluster.topic_partitions(topic)
        return shares


class OnlyCooperative(FirstTakesAll):
    name = "only-cooperative"
    supported_protocols = frozenset({COOPERATIVE})


class Unrelated:
    """An assignor that derives from nothing."""

    name = "unrelated"
    supported_protocols = frozenset({COOPERATIVE, EAGER})

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return encode_generation(len(topics))

    def assign(
        self, cluster: Cluster, members: Sequence[kfast.GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        return {}

    def on_assignment(
        self, partitions: Sequence[TopicPartition], generation_id: int, user_data: bytes | None
    ) -> None:
        pass


def refusal(*values: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolve_assignors(values)
    return str(caught.value)


# --- resolving ------------------------------------------------------------------------------------


def test_names_classes_and_instances() -> None:
    instance = FirstTakesAll()
    resolved = resolve_assignors(["cooperative-sticky", instance, Unrelated, kfast.RangeAssignor])
    assert [type(item) for item in resolved] == [
        kfast.CooperativeStickyAssignor,
        FirstTakesAll,
        Unrelated,
        kfast.RangeAssignor,
    ]
    assert resolved[1] is instance
    assert [is_built_in(item) for item in resolved] == [True, False, False, True]
    assert instance.supported_protocols == {EAGER}
    assert instance.subscription_user_data(frozenset()) is None
    instance.on_assignment((), 1, None)


def test_every_consumer_gets_instances_of_its_own() -> None:
    first, second = resolve_assignors(ASSIGNORS), resolve_assignors(ASSIGNORS)
    assert [item.name for item in first] == list(ASSIGNORS)
    assert not {map(id, first)} & {map(id, second)}


def test_the_setting_reaches_the_resolver_unchanged() -> None:
    """Names are checked where settings are read, objects here; lists and single values work."""
    for given, names in (
        (None, ["range", "cooperative-sticky"]),
        ("sticky", ["sticky"]),
        ("range,roundrobin", ["range", "roundrobin"]),
        (FirstTakesAll, ["first-takes-all"]),
        (Unrelated(), ["unrelated"]),
        ([FirstTakesAll(), "org.apache.kafka.clients.consumer.RangeAssignor"], None),
    ):
        settings = {} if given is None else {"partition_assignment_strategy": given}
        resolved = resolve_assignors(config(settings).partition_assignment_strategy)
        assert [item.name for item in resolved] == (names or ["first-takes-all", "range"])


def test_what_is_no_assignor() -> None:
    assert 'no assignor "rangee"' in refusal("rangee")
    assert 'try: did you mean "range"?' in refusal("rangee")
    assert "try: pass the class of one of your own" in refusal("something-else")
    assert "empty" in refusal()
    assert 'two assignors have the name "range"' in refusal("range", kfast.RangeAssignor())
    assert "object is not an assignor" in refusal(object())
    assert "it lacks name, assign, subscription_user_data, on_assignment" in refusal(object)


def test_a_class_of_another_library_is_named() -> None:
    class RangePartitionAssignor:
        name = "range"

        def assign(self, cluster: Any, members: Any) -> None: ...

    assert 'try: use "range", kfast\'s own' in refusal(RangePartitionAssignor)


def test_classes_that_cannot_be_created() -> None:
    class Incomplete(kfast.ConsumerPartitionAssignor):
        name = "incomplete"

    class Demanding(FirstTakesAll):
        def __init__(self, argument: int) -> None: ...

    assert "Incomplete cannot be created without arguments" in refusal(Incomplete)
    assert "try: pass an instance" in refusal(Demanding)
    assert resolve_assignors([Demanding(1)])[0].name == "first-takes-all"


@pytest.mark.parametrize("protocols", [None, "EAGER", {"EAGER"}, [EAGER]])
def test_protocols_that_are_none(protocols: object) -> None:
    class Wrong(Unrelated):
        supported_protocols = protocols  # type: ignore[assignment]  # that is the test

    assert "Wrong.supported_protocols is not a set of kfast.RebalanceProtocol" in refusal(Wrong)


# --- protocols ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("range", "cooperative-sticky"), EAGER),  # the default
        (("cooperative-sticky",), COOPERATIVE),  # range dropped: the group switches over
        (("cooperative-sticky", "sticky"), EAGER),
        (("roundrobin",), EAGER),
        (("cooperative-sticky", OnlyCooperative), COOPERATIVE),
        (("cooperative-sticky", Unrelated), COOPERATIVE),
        ((FirstTakesAll, Unrelated), EAGER),
    ],
)
def test_the_highest_common_protocol(
    values: tuple[object, ...], expected: kfast.RebalanceProtocol
) -> None:
    """G-16: the default runs EAGER; without range it runs COOPERATIVE."""
    assert select_rebalance_protocol(resolve_assignors(values)) is expected


def test_no_common_protocol() -> None:
    """G-16: such a list raises when it is resolved, which is at construction."""
    message = refusal("range", OnlyCooperative)
    assert "no rebalance protocol in common" in message
    assert "found: range (EAGER), only-cooperative (COOPERATIVE)" in message


def test_no_protocol_at_all_means_eager() -> None:
    class Silent(FirstTakesAll):
        supported_protocols: frozenset[kfast.RebalanceProtocol] = frozenset()

    assert select_rebalance_protocol(resolve_assignors([Silent])) is EAGER


# --- the leader's check ---------------------------------------------------------------------------

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
MEMBERS = (
    kfast.GroupMember("a", ("t", "u"), (T0, U0), 3),
    kfast.GroupMember("b", ("t",), (T1,), 3),
)


def check(
    result: Any, protocol: kfast.RebalanceProtocol = EAGER
) -> dict[str, list[TopicPartition]]:
    return check_assignment(FirstTakesAll(), result, MEMBERS, protocol)


def complaint(result: Any, protocol: kfast.RebalanceProtocol = EAGER) -> IllegalStateError:
    with pytest.raises(IllegalStateError) as caught:
        check(result, protocol)
    assert caught.value.message.startswith('the assignor "first-takes-all" made an assignment')
    return caught.value


def test_a_good_assignment_passes() -> None:
    """Members left out get nothing; any sequence will do, and plain tuples are partitions."""
    assert check({"a": [T0, T1]}) == {"a": [T0, T1], "b": []}
    checked = check({"b": (("t", 0),), "a": []})
    assert checked == {"a": [], "b": [T0]}
    assert isinstance(checked["b"][0], TopicPartition)
    assert check({}) == {"a": [], "b": []}


def test_a_partition_assigned_twice_is_refused() -> None:
    """G-17: to two members, or twice to one."""
    error = complaint({"a": [T0], "b": [T0]})
    assert error.cause == "t-0 assigned to both a and b"
    assert (error.topic, error.partition) == ("t", 0)
    assert complaint({"a": [T0, T0]}).cause == "t-0 assigned to both a and a"


def test_unknown_members_are_refused() -> None:
    """G-17: members that do not exist or did not subscribe."""
    assert complaint({"c": [T0]}).cause == "'c' is not a member of the group"
    cause = complaint({"b": [U0]}).cause
    assert cause == "u-0 assigned to b, which is not subscribed to u"


@pytest.mark.parametrize(
    "item", [None, "t-0", ("t", -1), ("t", "0"), ("t", 2**31), (0, "t"), ("t",)]
)
def test_what_is_no_partition_is_refused(item: object) -> None:
    assert "which is not a TopicPartition" in str(complaint({"a": [item]}).cause)


@pytest.mark.parametrize("result", [None, [T0], {"a": None}, {"a": 5}])
def test_what_is_no_assignment_is_refused(result: object) -> None:
    assert "not partitions by member id" in str(complaint(result).cause)


def test_a_hand_over_is_refused_under_the_cooperative_protocol() -> None:
    """KIP-429: a partition of another owner is left out first."""
    result = {"a": [T0, T1], "b": []}
    assert check(result) == result, "eager members own nothing any more"
    error = complaint(result, COOPERATIVE)
    assert error.cause == "t-1 assigned to a while b owns it"
    assert (error.topic, error.partition) == ("t", 1)
    kept = {"a": [T0], "b": [T1]}
    assert check(kept, COOPERATIVE) == kept
    withheld: dict[str, list[TopicPartition]] = {"a": [T0], "b": []}
    assert check(withheld, COOPERATIVE) == withheld


def test_kfasts_own_assignors_may_overrule_old_claims() -> None:
    """Of two claims the newer counts: cooperative-sticky may give to one what both say they own."""
    built_in = kfast.CooperativeStickyAssignor()
    members = (*MEMBERS, kfast.GroupMember("c", ("t",)))
    result = {"a": [T0], "b": [], "c": [T1]}
    assert check_assignment(built_in, result, members, COOPERATIVE) == result
