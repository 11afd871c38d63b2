"""read_topic and scan_topic: what they return at the edges, and what they refuse."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kfast
from kfast import TopicPartition
from kfast.deserializers import Int64, Utf8
from kfast.errors import (
    ConfigurationError,
    DeserializationError,
    InvalidTopicError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import T0, T1, cluster_of, raised

pytestmark = pytest.mark.usefixtures("nothing_is_printed")


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    """Serve "t" (2 partitions of 10), "empty", "timed" and "trimmed"; tests do not change them."""
    cluster = cluster_of(batch_records=4)
    cluster.create_topic("empty", 2)
    cluster.create_topic("timed")
    records = [Record(b"k%d" % n, b"v%d" % n, timestamp=1000 * n) for n in range(6)]
    cluster.append("timed", 0, records, batch_records=2)
    cluster.create_topic("trimmed")
    cluster.append("trimmed", 0, [b"%d" % n for n in range(6)], batch_records=2)
    with cluster.changing():
        cluster.log("trimmed", 0).delete_before(3)
    with BrokerServer(cluster) as running:
        yield running


def offsets(server: BrokerServer, topic: Any, **settings: Any) -> dict[int, list[int]]:
    """Read a range and return the offsets per partition."""
    found = kfast.read_topic(topic, bootstrap_servers=server.bootstrap_servers, **settings)
    return {tp.partition: batch.offsets.tolist() for tp, batch in found.items()}


ALL = list(range(10))


@pytest.mark.parametrize(
    ("topic", "settings", "expected"),
    [
        ("t", {}, {0: ALL, 1: ALL}),
        (T1, {}, {1: ALL}),
        ([T1, T0, T1], {}, {0: ALL, 1: ALL}),
        ("t", {"start": "latest"}, {}),
        ("t", {"end": "earliest"}, {}),
        ("t", {"start": {0: 7, 1: 9}}, {0: [7, 8, 9], 1: [9]}),
        ("t", {"start": {T0: 7}}, {0: [7, 8, 9], 1: ALL}),
        ("t", {"start": {0: 2, 1: 10}, "end": {0: 5, 1: 12}}, {0: [2, 3, 4]}),
        ("t", {"end": {0: 1_000, 1: 0}}, {0: ALL}),
        ("t", {"start": {0: 8, 1: 8}, "end": {0: 6, 1: 9}}, {1: [8]}),
        ("t", {"start": {np.int64(0): np.int64(9), 1: 10}}, {0: [9]}),
        ("empty", {}, {}),
        ("timed", {"start": 2000, "end": 4000}, {0: [2, 3]}),
        ("timed", {"start": 1500}, {0: [2, 3, 4, 5]}),
        ("timed", {"start": 9000}, {}),
        ("timed", {"start": datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC)}, {0: [4, 5]}),
        ("timed", {"start": datetime(1970, 1, 13, tzinfo=UTC)}, {}),
        ("timed", {"end": datetime(1970, 1, 1, 0, 0, 2, 1)}, {0: [0, 1, 2]}),
        ("timed", {"end": np.datetime64("1970-01-01T00:00:01")}, {0: [0]}),
        ("trimmed", {}, {0: [3, 4, 5]}),
    ],
)
def test_ranges(
    server: BrokerServer, topic: Any, settings: Any, expected: dict[int, list[int]]
) -> None:
    """The end is exclusive and never waited for, whatever lies beyond the log."""
    assert offsets(server, topic, **settings) == expected


def test_an_empty_result_is_a_result(server: BrokerServer) -> None:
    """E-10: no rows, but every view of them works."""
    found = kfast.read_topic("empty", bootstrap_servers=server.bootstrap_servers)
    assert (len(found), found.count(), list(found), found.partitions()) == (0, 0, [], set())
    assert found.next_offsets() == {}
    assert not found


def test_what_is_written_meanwhile_is_left_out() -> None:
    """The end is fixed before the first record is handed out."""
    cluster = cluster_of(1, batch_records=2)
    with BrokerServer(cluster) as server:
        seen: dict[TopicPartition, list[int]] = {}
        batches = kfast.scan_topic("t", bootstrap_servers=server.bootstrap_servers)
        for batch in batches:
            seen.setdefault(batch.topic_partition, []).extend(batch.offsets.tolist())
            cluster.append("t", 0, [b"later"])
    assert seen == {T0: ALL}


def test_a_log_that_ends_without_records_ends_the_read() -> None:
    """The position counts, not the last record."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    with cluster.writing("t", 0) as writer:
        writer.append([b"a", b"b"])
        writer.append_emptied(5)
    with BrokerServer(cluster) as server:
        assert offsets(server, "t") == {0: [0, 1]}


def test_columns_and_progress(server: BrokerServer) -> None:
    reports: list[tuple[int, int]] = []
    found = kfast.read_topic(
        "t",
        bootstrap_servers=server.bootstrap_servers,
        columns=["value"],
        progress=lambda done, total: reports.append((done, total)),
    )
    assert [record.value for record in found[T0]] == [b"0-%d" % n for n in ALL]
    assert reports[0] == (0, 20)
    assert reports[-1] == (20, 20)
    assert reports == sorted(reports)


