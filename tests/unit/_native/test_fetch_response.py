"""The compiled reader of Fetch responses, and the walk over batch headers."""

from __future__ import annotations

import struct

import pytest

from kfast._native.buffers import OwnedBuffer, copy_of
from kfast._native.fetch_response import (
    BatchScan,
    FetchedPartition,
    FetchResponseView,
    parse_fetch_response,
    scan_batches,
)
from kfast.errors import ProtocolError, UnsupportedVersionError
from kfast.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)

TOPIC_ID = bytes(range(1, 17))
VERSIONS = range(10, 19)
GOLDEN = bytes.fromhex(
    "000000000000000000000048ffffffff024f8f663500000000000100000000000003e800000000000003edffffffff"
    "ffffffffffffffffffff0000000218000000026b0276020268027812000a02010002026e01"
)
EMPTIED = bytes.fromhex(
    "000000000000000a000000310000000402b43d8dc2000000000009ffffffffffffffff0000000000"
    "0003e800000000000000090003ffffffff00000000"
)
LEGACY_V0 = bytes.fromhex(
    "0000000000000064000000101fecd70a0000000000016b0000000176"
    "00000000000000650000000fa50b8f630000ffffffff0000000177"
)
LEGACY_V1 = bytes.fromhex(
    "000000000000006400000018e4e321bc010000000000000003e8000000016b0000000176"
    "00000000000000650000001798989778010000000000000003edffffffff0000000177"
)


def parse(response: FetchResponse, version: int) -> tuple[OwnedBuffer, FetchResponseView]:
    frame = copy_of(b"header" + response.encode(version))
    return frame, parse_fetch_response(frame, 6, version)


def full_response(version: int) -> FetchResponse:
    first = PartitionData(
        partition_index=3,
        high_watermark=100,
        last_stable_offset=90,
        log_start_offset=5,
        aborted_transactions=[AbortedTransaction(9, 50), AbortedTransaction(8, 40)],
        preferred_read_replica=4 if version >= 11 else -1,
        records=b"some records",
    )
    second = PartitionData(4, 1, -1, records=None, aborted_transactions=None)
    third = PartitionData(0, 6, -1, records=b"")
    endpoints: list[NodeEndpoint] = []
    if version >= 12:
        second.diverging_epoch = EpochEndOffset(3, 77)
        third.current_leader = LeaderIdAndEpoch(2, 6)
        third.snapshot_id = SnapshotId(4, 5)
    if version >= 16:
        endpoints = [NodeEndpoint(2, "b2", 9092), NodeEndpoint(3, "b3", 9093, "rack")]
    topics = [
        FetchableTopicResponse("t1", TOPIC_ID, [first, second]),
        FetchableTopicResponse("zażółć", bytes(16), [third]),
    ]
    return FetchResponse(7, 0, 1234, topics, endpoints)


