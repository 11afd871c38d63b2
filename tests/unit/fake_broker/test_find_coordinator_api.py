"""FindCoordinator: which node, in every version, and when there is none."""

from __future__ import annotations

import pytest

from kfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.fault_actions import TopLevelError
from tests.fake_broker.groups import java_hash
from tests.fake_broker.releases import Api
from tests.unit.fake_broker.wire import ask


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("kfast", 101952327), ("group-1", 293427299), ("polygenelubricants", 0)],
)
def test_java_hash(text: str, expected: int) -> None:
    """As ``Utils.abs(text.hashCode())``, whose value for the smallest integer is 0."""
    assert java_hash(text) == expected


@pytest.mark.parametrize("version", [2, 3])
def test_one_key(version: int) -> None:
    cluster = FakeCluster(3)
    cluster.groups.move_coordinator("g", 2)
    cluster.advertise(2, "elsewhere", 1234)
    for node_id in cluster.nodes:
        answer = ask(cluster, FindCoordinatorRequest("g"), version, node_id)
        assert (answer.error_code, answer.node_id) == (0, 2)
        assert (answer.host, answer.port) == ("elsewhere", 1234)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_several_keys(version: int) -> None:
    """KIP-699"""
    cluster = FakeCluster(3)
    keys = [f"group-{number}" for number in range(20)]
    answer = ask(cluster, FindCoordinatorRequest(coordinator_keys=keys), version)
    assert [one.key for one in answer.coordinators] == keys
    found = {one.key: one.node_id for one in answer.coordinators}
    assert found == {key: cluster.groups.coordinator(key) for key in keys}
    assert set(found.values()) == {1, 2, 3}


def test_errors() -> None:
    """G-04: a group may be denied, the offsets topic may be missing."""
    cluster = FakeCluster()
    cluster.groups.denied.add("mine")
    request = FindCoordinatorRequest(coordinator_keys=["mine", "g"])
    assert [one.error_code for one in ask(cluster, request, 4).coordinators] == [30, 0]
    cluster.groups.is_available = False
    answer = ask(cluster, request, 4)
    assert [(one.error_code, one.node_id) for one in answer.coordinators] == [(30, -1), (15, -1)]
    assert ask(cluster, FindCoordinatorRequest("g"), 2).error_code == 15
    cluster.groups.is_available = True
    cluster.faults.add(TopLevelError(14), api=Api.FIND_COORDINATOR, times=2)
    assert ask(cluster, FindCoordinatorRequest("g"), 3).error_code == 14
    assert ask(cluster, request, 4).coordinators[0].error_code == 14
    assert ask(cluster, FindCoordinatorRequest("g", 2), 2).error_code == 42