def test_a_scan_left_early_lets_go_of_its_connections() -> None:
    cluster = cluster_of(batch_records=1)
    with BrokerServer(cluster) as server:
        batches = kfast.scan_topic(
            "t", bootstrap_servers=server.bootstrap_servers, max_poll_records=1
        )
        assert len(next(batches)) == 1
        assert cluster.connections
        batches.close()
        assert list(batches) == []
        assert offsets(server, "t") == {0: ALL, 1: ALL}


@pytest.mark.parametrize(
    ("topic", "lines"),
    [
        ("tt", ['no topic "tt" on this cluster (4 topics)', 'try: did you mean "t"?']),
        (
            [T0, TopicPartition("t", 7)],
            [
                "t has partitions 0-1: there is no partition 7",
                "try: name only partitions that exist",
            ],
        ),
        (
            TopicPartition("inventory", 0),
            [
                'no topic "inventory" on this cluster (4 topics)',
                "try: create it first, or check that this user may describe it; "
                "reading creates none",
            ],
        ),
    ],
)
def test_what_does_not_exist(server: BrokerServer, topic: Any, lines: list[str]) -> None:
    """E-06: raised at once, nothing is created."""
    _, error = raised(UnknownTopicOrPartitionError, lambda: offsets(server, topic), within_ms=0)
    assert error == lines
    assert set(server.cluster.topics) == {"t", "empty", "timed", "trimmed"}


def test_a_start_that_is_gone_is_reported_without_methods_of_a_consumer(
    server: BrokerServer,
) -> None:
    """E-05: the caller of read_topic, and of the command line, has no consumer to seek with."""
    lost = TopicPartition("trimmed", 0)
    error, lines = raised(OffsetOutOfRangeError, lambda: offsets(server, lost, start={lost: 1}))
    assert lines[0] == "offset 1 of trimmed-0 is gone: the log now starts at 3 (retention)"
    assert lines[-1] == (
        'try: start at "earliest", or skip what is gone with auto.offset.reset=earliest'
    )
    assert offsets(server, lost, start={lost: 1}, auto_offset_reset="earliest") == {0: [3, 4, 5]}
    assert not error.retriable