@pytest.mark.parametrize("version", VERSIONS)
def test_everything(version: int) -> None:
    frame, view = parse(full_response(version), version)
    assert (view.throttle_time_ms, view.error_code, view.session_id) == (7, 0, 1234)
    first, second, third = view.partitions
    names = [p.topic for p in view.partitions]
    ids = [p.topic_id for p in view.partitions]
    has_ids = version >= 13
    assert names == ([None] * 3 if has_ids else ["t1", "t1", "zażółć"])
    assert ids == ([TOPIC_ID, TOPIC_ID, bytes(16)] if has_ids else [None] * 3)
    assert [p.partition for p in view.partitions] == [3, 4, 0]
    assert [p.error_code for p in view.partitions] == [0, 1, 6]
    assert (first.high_watermark, first.last_stable_offset) == (100, 90)
    assert first.log_start_offset == 5
    assert first.aborted_transactions == ((9, 50), (8, 40))
    assert first.preferred_read_replica == (4 if version >= 11 else -1)
    assert bytes(frame)[first.records_start : first.records_end] == b"some records"
    assert second.aborted_transactions == ()
    assert second.records_start == second.records_end
    assert second.diverging_epoch == ((3, 77) if version >= 12 else None)
    assert third.current_leader == ((2, 6) if version >= 12 else None)
    assert (first.current_leader, first.diverging_epoch) == (None, None)
    expected = [(2, "b2", 9092, None), (3, "b3", 9093, "rack")] if version >= 16 else []
    assert view.node_endpoints == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_is_a_protocol_error(version: int) -> None:
    """D-22: missing bytes."""
    encoded = full_response(version).encode(version)
    for end in range(len(encoded)):
        with pytest.raises(ProtocolError):
            parse_fetch_response(copy_of(encoded[:end]), 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_behind_the_response_are_tolerated(version: int) -> None:
    """D-22: unread trailing bytes."""
    encoded = full_response(version).encode(version)
    assert len(parse_fetch_response(copy_of(encoded + b"\xff" * 5), 0, version).partitions) == 3


@pytest.mark.parametrize("version", [9, 19, -1])
def test_versions_out_of_range(version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        parse_fetch_response(copy_of(b""), 0, version)


@pytest.mark.parametrize("offset", [-1, 15, 2**40])
def test_an_offset_outside_the_frame(offset: int) -> None:
    with pytest.raises(ProtocolError):
        parse_fetch_response(copy_of(FetchResponse().encode(10)), offset, 10)


def test_an_error_response_has_no_partitions() -> None:
    _, view = parse(FetchResponse(0, 71, 0), 17)
    assert (view.error_code, view.partitions) == (71, [])


def test_duplicate_partitions_are_reported_as_they_are() -> None:
    """D-26: the fetch session judges them."""
    partitions = [PartitionData(1, high_watermark=5), PartitionData(1, high_watermark=6)]
    topic = FetchableTopicResponse("t", partitions=partitions)
    _, view = parse(FetchResponse(responses=[topic, topic]), 12)
    found = [(p.topic, p.partition, p.high_watermark) for p in view.partitions]
    assert found == [("t", 1, 5), ("t", 1, 6)] * 2


# --- hostile bytes --------------------------------------------------------------------------------

START_V12 = "00000000" + "0000" + "00000000"
PARTITION_V12 = "00000000" + "0000" + "0000000000000005" * 3


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("ffffffff0f", id="four billion topics"),
        pytest.param("ffffffff1f", id="count beyond 32 bits"),
        pytest.param("00", id="null topics"),
        pytest.param("02" + "00", id="null topic name"),
        pytest.param("02" + "7f61", id="name beyond the end"),
        pytest.param("02" + "0261" + "00" + "00" * 60, id="null partitions"),
        pytest.param("02" + "0261" + "ffffff0f" + "00" * 60, id="count beyond the bytes"),
        pytest.param("02" + "02ff" + "01" + "00" + "00", id="name is not UTF-8"),
        pytest.param("02" + "0261" + "02" + PARTITION_V12 + "ffffff7f", id="aborted count"),
        pytest.param("02" + "0261" + "02" + PARTITION_V12 + "00ffffffff" + "7f" + "00" * 9,
                     id="records beyond the end"),
    ],
)  # fmt: skip
def test_counts_and_lengths(body: str) -> None:
    """D-21, D-22: nothing is allocated for a claimed count; nulls are refused."""
    with pytest.raises(ProtocolError):
        parse_fetch_response(copy_of(bytes.fromhex(START_V12 + body)), 0, 12)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("7fffffff", id="topics"),
        pytest.param("ffffffff", id="null topics"),
        pytest.param("fffffffe", id="topics below -1"),
        pytest.param("00000001" + "ffff", id="null name"),
        pytest.param("00000001" + "fffe", id="name below -1"),
        pytest.param("00000001" + "000161" + "00000002" + "00" * 70, id="partitions"),
        pytest.param("00000001" + "000161" + "00000001" + PARTITION_V12 + "fffffffe" + "00" * 8,
                     id="aborted below -1"),
        pytest.param("00000001" + "000161" + "00000001" + PARTITION_V12 + "00000000" + "fffffffe",
                     id="records below -1"),
    ],
)  # fmt: skip
def test_classic_counts_and_lengths(body: str) -> None:
    """D-21, D-22: the same in a version that is not flexible."""
    with pytest.raises(ProtocolError):
        parse_fetch_response(copy_of(bytes.fromhex(START_V12 + body)), 0, 10)


