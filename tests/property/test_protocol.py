"""Properties of the protocol layer: what is written is read back, and no bytes break anything."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfast._native.buffers import copy_of
from kfast._native.fetch_response import FetchResponseView, parse_fetch_response, scan_batches
from kfast._native.frame import FrameReceiver
from kfast._native.record_batch import SliceDecoder
from kfast.errors import KafkaError, ProtocolError
from kfast.protocol.headers import decode_response_header
from kfast.protocol.message import Message
from kfast.protocol.messages.fetch import FetchResponse
from kfast.protocol.primitives import read_uvarint, write_uvarint
from kfast.testing.batches import Record
from kfast.testing.headers import decode_request_header
from tests.property.protocol_messages import (
    EVERY_VERSION,
    EVERY_VERSION_IDS,
    damaged,
    messages,
)
from tests.reference.batches import encode_record_batch
from tests.soaking import examples

FETCH_VERSIONS = range(FetchResponse.MIN_VERSION, FetchResponse.MAX_VERSION + 1)

every_message_and_version = pytest.mark.parametrize(
    ("cls", "version"), EVERY_VERSION, ids=EVERY_VERSION_IDS
)


# --- messages -------------------------------------------------------------------------------------


@every_message_and_version
@examples(25)
@given(data=st.data())
def test_what_is_encoded_is_decoded(cls: type[Message], version: int, data: st.DataObject) -> None:
    """D-22, D-23: round trip, anywhere in a buffer, whatever follows."""
    message = data.draw(messages(cls, version))
    encoded = message.encode(version)
    before, behind = data.draw(st.binary(max_size=5)), data.draw(st.binary(max_size=5))
    assert cls.decode(encoded, version) == message
    assert cls.decode(copy_of(before + encoded + behind), version, len(before)) == message


@every_message_and_version
@examples(15)
@given(data=st.data())
def test_a_cut_message_is_a_protocol_error(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    """D-22: missing bytes."""
    encoded = data.draw(messages(cls, version)).encode(version)
    if not encoded:
        return
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ProtocolError):
        cls.decode(encoded[:cut], version)


@every_message_and_version
@examples(40)
@given(data=st.data())
def test_damage_gives_a_message_or_a_kafka_error(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    """D-20, D-22: damaged bytes never raise anything but KafkaError."""
    encoded = data.draw(messages(cls, version)).encode(version)
    try:
        message = cls.decode(data.draw(damaged(encoded)), version)
    except KafkaError:
        return
    assert isinstance(message, cls)


@examples(300)
@given(st.sampled_from(EVERY_VERSION), st.binary(max_size=60))
def test_random_bytes(cls_and_version: tuple[type[Message], int], data: bytes) -> None:
    """D-20, D-22: no bytes raise anything but KafkaError."""
    cls, version = cls_and_version
    for decode in (
        lambda: cls.decode(data, version),
        lambda: decode_request_header(data),
        lambda: decode_response_header(data, cls.API_KEY, version),
    ):
        try:
            decode()
        except KafkaError:
            continue


@examples(200)
@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_uvarint(value: int, behind: bytes) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert read_uvarint(bytes(out) + behind, 0) == (value, len(out))
    assert len(out) == max(1, -(-value.bit_length() // 7))


# --- the two readers of Fetch responses -----------------------------------------------------------


def as_plain(response: FetchResponse, version: int) -> dict[str, Any]:
    """Return what the compiled reader shows of a response, taken from the dataclass."""
    has_ids = version >= 13
    return {
        "head": (response.throttle_time_ms, response.error_code, response.session_id),
        "endpoints": [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints],
        "partitions": [
            (
                None if has_ids else topic.topic,
                topic.topic_id if has_ids else None,
                p.partition_index,
                p.error_code,
                (p.high_watermark, p.last_stable_offset, p.log_start_offset),
                tuple((a.producer_id, a.first_offset) for a in p.aborted_transactions or ()),
                p.preferred_read_replica,
                unless_default((p.current_leader.leader_id, p.current_leader.leader_epoch)),
                unless_default((p.diverging_epoch.epoch, p.diverging_epoch.end_offset)),
                p.records or b"",
            )
            for topic in response.responses
            for p in topic.partitions
        ],
    }


def unless_default(pair: tuple[int, int]) -> tuple[int, int] | None:
    return None if pair == (-1, -1) else pair


def view_as_plain(view: FetchResponseView, frame: bytes) -> dict[str, Any]:
    return {
        "head": (view.throttle_time_ms, view.error_code, view.session_id),
        "endpoints": view.node_endpoints,
        "partitions": [
            (
                p.topic,
                p.topic_id,
                p.partition,
                p.error_code,
                (p.high_watermark, p.last_stable_offset, p.log_start_offset),
                p.aborted_transactions,
                p.preferred_read_replica,
                p.current_leader,
                p.diverging_epoch,
                frame[p.records_start : p.records_end],
            )
            for p in view.partitions
        ],
    }


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@examples(60)
@given(data=st.data())
def test_both_readers_agree(version: int, data: st.DataObject) -> None:
    """D-23: the compiled reader and the definition see the same response."""
    response = data.draw(messages(FetchResponse, version))
    frame = b"head" + response.encode(version) + data.draw(st.binary(max_size=3))
    view = parse_fetch_response(copy_of(frame), 4, version)
    assert view_as_plain(view, frame) == as_plain(response, version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@examples(120)
@given(data=st.data())
def test_both_readers_agree_on_damage(version: int, data: st.DataObject) -> None:
    """D-20, D-22: both refuse the same bytes with ProtocolError and agree on all others."""
    frame = data.draw(damaged(data.draw(messages(FetchResponse, version)).encode(version)))
    expected: dict[str, Any] | None
    try:
        expected = as_plain(FetchResponse.decode(frame, version), version)
    except ProtocolError:
        expected = None
    if expected is None:
        with pytest.raises(ProtocolError):
            parse_fetch_response(copy_of(frame), 0, version)
    else:
        view = parse_fetch_response(copy_of(frame), 0, version)
        assert view_as_plain(view, frame) == expected


# --- frames ---------------------------------------------------------------------------------------


@examples(150)
@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_frames_do_not_depend_on_how_they_are_split(
    bodies: list[bytes], data: st.DataObject
) -> None:
    """N-06: any split points give the same frames."""
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    receiver = FrameReceiver(40)
    received = [
        bytes(frame)
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for frame in receiver.feed(stream[start:end])
    ]
    assert received == bodies
    assert receiver.pending_bytes == 0


@examples(150)
@given(st.binary(max_size=60))
def test_a_receiver_takes_any_bytes(data: bytes) -> None:
    """D-21: every frame is whole and within the limit, or the size is refused."""
    receiver = FrameReceiver(30)
    try:
        frames = receiver.feed(data)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            receiver.next_view()
        return
    assert all(frame.size <= 30 for frame in frames)
    taken = sum(4 + frame.size for frame in frames)
    assert taken + receiver.pending_bytes == len(data)


# --- batch headers --------------------------------------------------------------------------------

NEAR_LIMITS = st.sampled_from([0, 1, 13, 14, 21, 22, 48, 49, 50, 2**31 - 13, 2**31 - 12, -1])
OFFSETS = st.integers(0, 1000) | st.sampled_from([-1, 2**63 - 1, 2**63 - 2, 2**63 - 11])


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Return the bytes of one batch, mostly a possible one."""
    magic = draw(st.sampled_from([2, 2, 2, 1, 0, 3, -1]))
    size = draw(st.integers(49, 70))
    length = draw(st.just(size) | NEAR_LIMITS)
    delta = draw(st.integers(0, 20) | st.sampled_from([-1, 2**31 - 1]))
    count = draw(st.integers(0, 20) | st.just(-1))
    head = struct.pack(">qiib", draw(OFFSETS), length, draw(st.integers(-1, 9)), magic)
    body = struct.pack(">Ihiqqqhii", 0, 0, delta, 0, 0, 0, 0, 0, count)
    return (head + body).ljust(size + 12, b"\x55")


