"""What the user reads when data cannot be delivered: positions stay, other partitions go on."""

from __future__ import annotations

import pickle
import re
import time
from typing import Any

import pytest

import kfast
from kfast.errors import (
    CorruptRecordError,
    DeserializationError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    ProtocolError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import PartitionError
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import (
    T0,
    T1,
    cluster_of,
    consumer,
    polled_until_error,
    read_until,
    warnings_of,
)
from tests.simulation.partition_faults import (
    EditRecords,
    claim_batch_length,
    cut_tail,
    damage_batch,
)
from tests.simulation.wire_faults import ClaimFrameSize

pytestmark = pytest.mark.usefixtures("nothing_is_printed")


def test_an_offset_that_is_gone() -> None:
    cluster = cluster_of()
    with cluster.changing():
        cluster.log("t", 0).delete_before(5)
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, auto_offset_reset="none") as reader,
    ):
        reader.assign([T0, T1])
        reader.seek(T0, 2)
        reader.seek(T1, 0)
        error, lines, seen = polled_until_error(OffsetOutOfRangeError, reader)
        assert lines == [
            "offset 2 of t-0 is gone: the log now starts at 5 (retention)",
            "lost: 3 records",
            'try: seek_to_beginning(), or auto_offset_reset="earliest"',
        ]
        assert (error.topic, error.partition, error.offset) == ("t", 0, 2)
        assert (error.log_start_offset, error.retriable) == (5, False)
        assert reader.position(T0) == 2
        again, _, more = polled_until_error(OffsetOutOfRangeError, reader)
        assert again.offset == 2
        note_all = seen.get(T1, []) + more.get(T1, [])
        deadline = time.monotonic() + 20
        while not note_all and time.monotonic() < deadline:  # the error may come again before them
            note_all += polled_until_error(OffsetOutOfRangeError, reader)[2].get(T1, [])
        assert note_all == list(range(10))
        reader.seek_to_beginning(T0)
        assert read_until(reader, {T0: 5}) == {T0: list(range(5, 10))}


def test_an_offset_past_the_end() -> None:
    with (
        BrokerServer(cluster_of()) as server,
        consumer(server.bootstrap_servers, auto_offset_reset="none") as reader,
    ):
        reader.assign([T0])
        reader.seek(T0, 99)
        error, lines, _ = polled_until_error(OffsetOutOfRangeError, reader)
        assert reader.position(T0) == 99
    assert lines[0] == "offset 99 of t-0 is past the end of the log"
    assert error.offset == 99


def test_no_position_and_no_policy() -> None:
    with (
        BrokerServer(cluster_of()) as server,
        consumer(server.bootstrap_servers, auto_offset_reset="none") as reader,
    ):
        reader.assign([T0])
        _, lines, _ = polled_until_error(NoOffsetForPartitionError, reader)
    assert lines[0] == 't-0 has no position to start from, and auto_offset_reset is "none"'


def test_an_offset_that_is_gone_is_reset_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """O-02: from where, to where, and how many records that is."""
    cluster = cluster_of(1)
    with cluster.changing():
        cluster.log("t", 0).delete_before(5)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        reader.seek(T0, 2)
        assert read_until(reader, {T0: 5}) == {T0: list(range(5, 10))}
    assert warnings_of(caplog) == [
        "Offset 2 of t-0 is gone: reset to offset 5 (earliest), 3 records skipped"
    ]