def test_a_start_beyond_the_end_says_so(
    server: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    """E-02, P-10: an offset that the log does not have is an error, an empty range a warning."""
    error, lines = raised(OffsetOutOfRangeError, lambda: offsets(server, "t", start={0: 11}))
    assert lines == [
        "start = 11 for t-0 is beyond the end of the log, 10",
        "try: start at 10 or before; was the topic created anew?",
    ]
    assert (error.topic, error.partition, error.offset) == ("t", 0, 11)
    _, lines = raised(ConfigurationError, lambda: offsets(server, "timed", start=4000, end=2000))
    assert lines[0] == "start = 4000 is later than end = 2000"
    with caplog.at_level(logging.WARNING, "kfast"):
        assert offsets(server, T0, start={0: 8}, end={0: 6}) == {}
    assert "t-0: start 8 is beyond end 6" in caplog.text


def test_a_start_behind_an_open_transaction_is_in_the_log() -> None:
    """P-10, T-10: under read_committed nothing of it can be read yet, and nothing is lost."""
    cluster = cluster_of(1)
    with cluster.writing("t", 0) as writer:
        writer.append([b"open"] * 4, producer_id=1, is_transactional=True)
    with BrokerServer(cluster) as server:
        committed = {"isolation_level": "read_committed"}
        assert offsets(server, "t", start={0: 8}, **committed) == {0: [8, 9]}
        assert offsets(server, "t", start={0: 12}, **committed) == {}
        assert offsets(server, "t", start={0: 12}) == {0: [12, 13]}
        _, lines = raised(
            OffsetOutOfRangeError, lambda: offsets(server, "t", start={0: 15}, **committed)
        )
    assert lines[0] == "start = 15 for t-0 is beyond the end of the log, 14"


@pytest.mark.parametrize(
    ("topic", "settings", "first"),
    [
        ("t", {"start": "first"}, "start = 'first': not understood"),
        ("t", {"end": 1.5}, "end = 1.5: not understood"),
        ("t", {"end": None}, "end = None: not understood"),
        ("t", {"start": True}, "start = True: not a time"),
        ("t", {"start": -5}, "start = -5: a time before 1970 finds nothing"),
        ("t", {"start": {9: 1}}, "start names t-9, which is not among the partitions to read"),
        (T0, {"end": {T1: 1}}, "end names t-1, which is not among the partitions to read"),
        ("t", {"start": {"x": 1}}, "start names 'x', which is not a TopicPartition"),
        ("t", {"start": {0: -1}}, "start gives t-0 the offset -1: not an int >= 0"),
        ("t", {"end": {0: True}}, "end gives t-0 the offset True: not an int >= 0"),
        ("t", {"end": {0: "9"}}, "end gives t-0 the offset '9': not an int >= 0"),
        ("t", {"columns": ["values"]}, "columns = ['values']: not understood"),
        ("t", {"columns": "value"}, "columns = 'value': not understood"),
        ([], {}, "no partitions to read"),
        (5, {}, "topic = 5: not a topic name or TopicPartitions"),
        ([5], {}, "5 is not a partition"),
        ([("t", "0")], {}, "('t', '0') is not a partition"),
        ("t", {"fetch_min_bytez": 1}, 'unknown config "fetch_min_bytez"; did you mean fetch_min_'),
    ],
)
def test_arguments_that_are_not_understood(
    server: BrokerServer, topic: Any, settings: Any, first: str
) -> None:
    """E-02, E-05: which argument, its value, and what to pass instead."""
    error, lines = raised(ConfigurationError, lambda: offsets(server, topic, **settings))
    assert lines[0].startswith(first)
    assert not error.retriable


def test_a_topic_name_that_is_none(server: BrokerServer) -> None:
    """E-05: refused locally."""
    raised(InvalidTopicError, lambda: offsets(server, "a b"))


def test_a_start_that_is_gone_is_not_skipped_in_silence(
    server: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    """P-10: a range that retention has cut raises; a policy of the user's skips, with a warning."""
    error, lines = raised(OffsetOutOfRangeError, lambda: offsets(server, "trimmed", start={0: 1}))
    assert lines[:2] == [
        "offset 1 of trimmed-0 is gone: the log now starts at 3 (retention)",
        "lost: 2 records",
    ]
    assert error.offset == 1
    for policy in ("earliest", "latest"):
        kept = offsets(server, "trimmed", start={0: 1}, auto_offset_reset=policy)
        assert kept == {0: [3, 4, 5]}, "what is left is read, whichever policy skips the rest"
    assert caplog.messages == ["trimmed-0: offsets 1 to 2 are lost"] * 2


def test_a_scan_gives_what_it_can_before_it_fails() -> None:
    """E-08: batches before the bad value come first."""
    cluster = cluster_of(1, 4)
    cluster.append("t", 0, [b"\xff"])
    seen: list[int] = []
    with BrokerServer(cluster) as server:
        scan = kfast.scan_topic(
            "t", bootstrap_servers=server.bootstrap_servers, value_deserializer=kfast.Utf8()
        )
        with pytest.raises(DeserializationError, match="t-0 offset 4: value is not UTF-8"):
            seen.extend(offset for batch in scan for offset in batch.offsets.tolist())
    assert seen == [0, 1, 2, 3]


def deleted(cluster: FakeCluster) -> None:
    cluster.delete_topic("t")


def created_anew(cluster: FakeCluster) -> None:
    cluster.recreate_topic("t")
    cluster.append("t", 0, [b"new"])


def truncated(cluster: FakeCluster) -> None:
    cluster.move_leader("t", 0, 1, truncate_to=150)


@pytest.mark.parametrize(
    ("change", "policy", "error", "message"),
    [
        (deleted, "none", UnknownTopicOrPartitionError, 'no topic "t" on this cluster (0 topics)'),
        (
            created_anew,
            "none",
            OffsetOutOfRangeError,
            "t was deleted and created anew while it was read",
        ),
        (
            created_anew,
            "earliest",
            OffsetOutOfRangeError,
            "t was deleted and created anew while it was read",
        ),
        (
            truncated,
            "earliest",
            OffsetOutOfRangeError,
            "the log of t-0 ends at 150 now, and was to be read to 200",
        ),
    ],
)
def test_a_range_that_is_gone_ends_a_read(
    change: Callable[[FakeCluster], None], policy: str, error: type[KafkaError], message: str
) -> None:
    """E-13: what is not in the log any more does not come by waiting."""
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.append("t", 0, [b"x" * 1_000] * 200, batch_records=10)
    with BrokerServer(cluster) as server:
        scan = kfast.scan_topic(
            "t",
            bootstrap_servers=server.bootstrap_servers,
            auto_offset_reset=policy,
            max_partition_fetch_bytes=20_000,
            buffer_memory_bytes=60_000,
        )
        assert next(scan).offsets[0] == 0
        with cluster.changing():
            change(cluster)
        with pytest.raises(error) as caught:
            sum(map(len, scan))
    assert caught.value.message == message


def test_an_empty_range_keeps_the_schema(server: BrokerServer) -> None:
    """B-14, E-10: nothing to read has the columns and types of what would be read."""
    for columns in (None, ["value"]):
        given: dict[str, Any] = {
            "bootstrap_servers": server.bootstrap_servers,
            "value_deserializer": Int64(),
            "key.deserializer": Utf8(),
            "columns": columns,
        }
        nothing = kfast.read_topic("empty", **given)
        assert len(nothing) == 0
        schema = nothing.to_arrow().schema
        assert schema.field("value").type == pa.int64()
        if columns is None:
            assert schema.field("key").type == pa.string()
        else:
            assert "key" not in schema.names
            assert "offset" in schema.names
