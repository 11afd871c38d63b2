"""topics, groups and lag on a fake cluster: what they print and how they end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from kfast import KafkaConsumer, TopicPartition, cli
from kfast.protocol.api_keys import ApiKey
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import EditResponse, TopLevelError
from kfast.testing.server import BrokerServer
from kfast.types import OffsetAndMetadata
from tests.end_to_end.stage import PATIENCE_S, eventually

T: Final = [TopicPartition("orders", number) for number in range(3)]
START: Final = 1_769_860_800_000
Said = tuple[int, str, str]
Run = Callable[..., Said]


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    """Serve "orders" (3 partitions), "orders-old" and "__hidden"; group "gone" has committed."""
    cluster = FakeCluster(2)
    cluster.features["group.version"] = 1
    cluster.create_topic("orders", 3)
    cluster.create_topic("orders-old")
    cluster.create_topic("__hidden", is_internal=True)
    for tp in T:
        records = [Record(b"k", b"v", timestamp=START + 1000 * n) for n in range(10)]
        cluster.append("orders", tp.partition, records, batch_records=1)
    with cluster.changing():
        cluster.log("orders", 2).delete_before(4)
    cluster.groups.offsets("gone").commit(T[0], 7)
    cluster.groups.offsets("gone").commit(T[2], 2)
    with BrokerServer(cluster) as running:
        yield running


@pytest.fixture
def run(server: BrokerServer, capfd: pytest.CaptureFixture[str]) -> Run:
    def said(*words: str) -> Said:
        status = cli.main(["-b", server.bootstrap_servers, *words])
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return said


def rows(run: Run, *words: str, status: int = 0) -> list[dict[str, Any]]:
    ended, out, err = run(*words, "-f", "json")
    assert (ended, err) == (status, "")
    found: list[dict[str, Any]] = json.loads(out)
    return found


# --- topics ---------------------------------------------------------------------------------------


def test_topics(run: Run) -> None:
    """CL-61: offsets from start to end, the newest timestamp; internal topics when asked for."""
    assert run("topics") == (
        0,
        "topic       partitions  replication  under_replicated  offsets  newest"
        "                    internal\n"
        "orders               3            2                 0       26  2026-01-31T12:00:09.000Z"
        "  false\n"
        "orders-old           1            2                 0        0  null"
        "                      false\n",
        "",
    )
    assert run("topics", "--internal", "__*", "-f", "tsv")[1].splitlines()[1:] == [
        "__hidden\t1\t2\t0\t0\t\\N\ttrue"
    ]
    assert [row["topic"] for row in rows(run, "topics", "*-old", "orders")] == [
        *("orders", "orders-old"),
    ]
    assert [row["topic"] for row in rows(run, "topics", "__hidden")] == ["__hidden"]


def test_topics_describe(run: Run) -> None:
    """CL-61: one row per partition; describe behind -- is a topic."""
    found = rows(run, "topics", "describe", "orders")
    assert found[2] == {
        "topic": "orders",
        "id": "dG9waWMtaWQAAAAAAAAAAQ",
        "partition": 2,
        "leader": found[2]["leader"],
        "replicas": found[2]["replicas"],
        "isr": found[2]["isr"],
        "offline": [],
        "start": 4,
        "end": 10,
        "offsets": 6,
        "leader_epoch": 0,
    }
    assert sorted(found[0]["replicas"]) == [1, 2]
    status, _, err = run("topics", "--", "describe")
    assert (status, err.splitlines()[0]) == (
        5,
        'kfast: no topic "describe" on this cluster (2 topics)',
    )


def test_what_is_not_there(run: Run) -> None:
    """CL-61, CL-65: exit 5 and the nearest name; JSON on request; never created."""
    status, out, err = run("topics", "describe", "order")
    assert (status, out) == (5, "")
    assert err.splitlines()[-1] == 'try: did you mean "orders"?'
    assert run("topics", "x*")[0] == 5
    status, out, err = run("topics", "order", "-f", "jsonl")
    assert json.loads(err) == {
        "error": "UNKNOWN_TOPIC_OR_PARTITION",
        "message": 'no topic "order" on this cluster (2 topics)',
        "cause": None,
        "found": None,
        "try": 'did you mean "orders"?',
        "exit": 5,
        "retriable": True,
    }
    assert [row["topic"] for row in rows(run, "topics")] == ["orders", "orders-old"]


def test_a_partition_without_a_leader_hides_no_topic(server: BrokerServer, run: Run) -> None:
    """CL-61: its offsets are null, and nothing is waited for."""

    def change(message: Any, _: object) -> None:
        for topic in message.topics:
            if topic.name == "orders":
                topic.partitions[1].leader_id = -1
                topic.partitions[1].isr_nodes = []

    rule = server.cluster.faults.add(EditResponse(change), api=ApiKey.METADATA, times=None)
    started = time.monotonic()
    try:
        orders = rows(run, "topics", "orders")[0]
        partition = next(
            r for r in rows(run, "topics", "describe", "orders") if r["partition"] == 1
        )
    finally:
        server.cluster.faults.remove(rule)
    assert time.monotonic() - started < 5
    assert (orders["offsets"], orders["under_replicated"]) == (None, 1)
    assert (partition["leader"], partition["start"], partition["isr"]) == (None, None, [])


# --- groups ---------------------------------------------------------------------------------------


def is_assigned(consumer: KafkaConsumer) -> bool:
    consumer.poll(100)
    return len(consumer.assignment()) == 3


@pytest.fixture(scope="module")
def members(server: BrokerServer) -> Iterator[dict[str, KafkaConsumer]]:
    """Two groups with a member each, which has committed 4 in orders-0."""
    settings: dict[str, Any] = {
        "bootstrap_servers": server.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    with (
        KafkaConsumer("orders", group_id="old", client_id="one", **settings) as one,
        KafkaConsumer(
            "orders", group_id="new", client_id="two", group_protocol="consumer", **settings
        ) as two,
    ):
        for consumer in (one, two):
            eventually(partial(is_assigned, consumer))
            consumer.commit({T[0]: OffsetAndMetadata(4, "", -1)})
        yield {"old": one, "new": two}


def test_groups(run: Run, members: dict[str, KafkaConsumer]) -> None:
    """CL-62: both protocols and groups that have only committed; filters and globs."""
    found = {row["group"]: row for row in rows(run, "groups")}
    coordinator = found["gone"]["coordinator"]
    assert found["gone"] == {
        "group": "gone",
        "state": "Empty",
        "type": "classic",
        "protocol": None,
        "members": 0,
        "coordinator": coordinator,
    }
    assert [(found[name]["type"], found[name]["members"]) for name in members] == [
        ("classic", 1),
        ("consumer", 1),
    ]
    for words, names in (
        (("--state", "stable"), ["new", "old"]),
        (("--type", "consumer"), ["new"]),
        (("o*", "gone"), ["gone", "old"]),
        (("gone", "--state", "stable"), []),
    ):
        assert [row["group"] for row in rows(run, "groups", *words)] == names
    assert run("groups", "olt")[2].splitlines()[-1] == 'try: did you mean "old"?'


def test_groups_describe(run: Run, members: dict[str, KafkaConsumer]) -> None:
    """CL-62: members with what is assigned to them, then the lag."""
    for name, consumer in members.items():
        (found,) = rows(run, "groups", "describe", name)
        (member,) = found["members"]
        assert member == {
            "group": name,
            "member": consumer.group_metadata().member_id,
            "instance": None,
            "client": {"old": "one", "new": "two"}[name],
            "host": "/127.0.0.1",
            "epoch": None if name == "old" else consumer.group_metadata().generation_id,
            "topics": ["orders"],
            "partitions": ["orders-0", "orders-1", "orders-2"],
        }
        assert [row["lag"] for row in found["lag"]] == [6, 10, 6]
    out = run("groups", "describe", "old", "gone")[1]
    tables = [part.splitlines() for part in out.split("\n\n")]
    assert [table[0].split()[:2] for table in tables] == [["group", "member"], ["group", "topic"]]
    assert [len(table) for table in tables] == [2, 6]
    assert run("groups", "describe", "absent")[0] == 5


def test_groups_reset(server: BrokerServer, run: Run, members: dict[str, KafkaConsumer]) -> None:
    """CL-62: a dry run unless --execute; refused while there are members, which are named."""
    groups = server.cluster.groups
    before = groups.committed("gone")
    assert run("groups", "reset", "gone", "--to", "end", "-f", "csv") == (
        0,
        "topic,partition,committed,new\norders,0,7,10\norders,2,2,10\n",
        "",
    )
    assert groups.committed("gone") == before
    status, _, err = run("groups", "reset", "old", "--to", "end", "--execute")
    assert status == 1
    assert f"found: {members['old'].group_metadata().member_id} (/127.0.0.1)" in err.splitlines()
    assert groups.committed("old") == {T[0]: 4}
    for to, expected in (
        ("2026-01-31T12:00:05", [5, 5, 5]),
        ("start", [0, 0, 4]),
        ("-3", [7, 7, 7]),
        ("0=1,2=9", [1, 7, 9]),
    ):
        ended = run("groups", "reset", "gone", "--to", to, "orders", "--execute")
        assert ended[0] == 0, ended
        assert [groups.committed("gone")[tp] for tp in T] == expected
    for words, status, text in (
        (("gone", "--to", "3"), 6, "try: --to start, or --to end"),
        (("gone", "--to", "yesterday"), 2, '--to "yesterday" is neither an offset nor a time'),
        (("gone", "--to", "start", "ordes"), 5, 'try: did you mean "orders"?'),
        (("absent", "--to", "start", "orders"), 5, 'no group "absent" on this cluster'),
        (("gone",), 2, "--to"),
    ):
        ended = run("groups", "reset", *words)
        assert (ended[0], ended[1]) == (status, "")
        assert text in ended[2]
    with server.cluster.changing():
        groups.offsets("gone").forget(T[1])
        groups.offsets("gone").commit(T[0], 7)
        groups.offsets("gone").commit(T[2], 2)


def test_a_member_that_joins_meanwhile_stops_a_reset(server: BrokerServer, run: Run) -> None:
    """CL-62: the coordinator refuses the commit, and nothing is said to have been committed."""
    rule = server.cluster.faults.add(TopLevelError(25), api=ApiKey.OFFSET_COMMIT, times=None)
    try:
        status, out, err = run("groups", "reset", "gone", "--to", "end", "--execute")
    finally:
        server.cluster.faults.remove(rule)
    assert (status, out) == (1, "")
    assert err.startswith('kfast: group "gone" has members')


# --- lag ------------------------------------------------------------------------------------------


def test_lag(run: Run, members: dict[str, KafkaConsumer]) -> None:
    """CL-63: partitions assigned or committed; without a commit from the start of the log."""
    found = rows(run, "lag")
    assert [(row["group"], row["partition"], row["committed"], row["lag"]) for row in found] == [
        ("gone", 0, 7, 3),
        ("gone", 2, 2, 6),
        *(
            (name, *each)
            for name in ("new", "old")
            for each in ((0, 4, 6), (1, None, 10), (2, None, 6))
        ),
    ]
    assert found[1] == {
        "group": "gone",
        "topic": "orders",
        "partition": 2,
        "committed": 2,
        "start": 4,
        "end": 10,
        "lag": 6,
        "time_lag_ms": None,
        "member": None,
        "client": None,
        "host": None,
    }
    assert {(row["client"], row["host"]) for row in found[2:5]} == {("two", "/127.0.0.1")}
    assert rows(run, "lag", "--sum", "gone") == [
        {"group": "gone", "partitions": 2, "lag": 9, "time_lag_ms": None}
    ]
    assert run("lag", "gome")[2].splitlines()[-1] == 'try: did you mean "gone"?'
    assert run("lag", "gon*", "-f", "tsv")[1].count("\n") == 3


def test_lag_counts_what_can_be_read(run: Run, server: BrokerServer) -> None:
    """V-01: not what is gone before the log, and nothing for an offset beyond its end."""
    offsets = server.cluster.groups.offsets("outside")
    with server.cluster.changing():
        for tp, offset in zip(T, (12, 10, 0), strict=True):
            offsets.commit(tp, offset)
    try:
        found = rows(run, "lag", "outside")
        assert [(row["committed"], row["lag"]) for row in found] == [(12, 0), (10, 0), (0, 6)]
        assert rows(run, "lag", "outside", "--sum")[0]["lag"] == 6
        assert rows(run, "lag", "outside", "--fail-over", "6") == []
    finally:
        with server.cluster.changing():
            server.cluster.groups.delete_group("outside")


def test_time_lag(run: Run, server: BrokerServer) -> None:
    """CL-63: the age of the first unread record, 0 without lag; several offsets per partition."""
    offsets = server.cluster.groups.offsets("timed")
    other = server.cluster.groups.offsets("timed-too")
    with server.cluster.changing():
        offsets.commit(T[0], 10)
        offsets.commit(T[2], 2)
        other.commit(T[2], 6)
    now_ms = time.time_ns() // 1_000_000
    found = rows(run, "lag", "--time", "timed*")
    lags = [row["time_lag_ms"] for row in found]
    assert lags[0] == 0
    for lag, offset in zip(lags[1:], (4, 6), strict=True):
        assert 0 <= lag - (now_ms - START - 1000 * offset) < 30_000
    summed = rows(run, "lag", "--time", "--sum", "timed")
    assert summed[0]["time_lag_ms"] >= lags[1]


def test_thresholds(run: Run) -> None:
    """CL-63: exit 8 and only the rows above, offsets or time; exit 0 and none otherwise."""
    assert [row["partition"] for row in rows(run, "lag", "gone", "--fail-over", "3", status=8)] == [
        2
    ]
    assert rows(run, "lag", "gone", "--fail-over", "8") == []
    assert len(rows(run, "lag", "gone", "--fail-over", "5m", status=8)) == 2
    assert rows(run, "lag", "gone", "--fail-over", "100000d") == []
    assert len(rows(run, "lag", "gone", "--sum", "--fail-over", "8", status=8)) == 1
    assert run("lag", "--fail-over", "much")[0] == 2


def test_watching_ends_with_ctrl_c(run: Run, server: BrokerServer) -> None:
    """CL-63: again and again; Ctrl-C is the way to end it: exit 0."""
    seen: list[float] = []
    requests = server.cluster.requests
    before = len(requests)

    def interrupt() -> None:
        assert requests.wait_for(lambda log: len(log) > before + 20, PATIENCE_S)
        seen.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    status, out, err = run("lag", "gone", "--watch", "10ms", "-f", "jsonl")
    assert (status, err) == (0, "")
    assert time.monotonic() - seen[0] < 3
    thread.join()
    lines = [json.loads(line) for line in out.splitlines()]
    assert len(lines) >= 4
    assert {line["group"] for line in lines} == {"gone"}


@pytest.mark.parametrize(
    "words", [("--watch", "gone"), ("gone", "--watch"), ("--watch", "gone", "--", "x")]
)
def test_watch_takes_a_length_of_time_only(
    words: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-63: a group behind it is a group."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr("kfast.cli.lag.time.sleep", sleep)
    status, out, err = run("lag", *words)
    if "--" in words:
        assert (status, err.splitlines()[0].split(" on ")[0]) == (5, 'kfast: no group "x"')
    else:
        assert (status, waits) == (0, [2.0])
        assert out.splitlines()[1].startswith("gone ")


# --- terminals ------------------------------------------------------------------------------------


def test_hostile_names_do_not_reach_a_terminal(server: BrokerServer) -> None:
    """CL-60: a group's name cannot move the cursor, set a title or ring; the heading is bold."""
    with server.cluster.changing():
        server.cluster.groups.offsets("a\x1b]0;title\x07\u202e").commit(T[0], 1)
    leader, follower = pty.openpty()
    try:
        command = [sys.executable, "-m", "kfast", "groups", "-b", server.bootstrap_servers]
        own = {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "60"}
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        ended = subprocess.run(
            command, stdin=follower, stdout=follower, timeout=60, env=environment | own, check=True
        )
        assert ended.returncode == 0
        text = os.read(leader, 1 << 16).decode()
    finally:
        os.close(follower)
        os.close(leader)
        with server.cluster.changing():
            server.cluster.groups.delete_group("a\x1b]0;title\x07\u202e")
    heading, *rows_shown = text.replace("\r\n", "\n").splitlines()
    assert heading.startswith("\x1b[1mgroup ")
    assert heading.endswith("\x1b[0m")
    assert not any(each in "\n".join(rows_shown) for each in ("\x1b", "\x07", "\u202e"))
    assert any(row.startswith("a\\x1b]0;") for row in rows_shown)
    assert max(map(len, rows_shown)) <= 60
