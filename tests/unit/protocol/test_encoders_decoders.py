"""Readers and writers made from declarations: every feature once, and what hostile bytes do."""

from __future__ import annotations

import pytest

from kfast._native.buffers import copy_of
from kfast.errors import ProtocolError, UnsupportedVersionError
from kfast.protocol.decoders import message_decoder
from tests.unit.protocol.toys import Everything, Inner, Small

FULL = Everything(
    flag=True,
    tiny=-1,
    port=65535,
    ratio=-0.5,
    topic_id=bytes(range(16)),
    blob=b"xyz",
    numbers=[1, -2],
    ids=[bytes(range(1, 17))],
    names=["a", ""],
    inners=[Inner(1, "one", "n"), Inner(-2, "", "")],
    single=Inner(3, "three"),
    maybe=Inner(4, None),
    strict=5,
    loose=6,
    tagged_number=8,
    tagged_struct=Inner(9, "nine"),
    tagged_maybe=Inner(10, "ten"),
    tagged_list=[Inner(11, "eleven", "deep")],
)


def small(tail: str) -> bytes:
    """Return a Small of version 1 with number 5, no names, and a tag section."""
    return bytes.fromhex("0005" + "01" + tail)


# --- round trips ----------------------------------------------------------------------------------


def test_version_3_carries_everything() -> None:
    encoded = FULL.encode(3)
    assert Everything.decode(encoded, 3) == FULL


def test_bytes_of_every_feature() -> None:
    encoded = FULL.encode(3).hex()
    positional = (
        "01ffffffbfe0000000000000"  # flag, tiny, port, ratio
        "000102030405060708090a0b0c0d0e0f"  # topic_id
        "0478797a"  # blob
        "0300000001fffffffe"  # numbers
        "020102030405060708090a0b0c0d0e0f10"  # ids
        "03026101"  # names
        "03"
        "0001"
        "046f6e65"
        "010002026e"
        "fffe"
        "01"
        "00"  # inners, the first with a tag
        "0003"
        "067468726565"
        "00"  # single
        "01"
        "0004"
        "00"
        "00"  # maybe: present, then the struct
        "00000000000000050000000000000006"  # strict, loose
    )
    tags = (
        "04"
        "0004"
        "00000008"
        "0108"
        "0009"
        "056e696e65"
        "00"  # not nullable: no prefix
        "0208"
        "01"
        "000a"
        "0474656e"
        "00"  # nullable: a prefix
        "0512"
        "02"
        "000b"
        "07656c6576656e"
        "01"
        "0005"
        "0564656570"
    )
    assert encoded == positional + tags


def test_null_structs() -> None:
    value = Everything(single=Inner(), maybe=None, numbers=None, blob=None, tagged_maybe=None)
    encoded = value.encode(3)
    decoded = Everything.decode(encoded, 3)
    assert decoded == value
    assert encoded[-18] == 0xFF  # maybe, ahead of strict, loose and the empty tag section


def test_any_negative_prefix_means_null() -> None:
    encoded = bytearray(Everything().encode(3))
    encoded[-18] = 0x80
    assert Everything.decode(bytes(encoded), 3).maybe is None


def test_version_1_has_no_tags_and_defaults_elsewhere() -> None:
    value = Everything(
        flag=True, numbers=[3], names=["x"], inners=[Inner(2, "t")], loose=9, tagged_number=9
    )
    decoded = Everything.decode(value.encode(1), 1)
    assert (decoded.numbers, decoded.names, decoded.inners) == ([3], ["x"], [Inner(2, "t")])
    assert (decoded.strict, decoded.loose, decoded.tagged_number) == (-1, -1, 7)
    assert (decoded.ids, decoded.single, decoded.tagged_list) == ([], Inner(), [])


def test_defaults_of_absent_fields_are_not_shared() -> None:
    encoded = Everything(names=["x"]).encode(1)
    one, other = Everything.decode(encoded, 1), Everything.decode(encoded, 1)
    one.tagged_list.append(Inner())
    one.single.number = 3
    assert (other.tagged_list, other.single) == ([], Inner())


def test_a_tagged_field_at_its_default_is_left_out() -> None:
    assert Small(5, [], 0).encode(1) == small("00")
    assert Small(5, [], 1).encode(1) == small("01030400000001")


def test_long_scalar_arrays() -> None:
    for count in (0, 1, 63, 64, 65, 1000):
        value = Everything(numbers=list(range(count)))
        for version in (1, 2):
            assert Everything.decode(value.encode(version), version).numbers == value.numbers


def test_memory_may_be_any_buffer_and_start_anywhere() -> None:
    encoded = b"??" + FULL.encode(3)
    for buf in (encoded, bytearray(encoded), memoryview(encoded), copy_of(encoded)):
        assert Everything.decode(buf, 3, 2) == FULL


def test_decoders_are_made_once() -> None:
    assert message_decoder(Everything, 3, True) is message_decoder(Everything, 3, True)


# --- what a version cannot carry ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "version", "field"),
    [
        (Everything(strict=5), 1, "strict"),
        (Everything(tagged_list=[Inner()]), 1, "tagged_list"),
        (Everything(single=Inner(1)), 1, "single"),
        (Everything(maybe=Inner()), 2, "maybe"),
        (Everything(numbers=None), 1, "numbers"),
        (Everything(inners=[Inner(0, "", "note")]), 1, "note"),
    ],
)
def test_a_value_the_version_cannot_carry(value: Everything, version: int, field: str) -> None:
    with pytest.raises(UnsupportedVersionError) as raised:
        value.encode(version)
    assert field in str(raised.value)