def test_a_value_in_confluents_format() -> None:
    """E-07, E-08: rows before it first, bytes and place in the error, seek past it goes on."""
    cluster = cluster_of(2, 3)
    raw = b"\x00\x00\x00\x00\x07abc\xff"
    cluster.append("t", 0, [Record(b"the key", raw)])
    cluster.append("t", 0, [b"after"])
    with (
        BrokerServer(cluster) as server,
        consumer(server.bootstrap_servers, value_deserializer=kfast.Utf8()) as reader,
    ):
        reader.assign([T0, T1])
        error, lines, seen = polled_until_error(DeserializationError, reader)
        assert lines[:2] == [
            "t-0 offset 3: value is not UTF-8 (byte 0: 0x00)",
            "found: 00 00 00 00 07 … \N{EN DASH} Confluent wire format, schema id 7",
        ]
        assert (error.topic, error.partition, error.offset, error.column) == ("t", 0, 3, "value")
        assert (error.key_bytes, error.value_bytes) == (b"the key", raw)
        assert seen[T0] == [0, 1, 2]
        assert reader.position(T0) == 3
        _, _, more = polled_until_error(DeserializationError, reader)
        assert seen.get(T1, []) + more.get(T1, []) == [0, 1, 2]
        assert reader.position(T0) == 3
        reader.seek(T0, 4)
        assert read_until(reader, {T0: 1}) == {T0: [4]}
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.value_bytes) == (str(error), raw)


def divide(_: bytes) -> object:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    ("deserializer", "first", "second"),
    [
        (kfast.Int64(), "value is not an Int64 (3 bytes, needs 8)", "found: 30 2d 30 (3 bytes)"),
        (divide, "value cannot be read by divide", "cause: ZeroDivisionError: division by zero"),
    ],
)
def test_values_that_cannot_be_read(deserializer: Any, first: str, second: str) -> None:
    """E-08: compiled and Python deserializers say which value it was."""
    with (
        BrokerServer(cluster_of(1, 1)) as server,
        consumer(server.bootstrap_servers, value_deserializer=deserializer) as reader,
    ):
        reader.assign([T0])
        _, lines, seen = polled_until_error(DeserializationError, reader)
        assert (seen, reader.position(T0)) == ({}, 0)
    assert lines[:2] == [f"t-0 offset 0: {first}", second]
    assert "on_deserialization_error" in lines[-1]


@pytest.mark.parametrize(
    ("what", "cause", "found"),
    [
        (
            "crc",
            "its checksum does not match",
            r"computed [0-9a-f]{8}, expected [0-9a-f]{8}; \d+ bytes",
        ),
        ("length", "its length is impossible", "length 5 at byte"),
        ("negative", "its length is impossible", "length -5 at byte"),
    ],
)
def test_a_corrupt_batch_in_the_middle(what: str, cause: str, found: str) -> None:
    """F-08: records before it come, other partitions go on, a seek leads past it."""
    edit = {
        "crc": damage_batch(1),
        "length": claim_batch_length(1, 5),
        "negative": claim_batch_length(1, -5),
    }[what]
    cluster = cluster_of(2, 9, batch_records=3)
    rule = cluster.faults.add(EditRecords(edit, "t", 0), api=ApiKey.FETCH, times=None)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0, T1])
        error, lines, seen = polled_until_error(CorruptRecordError, reader)
        assert lines[:2] == ["t-0: the batch at offset 3 is corrupt", f"cause: {cause}"]
        assert re.match(f"found: {found}", lines[2])
        assert lines[3].startswith("try: seek to offset ")
        assert (error.topic, error.partition, error.offset) == ("t", 0, 3)
        assert seen[T0] == [0, 1, 2]
        assert reader.position(T0) == 3
        polled_until_error(CorruptRecordError, reader)
        cluster.append("t", 1, [b"more"])
        later = read_until(reader, {T1: 10 - len(seen.get(T1, []))})
        assert T0 not in later
        cluster.faults.remove(rule)
        assert error.next_offset is not None
        reader.seek(T0, 6)
        assert read_until(reader, {T0: 3}) == {T0: [6, 7, 8]}