def plain_scan(data: bytes) -> tuple[int, int, int, int, bool, int]:
    """Walk batch headers the obvious way."""
    next_offset, epoch, at, count = -1, -1, 0, 0
    while len(data) - at >= 12:
        base, length = struct.unpack_from(">qi", data, at)
        left = len(data) - at
        if left < 17:
            needed = length + 12 if length > 0 else 0
            return next_offset, epoch, at, count, False, needed
        batch_epoch, magic = struct.unpack_from(">ib", data, at + 12)
        if magic not in (0, 1, 2) or not (14, 22, 49)[magic] <= length <= 2**31 - 1 - 12:
            return next_offset, epoch, at, count, True, 0
        if left < length + 12:
            return next_offset, epoch, at, count, False, length + 12
        delta, records = 0, 0
        if magic == 2:
            (delta,) = struct.unpack_from(">i", data, at + 23)
            (records,) = struct.unpack_from(">i", data, at + 57)
        if base < 0 or delta < 0 or records < 0 or base + delta + 1 > 2**63 - 1:
            return next_offset, epoch, at, count, True, 0
        if base + delta + 1 > next_offset:
            next_offset, epoch = base + delta + 1, batch_epoch if magic == 2 else -1
        at += length + 12
        count += 1
    return next_offset, epoch, at, count, False, 0


@examples(500)
@given(st.lists(batches(), max_size=5), st.data())
def test_scan_agrees_with_the_obvious_walk(parts: list[bytes], data: st.DataObject) -> None:
    """D-05, D-07, F-05: next offset, complete bytes and verdict, also for damaged slices."""
    slice_ = b"".join(parts)
    slice_ = data.draw(st.just(slice_) | damaged(slice_))
    frame = copy_of(b"\x02" * 20 + slice_ + b"\x02" * 80)
    found = scan_batches(frame, 20, 20 + len(slice_))
    assert (
        found.next_offset,
        found.leader_epoch,
        found.complete_bytes,
        found.batches,
        found.is_corrupt,
        found.needed_bytes,
    ) == plain_scan(slice_)


REAL_BATCH = encode_record_batch([Record(key=b"k", value=b"v"), Record(value=b"w")])


@st.composite
def real_slices(draw: st.DrawFn) -> bytes:
    """Return decodable batches at ascending offsets, sometimes damaged, sometimes cut."""
    gaps = draw(st.lists(st.integers(0, 5), max_size=4))
    offsets = [2 * i + sum(gaps[: i + 1]) for i in range(len(gaps))]
    slice_ = b"".join(offset.to_bytes(8, "big") + REAL_BATCH[8:] for offset in offsets)
    return draw(st.just(slice_) | damaged(slice_))


@examples(400)
@given(real_slices())
def test_scan_agrees_with_the_decoder(slice_: bytes) -> None:
    """F-05, D-06: the offset fetched next is where decoding will stand, unless decoding raises."""
    frame = copy_of(slice_)
    found = scan_batches(frame, 0, frame.size)
    decoder = SliceDecoder(frame, 0, frame.size, topic="t", partition=0, position=0)
    try:
        while not decoder.finished:
            decoder.decode(1 << 20)
    except KafkaError:
        assert decoder.next_offset <= max(found.next_offset, 0)
        return
    assert not found.is_corrupt
    assert decoder.next_offset == max(found.next_offset, 0)
    assert found.batches == 0 or decoder.leader_epoch == found.leader_epoch
