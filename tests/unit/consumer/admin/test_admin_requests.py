"""Questions about groups, on a fake cluster in memory with a fake clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kfast.consumer.admin.admin_requests import AdminRequests
from kfast.consumer.admin.descriptions import GroupDescription, ListedGroup
from kfast.consumer.admin.questions import (
    COMMITTED_OFFSETS,
    DESCRIBE_GROUPS,
    Key,
    Question,
    commit_offsets,
    list_groups,
)
from kfast.errors import (
    GroupAuthorizationError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import Drop, EditResponse, NeverAnswer, TopLevelError
from kfast.testing.releases import RELEASE_NAMES
from kfast.types import OffsetAndMetadata, TopicPartition
from tests.simulation.loopback_consumer import LoopbackConsumer

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUPS = [f"group-{number}" for number in range(12)]
ALL = object()


def make_cluster(release: str | None = None, nodes: int = 3) -> FakeCluster:
    """Return a cluster in which the groups have committed 10 and up in t-0."""
    cluster = FakeCluster(nodes, **({} if release is None else {"release": release}))
    cluster.create_topic("t", 2)
    for number, group in enumerate(GROUPS):
        cluster.groups.offsets(group).commit(T0, 10 + number)
    return cluster


def ask(
    cluster: FakeCluster, question: Question, keys: Any = GROUPS, timeout_ms: int = 10_000
) -> dict[Key, Any]:
    client = LoopbackConsumer(cluster, retry_backoff_ms=100)
    return ask_again(client, question, keys, timeout_ms)


def ask_again(
    client: LoopbackConsumer, question: Question, keys: Any = GROUPS, timeout_ms: int = 10_000
) -> dict[Key, Any]:
    admin = client.managers.admin
    assert isinstance(admin, AdminRequests)
    now_ms = client.clock.now_ms()
    asked = admin.ask(question, None if keys is ALL else keys, now_ms, now_ms + timeout_ms)
    return client.wait(asked)


def committed(answers: dict[Key, Any]) -> dict[Key, int]:
    return {key: answer[T0].offset for key, answer in answers.items()}


EXPECTED = {group: 10 + number for number, group in enumerate(GROUPS)}


@pytest.mark.parametrize("release", RELEASE_NAMES)
def test_every_release_answers(release: str) -> None:
    """CL-64: batches where brokers take them, one group per request where they do not."""
    cluster = make_cluster(release)
    assert committed(ask(cluster, COMMITTED_OFFSETS)) == EXPECTED
    described = ask(cluster, DESCRIBE_GROUPS)
    assert {(each.state, each.members) for each in described.values()} == {("Empty", ())}
    listed = {
        each.group_id: each for found in ask(cluster, list_groups(), ALL).values() for each in found
    }
    assert sorted(listed) == sorted(GROUPS)
    assert all(
        cluster.groups.coordinator(name) == each.coordinator for name, each in listed.items()
    )
    requests = len([1 for one in cluster.requests if one.api_key == ApiKey.OFFSET_FETCH])
    has_batches = release not in {"2.1", "2.8"}
    assert requests == (3 if has_batches else len(GROUPS))


def test_groups_of_a_coordinator_share_a_request() -> None:
    """CL-64: one FindCoordinator for all, one OffsetFetch per coordinator; known ones are kept."""
    cluster = make_cluster()
    client = LoopbackConsumer(cluster)
    for _ in range(2):
        assert committed(ask_again(client, COMMITTED_OFFSETS)) == EXPECTED
    counts = {
        api: sum(one.api_key == api for one in cluster.requests)
        for api in (ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH)
    }
    assert counts == {ApiKey.FIND_COORDINATOR: 1, ApiKey.OFFSET_FETCH: 6}


def test_a_group_that_is_not_there_is_dead() -> None:
    """CL-64: by its error from 4.0 on, by its state before; one without commits has none."""
    for release in ("2.8", "4.3"):
        answers = ask(make_cluster(release), DESCRIBE_GROUPS, ["nothing", GROUPS[0]])
        assert not answers["nothing"].exists
        assert answers[GROUPS[0]].exists
    assert ask(make_cluster(), COMMITTED_OFFSETS, ["nothing"]) == {"nothing": {}}


def test_no_groups_and_no_keys() -> None:
    """CL-64: nothing asked is answered at once."""
    assert ask(make_cluster(), DESCRIBE_GROUPS, []) == {}
    cluster = FakeCluster(2)
    assert ask(cluster, list_groups(), ALL) == {1: (), 2: ()}


@pytest.mark.parametrize("state", ["moved", "loading"])
def test_a_coordinator_that_moves_or_loads_is_waited_for(state: str) -> None:
    """CL-64: NOT_COORDINATOR finds the coordinator again, COORDINATOR_LOAD_IN_PROGRESS waits."""
    cluster = make_cluster()
    client = LoopbackConsumer(cluster)
    assert committed(ask_again(client, COMMITTED_OFFSETS)) == EXPECTED
    group = GROUPS[0]
    if state == "moved":
        other = next(n for n in cluster.nodes if n != cluster.groups.coordinator(group))
        cluster.groups.move_coordinator(group, other)
    else:
        cluster.groups.start_loading(group)
        client.network.schedule(1_000, lambda: cluster.groups.finish_loading(group))
    assert committed(ask_again(client, COMMITTED_OFFSETS)) == EXPECTED


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH])
def test_a_lost_connection_is_asked_again(api: ApiKey) -> None:
    """CL-64: a response cut off in the middle."""
    cluster = make_cluster()
    cluster.faults.add(Drop(after_bytes=6), api=api, times=2)
    assert committed(ask(cluster, COMMITTED_OFFSETS)) == EXPECTED


def test_a_stopped_coordinator_is_replaced() -> None:
    """CL-64: its groups move, and are asked for where they are then."""
    cluster = make_cluster()
    client = LoopbackConsumer(cluster)
    assert committed(ask_again(client, COMMITTED_OFFSETS)) == EXPECTED
    cluster.stop_node(cluster.groups.coordinator(GROUPS[0]))
    assert committed(ask_again(client, COMMITTED_OFFSETS)) == EXPECTED
    assert len(ask_again(client, list_groups(), ALL)) == 2


def test_one_denied_group_hides_no_other() -> None:
    """CL-64: errors are per group."""
    cluster = make_cluster()
    cluster.groups.denied.add(GROUPS[3])
    answers = ask(cluster, COMMITTED_OFFSETS)
    assert isinstance(answers.pop(GROUPS[3]), GroupAuthorizationError)
    assert committed(answers) == {key: value for key, value in EXPECTED.items() if key != GROUPS[3]}


def test_silence_is_an_error_of_the_groups_concerned() -> None:
    """CL-64: at the deadline, naming group and cause."""
    cluster = make_cluster()
    cluster.faults.add(TopLevelError(16), api=ApiKey.OFFSET_FETCH, times=None, node=1)
    answers = ask(cluster, COMMITTED_OFFSETS, timeout_ms=3_000)
    silent = {group for group in GROUPS if cluster.groups.coordinator(group) == 1}
    assert silent
    for group, answer in answers.items():
        assert isinstance(answer, KafkaTimeoutError) is (group in silent)
    error = answers[min(silent)]
    assert error.message == (
        f'group "{min(silent)}": the committed offsets did not come within 3000 ms'
    )
    assert "the committed offsets failed" in error.cause
    cluster.faults.rules.clear()
    cluster.faults.add(NeverAnswer(), api=ApiKey.METADATA, times=None)
    client = LoopbackConsumer(cluster)
    with pytest.raises(KafkaTimeoutError, match="the cluster: the list of groups did not come"):
        ask_again(client, list_groups(), ALL, 2_000)


def test_filters_need_their_versions() -> None:
    """CL-62: by state from 2.6 on, by type from 3.8 on; older brokers are named as too old."""
    cluster = make_cluster()
    found = ask(cluster, list_groups(states=("Empty",), types=("classic",)), ALL)
    assert sum(map(len, found.values())) == len(GROUPS)
    assert not any(ask(cluster, list_groups(states=("Stable",)), ALL).values())
    for release, filters in (("2.1", {"states": ("Empty",)}), ("2.8", {"types": ("classic",)})):
        answers = ask(make_cluster(release), list_groups(**filters), ALL)
        assert all(isinstance(each, UnsupportedVersionError) for each in answers.values())


# --- hostile responses ----------------------------------------------------------------------------


def edited(api: ApiKey, edit: Callable[[Any], None], times: int | None = None) -> FakeCluster:
    cluster = make_cluster()
    cluster.faults.add(EditResponse(lambda message, _: edit(message)), api=api, times=times)
    return cluster


def test_a_response_without_the_group_is_asked_again() -> None:
    """CL-64: never taken for one without commits; what was not asked for is not used."""

    def rename(message: Any) -> None:
        for group in message.groups:
            group.group_id += "x"

    assert committed(ask(edited(ApiKey.OFFSET_FETCH, rename, 4), COMMITTED_OFFSETS)) == EXPECTED
    answers = ask(edited(ApiKey.OFFSET_FETCH, rename), COMMITTED_OFFSETS, timeout_ms=2_000)
    assert {*answers} == {*GROUPS}
    assert all("does not contain group" in error.cause for error in answers.values())


def test_impossible_coordinators_are_asked_again() -> None:
    """CL-64: a port that none has, an id below 0."""
    for name, value in (("port", 70_000), ("node_id", -7), ("host", "")):

        def change(message: Any, name: str = name, value: object = value) -> None:
            for each in message.coordinators:
                setattr(each, name, value)

        cluster = edited(ApiKey.FIND_COORDINATOR, change, 2)
        assert committed(ask(cluster, COMMITTED_OFFSETS)) == EXPECTED


def test_impossible_offsets_and_partitions_are_dropped() -> None:
    """CL-64: negative offsets are no commits, negative partitions are none."""

    def change(message: Any) -> None:
        for group in message.groups:
            for topic in group.topics:
                for part in topic.partitions:
                    if group.group_id == GROUPS[0]:
                        part.committed_offset = -7
                    if group.group_id == GROUPS[1]:
                        part.partition_index = -1

    answers = ask(edited(ApiKey.OFFSET_FETCH, change), COMMITTED_OFFSETS)
    assert answers[GROUPS[0]] == answers[GROUPS[1]] == {}
    assert answers[GROUPS[2]][T0].offset == 12


def test_a_malformed_assignment_is_no_assignment() -> None:
    """CL-64: it comes from another client; a member of another protocol has none either."""
    from kfast.protocol.messages.describe_groups import DescribedGroupMember  # noqa: PLC0415

    kinds = {GROUPS[0]: ("consumer", b"\0\0\0\0\0\x7f"), GROUPS[1]: ("connect", b"\0\1")}

    def change(message: Any) -> None:
        for group in message.groups:
            if group.group_id in kinds:
                group.protocol_type, data = kinds[group.group_id]
                group.members = [DescribedGroupMember("m", None, "c", "/h", b"", data)]

    answers = ask(edited(ApiKey.DESCRIBE_GROUPS, change), DESCRIBE_GROUPS, [*kinds])
    for answer in answers.values():
        assert isinstance(answer, GroupDescription)
        assert [member.partitions for member in answer.members] == [None]


# --- commits --------------------------------------------------------------------------------------


def test_offsets_are_committed_by_a_non_member() -> None:
    """CL-62: to the coordinator, also after it has moved; codes are per partition."""
    cluster = make_cluster()
    group = GROUPS[0]
    question = commit_offsets({T0: OffsetAndMetadata(3, "", -1), T1: OffsetAndMetadata(4, "", -1)})
    cluster.faults.add(TopLevelError(16), api=ApiKey.OFFSET_COMMIT)
    assert ask(cluster, question, [group]) == {group: {T0: 0, T1: 0}}
    assert cluster.groups.committed(group) == {T0: 3, T1: 4}
    request = next(one for one in cluster.requests if one.api_key == ApiKey.OFFSET_COMMIT)
    assert (request.message.generation_id_or_member_epoch, request.message.member_id) == (-1, "")


def test_listed_groups_have_the_state_and_type_that_brokers_report() -> None:
    """CL-62: None from brokers that do not report them."""
    old = ask(make_cluster("2.1", 1), list_groups(), ALL)[1]
    assert old[0] == ListedGroup(GROUPS[0], None, None, "", 1)
    new = ask(make_cluster(nodes=1), list_groups(), ALL)[1]
    assert new[0] == ListedGroup(GROUPS[0], "Empty", "classic", "", 1)
    assert not any(isinstance(each, KafkaError) for each in (*old, *new))