def test_a_batch_that_is_cut_off() -> None:
    """F-08: a first batch that never comes whole is an error at its offset, not a silent loop."""
    cluster = cluster_of(2, 9, batch_records=3)
    cluster.faults.add(EditRecords(cut_tail(3), "t", 0), api=ApiKey.FETCH, times=None)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0, T1])
        error, lines, seen = polled_until_error(RecordTooLargeError, reader)
        assert lines[0] == "the batch at offset 6 of t-0 does not fit in a Fetch response"
        assert (error.topic, error.partition, error.offset) == ("t", 0, 6)
        assert seen[T0] == list(range(6))
        assert reader.position(T0) == 6
        if T1 not in seen:
            read_until(reader, {T1: 9})


def test_a_batch_above_the_receive_cap() -> None:
    """B-04: the size needed is named, nothing moves, and brokers without such batches go on."""
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2, leaders=[1, 2])
    cluster.append("t", 0, [b"v" * 3_000_000])
    cluster.append("t", 1, [b"w"])
    with (
        BrokerServer(cluster) as server,
        consumer(
            server.bootstrap_servers, receive_message_max_bytes=1_000_000, fetch_max_bytes=900_000
        ) as reader,
    ):
        reader.assign([T0, T1])
        error, lines, seen = polled_until_error(RecordTooLargeError, reader)
        assert lines[0] == "broker 1 holds a batch that is larger than this consumer accepts"
        assert error.size_needed is not None
        assert error.size_needed > 3_000_000
        assert lines[-1] == f"try: raise receive_message_max_bytes to {error.size_needed}"
        assert reader.position(T0) == 0
        assert seen or read_until(reader, {T1: 1}) == {T1: [0]}
    with BrokerServer(cluster) as server:
        found = kfast.read_topic(
            [T0],
            bootstrap_servers=server.bootstrap_servers,
            receive_message_max_bytes=error.size_needed,
            fetch_max_bytes=900_000,
        )
    assert [len(record.value) for record in found[T0]] == [3_000_000]


def read_past(reader: kfast.KafkaConsumer) -> None:
    """Poll until something is raised, for a bounded time."""
    for _ in range(20):
        reader.poll(timeout_ms=200)


@pytest.mark.parametrize("size", [0x7FFFFFFF, -5])
def test_a_hostile_frame_size(size: int) -> None:
    """D-21, N-04: told when it persists; the position stays, and reading goes on afterwards."""
    cluster = cluster_of(1)
    rule = cluster.faults.add(ClaimFrameSize(size), api=ApiKey.FETCH, times=None)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        if size > 0:
            error, _, _ = polled_until_error(RecordTooLargeError, reader)
            assert error.size_needed == size
        else:
            _, lines, _ = polled_until_error(ProtocolError, reader)
            assert lines[0] == "broker 1 sends responses that cannot be read"
            assert lines[1].startswith("cause: a frame of -5 bytes was announced")
        assert rule.hits >= 1
        assert reader.position(T0) == 0
        cluster.faults.remove(rule)
        assert read_until(reader, {T0: 10}) == {T0: list(range(10))}


def test_a_broker_that_cannot_be_read_with_these_versions() -> None:
    """E-09, N-01: the API, both ranges and the node are named."""
    cluster = cluster_of(1)
    cluster.set_versions(ApiKey.FETCH, (90, 99))
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        error, lines, _ = polled_until_error(UnsupportedVersionError, reader)
    text = " ".join(lines)
    assert "FETCH" in text
    assert "90" in text
    assert "99" in text
    assert not error.retriable


def test_a_code_nobody_knows_keeps_its_number() -> None:
    """E-09: and derives from KafkaError, and pickles."""
    cluster = cluster_of(1)
    cluster.faults.add(PartitionError(4711), api=ApiKey.FETCH, times=None)
    with BrokerServer(cluster) as server, consumer(server.bootstrap_servers) as reader:
        reader.assign([T0])
        with pytest.raises(KafkaError) as caught:
            read_past(reader)
    assert "4711" in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy)) == (type(caught.value), str(caught.value))
    assert copy.retriable is caught.value.retriable