def test_ignorable_values_are_dropped() -> None:
    value = Everything(loose=5, ids=[bytes(16)], inners=[Inner(0, "")], tagged_struct=Inner(1))
    assert Everything.decode(value.encode(1), 1).loose == -1


@pytest.mark.parametrize("version", [-1, 0, 4])
def test_versions_out_of_range(version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        FULL.encode(version)
    with pytest.raises(UnsupportedVersionError):
        Everything.decode(b"", version)


@pytest.mark.parametrize(
    "value",
    [
        Everything(tiny=128),
        Everything(topic_id=b"short"),
        Everything(ids=[b"short"]),
        Everything(names=["\ud800"]),
        Everything(names=["x" * 40_000]),
    ],
)
def test_values_that_do_not_fit_their_type(value: Everything) -> None:
    with pytest.raises(ProtocolError):
        value.encode(2)


# --- bytes that are wrong -------------------------------------------------------------------------


def test_unknown_tags_are_skipped() -> None:
    """D-22: a newer broker may send unknown tags before and after known ones."""
    decoded = Small.decode(small("03" + "0103aaaaaa" + "030400000009" + "7f00"), 1)
    assert decoded == Small(5, [], 9)


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param("02" + "030400000009" + "030400000009", id="tag twice"),
        pytest.param("02" + "0500" + "0400", id="tags descending"),
        pytest.param("01" + "03050000000900", id="known tag does not use its size"),
        pytest.param("01" + "0303000000", id="known tag needs more than its size"),
        pytest.param("01" + "0904aabbcc", id="unknown tag beyond the end"),
        pytest.param("01" + "0304000000", id="known tag cut short"),
        pytest.param("02" + "030400000009", id="a tag too few"),
        pytest.param("ffffffff0f", id="four billion tags"),
        pytest.param("", id="no tag section"),
    ],
)
def test_bad_tag_sections(tail: str) -> None:
    """D-22: tags out of order, wrong sizes and missing bytes are protocol errors."""
    with pytest.raises(ProtocolError):
        Small.decode(small(tail), 1)


def test_tags_inside_array_elements() -> None:
    """D-22: every struct has a tag section of its own, array elements included."""
    plain = Everything(inners=[Inner(1, "a"), Inner(2, "b")]).encode(3)
    with_tags = plain.replace(b"\x00\x01\x02a\x00", b"\x00\x01\x02a\x01\x21\x02zz")
    assert with_tags != plain
    assert Everything.decode(with_tags, 3) == Everything.decode(plain, 3)


def test_null_for_a_non_nullable_field() -> None:
    """D-22: null where the schema does not allow it."""
    with pytest.raises(ProtocolError) as raised:
        Small.decode(bytes.fromhex("00050000"), 1)
    assert "names" in str(raised.value)
    with pytest.raises(ProtocolError):
        Small.decode(bytes.fromhex("0005ffffffff"), 0)


@pytest.mark.parametrize("count", ["00000002", "7fffffff", "80000000", "fffffffe"])
def test_a_count_beyond_the_bytes_left(count: str) -> None:
    """D-21: a claimed count is compared with the bytes left before a list is made."""
    with pytest.raises(ProtocolError):
        Small.decode(bytes.fromhex("0005" + count + "0000"), 0)


@pytest.mark.parametrize("encoded", ["ffffffff0f", "8080808008", "7f"])
def test_a_compact_count_beyond_the_bytes_left(encoded: str) -> None:
    """D-21: the same for compact counts."""
    with pytest.raises(ProtocolError):
        Small.decode(bytes.fromhex("0005" + encoded + "00"), 1)


def test_a_scalar_array_beyond_the_bytes_left() -> None:
    """D-21: the same for arrays of integers, long and short."""
    encoded = Everything(numbers=[1, 2]).encode(1)
    at = encoded.index(b"\x00\x00\x00\x02\x00\x00\x00\x01")
    for count in (40, 100, 2**31 - 1):
        with pytest.raises(ProtocolError):
            Everything.decode(encoded[:at] + count.to_bytes(4, "big") + encoded[at + 4 :], 1)


def test_every_cut_is_a_protocol_error() -> None:
    """D-22: missing bytes."""
    for version in (1, 2, 3):
        value = FULL if version == 3 else Everything(names=["abc"], inners=[Inner(1, "x")])
        encoded = value.encode(version)
        for end in range(len(encoded)):
            with pytest.raises(ProtocolError):
                Everything.decode(encoded[:end], version)


def test_bytes_behind_the_message_are_tolerated() -> None:
    """D-22: unread trailing bytes."""
    assert Everything.decode(FULL.encode(3) + b"\xff" * 9, 3) == FULL


def test_text_that_is_not_utf8() -> None:
    """D-22: only KafkaError comes out of bytes."""
    with pytest.raises(ProtocolError) as raised:
        Small.decode(bytes.fromhex("000500000001" + "0002c328"), 0)
    assert "UTF-8" in str(raised.value)
