"""The data of group members: golden bytes, versions, hostile input."""

from __future__ import annotations

import pytest

from kfast.errors import ProtocolError
from kfast.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kfast.types import TopicPartition

OWNED = [TopicPartition("t1", 0), TopicPartition("t1", 2), TopicPartition("t2", 1)]
SUBSCRIPTION = ConsumerProtocolSubscription(["t1", "t2"], b"u", OWNED, 3, "r1")

SUBSCRIPTIONS = {
    0: "00000000000200027431000274320000000175",
    1: "000100000002000274310002743200000001750000000200027431000000020000000000000002000274320000"
    "000100000001",
    2: "000200000002000274310002743200000001750000000200027431000000020000000000000002000274320000"
    "00010000000100000003",
    3: "000300000002000274310002743200000001750000000200027431000000020000000000000002000274320000"
    "0001000000010000000300027231",
}
NOTHING_OWNED = "0003000000020002743100027432ffffffff00000000ffffffffffff"
ASSIGNMENTS = {
    0: "00000000000200027431000000020000000000000002000274320000000100000001ffffffff",
    3: "00030000000200027431000000020000000000000002000274320000000100000001ffffffff",
}
EMPTY_ASSIGNMENT = "000300000000ffffffff"


@pytest.mark.parametrize("version", range(4))
def test_subscription_bytes(version: int) -> None:
    """G-19: the bytes of the Java client, with what each version carries."""
    golden = bytes.fromhex(SUBSCRIPTIONS[version])
    assert SUBSCRIPTION.encode(version) == golden
    assert ConsumerProtocolSubscription.decode(golden) == ConsumerProtocolSubscription(
        ["t1", "t2"],
        b"u",
        OWNED if version >= 1 else [],
        3 if version >= 2 else -1,
        "r1" if version >= 3 else None,
    )


def test_a_subscription_without_anything_owned() -> None:
    bare = ConsumerProtocolSubscription(["t1", "t2"])
    assert bare.encode().hex() == NOTHING_OWNED
    assert ConsumerProtocolSubscription.decode(bytes.fromhex(NOTHING_OWNED)) == bare


def test_topics_and_partitions_are_written_sorted() -> None:
    shuffled = ConsumerProtocolSubscription(["t2", "t1"], b"u", [*reversed(OWNED)], 3, "r1")
    assert shuffled.encode() == SUBSCRIPTION.encode()


@pytest.mark.parametrize("version", [0, 3])
def test_assignment_bytes(version: int) -> None:
    golden = bytes.fromhex(ASSIGNMENTS[version])
    assert ConsumerProtocolAssignment([*reversed(OWNED)]).encode(version) == golden
    assert ConsumerProtocolAssignment.decode(golden) == ConsumerProtocolAssignment(OWNED)


def test_an_empty_assignment() -> None:
    """G-15: written in full; a zero-length one means the same."""
    empty = ConsumerProtocolAssignment([])
    assert empty.encode().hex() == EMPTY_ASSIGNMENT
    assert ConsumerProtocolAssignment.decode(bytes.fromhex(EMPTY_ASSIGNMENT)) == empty
    assert ConsumerProtocolAssignment.decode(b"") == empty


def test_a_later_version_is_read_as_the_last_known() -> None:
    for version in (4, 0x7FFF):
        later = version.to_bytes(2, "big") + SUBSCRIPTION.encode()[2:] + b"more"
        assert ConsumerProtocolSubscription.decode(later) == SUBSCRIPTION
    later = b"\x00\x09" + bytes.fromhex(ASSIGNMENTS[3])[2:] + b"more"
    assert ConsumerProtocolAssignment.decode(later).partitions == OWNED


@pytest.mark.parametrize("version", [-1, 4])
def test_versions_that_cannot_be_written(version: int) -> None:
    with pytest.raises(ValueError, match="version"):
        SUBSCRIPTION.encode(version)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "0 bytes"),
        (b"\x00", "1 bytes"),
        (b"\xff\xff" + SUBSCRIPTION.encode()[2:], "version is -1"),
        (b"\x00\x00\x7f\xff\xff\xff", "2147483647 elements"),
        (b"\x00\x00\xff\xff\xff\xfe", "-2"),
        (b"\x00\x00\xff\xff\xff\xff", "null"),
        (b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xfe\xff\xff\xff\xff", "UTF-8"),
        (b"\x00\x00\x00\x00\x00\x01\x00\x7fab\xff\xff\xff\xff", "claims 127 bytes"),
        (b"\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff", "claims 2147483647 bytes"),
    ],
)
def test_hostile_subscriptions(data: bytes, cause: str) -> None:
    """G-19: a kfast error, and nothing is allocated for what is only claimed."""
    with pytest.raises(ProtocolError, match="malformed subscription of a group member") as caught:
        ConsumerProtocolSubscription.decode(data)
    assert cause in str(caught.value)


def test_every_cut_is_refused() -> None:
    """G-19: there is no shorter reading of any of the golden bytes."""
    for data in (SUBSCRIPTION.encode(version) for version in range(4)):
        for end in range(len(data)):
            with pytest.raises(ProtocolError):
                ConsumerProtocolSubscription.decode(data[:end])
    data = bytes.fromhex(ASSIGNMENTS[3])
    for end in range(1, len(data)):
        with pytest.raises(ProtocolError, match="malformed assignment"):
            ConsumerProtocolAssignment.decode(data[:end])


def raw_partitions(*topics: tuple[bytes, list[int]]) -> bytes:
    out = len(topics).to_bytes(4, "big")
    for name, partitions in topics:
        out += len(name).to_bytes(2, "big") + name + len(partitions).to_bytes(4, "big")
        out += b"".join(partition.to_bytes(4, "big", signed=True) for partition in partitions)
    return out


def test_partitions_that_cannot_be_meant_are_left_out() -> None:
    """G-19: negative ones, ones named twice, topics named twice."""
    partitions = raw_partitions((b"t", [1, -1, 1, 0]), (b"u", []), (b"t", [0, 2, -(2**31)]))
    expected = [TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("t", 2)]
    topics = b"\x00\x00\x00\x03\x00\x01t\x00\x01u\x00\x01t"
    subscription = b"\x00\x01" + topics + b"\xff\xff\xff\xff" + partitions
    decoded = ConsumerProtocolSubscription.decode(subscription)
    assert decoded.topics == ["t", "u"]
    assert decoded.owned_partitions == expected
    assignment = b"\x00\x01" + partitions + b"\xff\xff\xff\xff"
    assert ConsumerProtocolAssignment.decode(assignment).partitions == expected


def test_values_that_do_not_fit() -> None:
    too_long = ConsumerProtocolSubscription(["t" * 40_000])
    with pytest.raises(ProtocolError, match="too long"):
        too_long.encode()
    with pytest.raises(ProtocolError, match="cannot encode"):
        ConsumerProtocolAssignment([TopicPartition("t", 2**31)]).encode()