def partition_with_tags(tags: str) -> bytes:
    return bytes.fromhex(
        START_V12 + "02" + "0261" + "02" + PARTITION_V12 + "00ffffffff01" + tags + "00" + "00"
    )


def test_unknown_tags_are_skipped() -> None:
    """D-22: unknown tags, around and inside known ones."""
    leader = "010c" + "0000000200000006" + "01" + "0701aa"
    tags = "03" + leader + "0803bbbbbb" + "ffffffff0f00"
    (partition,) = parse_fetch_response(copy_of(partition_with_tags(tags)), 0, 12).partitions
    assert partition.current_leader == (2, 6)


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param("01" + "0108" + "0000000200000006" + "00", id="size too small"),
        pytest.param("01" + "010a" + "0000000200000006" + "0000", id="size too large"),
        pytest.param("02" + "0100" + "0100", id="known tags empty"),
        pytest.param("02" + "0700" + "0700", id="tag twice"),
        pytest.param("02" + "0700" + "0600", id="tags descending"),
        pytest.param("01" + "07ffffffff0f", id="size beyond the end"),
        pytest.param("ffffffff0f", id="four billion tags"),
        pytest.param("01" + "000d" + "00000002" + "0000000000000006" + "01", id="inner tag cut"),
        pytest.param("01" + "020c" + "0000000000000002" + "00000006", id="snapshot without tags"),
    ],
)
def test_bad_tag_sections(tags: str) -> None:
    """D-22: tags out of order, wrong sizes and missing bytes."""
    with pytest.raises(ProtocolError):
        parse_fetch_response(copy_of(partition_with_tags(tags)), 0, 12)


def test_node_endpoints_below_version_16_are_an_unknown_tag() -> None:
    body = bytes.fromhex(START_V12 + "01" + "01" + "0002ffff")
    assert parse_fetch_response(copy_of(body), 0, 15).node_endpoints == []
    with pytest.raises(ProtocolError):
        parse_fetch_response(copy_of(body), 0, 16)


@pytest.mark.parametrize("cls", [FetchedPartition, FetchResponseView, BatchScan])
def test_results_are_made_by_the_parser_only(cls: type) -> None:
    with pytest.raises(TypeError):
        cls()


def test_results_are_read_only() -> None:
    _, view = parse(full_response(17), 17)
    with pytest.raises(AttributeError):
        view.partitions[0].partition = 5  # type: ignore[misc]


def test_repr() -> None:
    _, view = parse(full_response(17), 17)
    assert "session=1234" in repr(view)
    assert TOPIC_ID.hex() in repr(view.partitions[0])


# --- batch headers --------------------------------------------------------------------------------


def batch(base: int = 0, **fields: int) -> bytes:
    """Return a batch with a body of 12 bytes; its header is all a scan looks at."""
    values = {
        "length": 49 + 12,
        "leader_epoch": 5,
        "magic": 2,
        "last_offset_delta": 9,
        "count": 10,
        **fields,
    }
    head = struct.pack(">qiib", base, values["length"], values["leader_epoch"], values["magic"])
    crc_attributes = bytes(6)
    rest = struct.pack(">i", values["last_offset_delta"]) + bytes(8 + 8 + 8 + 2 + 4)
    return head + crc_attributes + rest + struct.pack(">i", values["count"]) + bytes(12)


def scan(data: bytes) -> tuple[int, int, int, int, bool, int]:
    """Scan data in the middle of a frame."""
    frame = copy_of(b"\x7f" * 9 + data + b"\x7f" * 9)
    found = scan_batches(frame, 9, 9 + len(data))
    return (
        found.next_offset,
        found.leader_epoch,
        found.complete_bytes,
        found.batches,
        found.is_corrupt,
        found.needed_bytes,
    )


def test_nothing() -> None:
    assert scan(b"") == (-1, -1, 0, 0, False, 0)


def test_golden_batch() -> None:
    assert scan(GOLDEN) == (2, -1, 84, 1, False, 0)


