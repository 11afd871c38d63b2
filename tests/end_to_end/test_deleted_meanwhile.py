"""Commands that look at several topics and groups while others delete some of them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from kfast import TopicPartition, cli
from kfast.protocol.api_keys import ApiKey
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import EditResponse
from kfast.testing.server import BrokerServer

START: Final = 1_769_860_800_000
TOPICS: Final = ("orders-a", "orders-b", "orders-c")
Said = tuple[int, str, str]
Run = Callable[..., Said]


@pytest.fixture
def server() -> Iterator[BrokerServer]:
    """Serve topics of two partitions with ten records each; two groups have committed 4 in all."""
    cluster = FakeCluster(2)
    for topic in TOPICS:
        cluster.create_topic(topic, 2)
        for number in range(2):
            records = [Record(b"k", b"v", timestamp=START + 1000 * n) for n in range(10)]
            cluster.append(topic, number, records, batch_records=1)
    for group in ("g-1", "g-2"):
        for topic in TOPICS:
            for number in range(2):
                cluster.groups.offsets(group).commit(TopicPartition(topic, number), 4)
    with BrokerServer(cluster) as running:
        yield running


@pytest.fixture
def run(server: BrokerServer, capfd: pytest.CaptureFixture[str]) -> Run:
    def said(*words: str) -> Said:
        status = cli.main(["-b", server.bootstrap_servers, *words])
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return said


def rows(run: Run, *words: str) -> list[dict[str, Any]]:
    ended, out, err = run(*words, "-f", "json")
    assert (ended, err) == (0, "")
    found: list[dict[str, Any]] = json.loads(out)
    return found


def delete_behind(
    server: BrokerServer, topic: str, api: int = ApiKey.METADATA, nth: int = 1
) -> None:
    """Delete a topic when the response to a request that still names it has been made."""

    seen = 0

    def delete(message: Any, _plan: object) -> None:
        nonlocal seen
        seen += any(each.name == topic for each in message.topics)
        if seen == nth and topic in server.cluster.topics:
            server.cluster.delete_topic(topic)

    server.cluster.faults.add(EditResponse(delete), api=api, times=None)


@pytest.mark.parametrize("words", [("topics",), ("topics", "orders-*", "--internal")])
def test_topics_lists_those_that_are_left(
    server: BrokerServer, run: Run, words: tuple[str, ...]
) -> None:
    """V-02"""
    delete_behind(server, "orders-b")
    found = rows(run, *words)
    assert [(row["topic"], row["offsets"]) for row in found] == [("orders-a", 20), ("orders-c", 20)]


def test_topics_deleted_between_the_look_ups_of_offsets(server: BrokerServer, run: Run) -> None:
    """V-02"""
    delete_behind(server, "orders-b", ApiKey.LIST_OFFSETS)
    assert {row["topic"] for row in rows(run, "topics")} <= {*TOPICS}


def test_topics_describe_of_a_glob_describes_those_that_are_left(
    server: BrokerServer, run: Run
) -> None:
    """V-02"""
    delete_behind(server, "orders-b")
    found = rows(run, "topics", "describe", "orders-*")
    assert [(row["topic"], row["end"]) for row in found] == [
        *[("orders-a", 10)] * 2,
        *[("orders-c", 10)] * 2,
    ]


@pytest.mark.parametrize("words", [("topics",), ("topics", "describe")])
def test_a_topic_that_was_named_is_missed(
    server: BrokerServer, run: Run, words: tuple[str, ...]
) -> None:
    """V-02"""
    delete_behind(server, "orders-b")
    status, out, err = run(*words, "orders-a", "orders-b")
    assert (status, out) == (5, "")
    assert err.startswith('kfast: no topic "orders-b" on this cluster')


@pytest.mark.parametrize("words", [("lag",), ("lag", "--time"), ("groups", "describe", "g-1")])
def test_lag_of_a_topic_that_is_deleted_is_not_known(
    server: BrokerServer, run: Run, words: tuple[str, ...]
) -> None:
    """V-02: its rows have no offsets of the log, the others are as ever."""
    delete_behind(server, "orders-b")
    found = rows(run, *words)
    if words[0] == "groups":
        (group,) = found
        found = group["lag"]
    lags = {(row["topic"], row["lag"]) for row in found}
    assert lags == {("orders-a", 6), ("orders-b", None), ("orders-c", 6)}


def test_time_lag_of_a_topic_that_is_deleted_is_not_known(server: BrokerServer, run: Run) -> None:
    """V-02: deleted when the lag is known, and not waited for longer than the time-out."""

    def delete(_request: object) -> bool:
        server.cluster.topics.pop("orders-b", None)
        return False

    server.cluster.faults.add(api=ApiKey.FETCH, where=delete)
    found = rows(run, "lag", "g-1", "--time", "--timeout", "3s")
    by_topic = {row["topic"]: row["time_lag_ms"] for row in found}
    assert by_topic["orders-a"] > 0
    assert by_topic["orders-c"] > 0
    assert {row["lag"] for row in found} == {6}


def delete_group_behind(server: BrokerServer, group: str, api: int) -> None:
    """Delete a group when the response to a request that still names it has been made."""

    def delete(_message: Any, _plan: object) -> None:
        if group in server.cluster.groups.names():
            server.cluster.groups.delete_group(group)

    server.cluster.faults.add(EditResponse(delete), api=api, times=None)


@pytest.mark.parametrize("words", [("lag",), ("groups", "describe", "g-*"), ("groups",)])
def test_a_group_that_is_deleted_hides_no_other(
    server: BrokerServer, run: Run, words: tuple[str, ...]
) -> None:
    """V-02"""
    delete_group_behind(server, "g-1", ApiKey.LIST_GROUPS)
    assert {row["group"] for row in rows(run, *words)} == {"g-2"}


def test_a_group_that_is_deleted_before_its_offsets_are_read(
    server: BrokerServer, run: Run
) -> None:
    """V-02"""
    delete_group_behind(server, "g-1", ApiKey.DESCRIBE_GROUPS)
    assert {row["group"] for row in rows(run, "lag")} == {"g-2"}


def test_a_group_that_was_named_is_missed(server: BrokerServer, run: Run) -> None:
    """V-02"""
    server.cluster.groups.delete_group("g-1")
    status, out, err = run("lag", "g-1", "g-2")
    assert (status, out) == (5, "")
    assert err.startswith('kfast: no group "g-1" on this cluster')


def test_a_reset_leaves_out_committed_topics_that_are_gone(server: BrokerServer, run: Run) -> None:
    """V-02: unless they are named."""
    server.cluster.delete_topic("orders-b")
    words = ("groups", "reset", "g-1", "--to", "end")
    assert {(row["topic"], row["new"]) for row in rows(run, *words)} == {
        ("orders-a", 10),
        ("orders-c", 10),
    }
    assert run(*words, "orders-a", "orders-b")[0] == 5
    delete_behind(server, "orders-c")
    assert {row["topic"] for row in rows(run, *words)} == {"orders-a"}


def test_doctor_of_a_topic_that_is_deleted_says_so(server: BrokerServer, run: Run) -> None:
    """V-02"""

    def delete(message: Any, _plan: object) -> None:
        if [topic.name for topic in message.topics] == ["orders-b"]:
            server.cluster.topics.pop("orders-b", None)

    server.cluster.faults.add(EditResponse(delete), api=ApiKey.METADATA, times=None)
    status, out, _ = run("doctor", "orders-b", "-f", "json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert checks["topic orders-b"]["ok"]
    assert status == 5
    assert checks["record"]["message"].startswith('no topic "orders-b" on this cluster')


# --- reads ----------------------------------------------------------------------------------------


def test_a_read_of_a_glob_leaves_out_what_was_deleted_before_it_began(
    server: BrokerServer, run: Run
) -> None:
    """V-04: of a topic that is named it is an error, before anything is written."""
    words = ("read", "-f", "%t\n")
    delete_behind(server, "orders-b")
    status, out, err = run(*words, "orders-*")
    assert (status, err) == (0, "")
    assert Counter(out.split()) == {"orders-a": 20, "orders-c": 20}
    assert run(*words, "orders-*", "orders-b")[:2] == (5, "")


def test_a_deleted_topic_keeps_no_new_partitions_from_being_followed(
    server: BrokerServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V-05"""
    monkeypatch.setattr("kfast.cli.reading._REFRESH_MS", 50)

    def change() -> None:
        cluster = server.cluster
        cluster.requests.wait_for(lambda log: bool(log.select(ApiKey.FETCH)))
        cluster.delete_topic("orders-b")
        cluster.add_partitions("orders-a", 3)
        cluster.append("orders-a", 2, [b"new"])

    thread = threading.Thread(target=change)
    thread.start()
    words = ("read", "orders-a", "orders-b", "--follow", "-n", "1", "-o", "end")
    assert run(*words, "-f", "%s\n")[:2] == (0, "new\n")
    thread.join()