def test_the_next_offset_counts_the_whole_range_of_the_last_batch() -> None:
    """F-05: baseOffset + lastOffsetDelta + 1, also for a batch that compaction emptied."""
    emptied = batch(10, last_offset_delta=9, count=0, length=49)[:61]
    assert scan(GOLDEN + emptied) == (20, 5, 145, 2, False, 0)
    assert scan(batch(0) + batch(10, leader_epoch=6)) == (20, 6, 146, 2, False, 0)


def test_reference_bytes_of_an_emptied_batch() -> None:
    """F-05: offsets 10 to 19 without a record."""
    assert scan(EMPTIED) == (20, 4, 61, 1, False, 0)


@pytest.mark.parametrize("data", [LEGACY_V0, LEGACY_V1])
def test_entries_of_magic_0_and_1(data: bytes) -> None:
    """D-18: their offset is absolute, for a wrapper that of its last record."""
    assert scan(data) == (102, -1, len(data), 2, False, 0)


def test_mixed_magics() -> None:
    """D-18: one slice may hold all of them."""
    assert scan(LEGACY_V0 + LEGACY_V1 + batch(200))[:4] == (210, 5, 55 + 71 + 73, 5)


def test_a_partial_batch_ends_the_walk_silently() -> None:
    """D-05: cut anywhere, the batch before it counts and the cut one does not."""
    second = batch(10)
    for cut in range(len(second)):
        needed = len(second) if cut >= 12 else 0
        assert scan(GOLDEN + second[:cut]) == (2, -1, 84, 1, False, needed)


def test_no_complete_batch_tells_the_size_needed() -> None:
    """B-04: a batch too large for the response."""
    assert scan(batch(0, length=5_000_000)) == (-1, -1, 0, 0, False, 5_000_012)


IMPOSSIBLE = {
    "magic 3": batch(10, magic=3),
    "magic -1": batch(10, magic=-1),
    "length 48": batch(10, length=48),
    "length 0": batch(10, length=0),
    "length -1": batch(10, length=-1),
    "length of least int32": batch(10, length=-(2**31)),
    "length + 12 beyond int32": batch(10, length=2**31 - 12),
    "length of greatest int32": batch(10, length=2**31 - 1),
    "base offset -1": batch(-1),
    "lastOffsetDelta -1": batch(10, last_offset_delta=-1),
    "last offset beyond int64": batch(2**63 - 5, last_offset_delta=9),
    "next offset beyond int64": batch(2**63 - 10, last_offset_delta=9),
    "recordsCount -1": batch(10, count=-1),
    "magic 0 too short": struct.pack(">qiIb", 10, 13, 0, 0) + bytes(20),
    "magic 1 too short": struct.pack(">qiIb", 10, 21, 0, 1) + bytes(20),
    "magic 0 offset -1": struct.pack(">qiIb", -1, 14, 0, 0) + bytes(20),
    "magic 0 offset without next": struct.pack(">qiIb", 2**63 - 1, 14, 0, 0) + bytes(20),
}


@pytest.mark.parametrize("data", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_header_ends_the_walk_loudly(data: bytes) -> None:
    """D-07, D-16: the batches before it still count."""
    assert scan(GOLDEN + data) == (2, -1, 84, 1, True, 0)
    assert scan(data) == (-1, -1, 0, 0, True, 0)


def test_the_greatest_offsets() -> None:
    """D-07: the last offset whose successor still fits."""
    assert scan(batch(2**63 - 11, last_offset_delta=9))[0] == 2**63 - 1


def test_offsets_that_go_back_do_not_move_the_position_back() -> None:
    """F-11: a fetch position follows the greatest offset of a response."""
    assert scan(batch(100, leader_epoch=7) + batch(50, leader_epoch=6))[:4] == (110, 7, 146, 2)


def test_a_large_slice_is_walked_the_same_way() -> None:
    many = b"".join(batch(10 * i) for i in range(20_000))
    assert len(many) > 1 << 20
    assert scan(many + batch(200_000)[:30]) == (200_000, 5, len(many), 20_000, False, 73)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, 85), (5, 4), (2**40, 2**40)])
def test_slices_outside_the_frame(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not within"):
        scan_batches(copy_of(GOLDEN), start, end)
