"""read_committed inside one slice: what is dropped, what stays, what nothing disturbs (KIP-98)."""

from __future__ import annotations

import struct

import pytest

from kfast.errors import CorruptRecordError
from kfast.testing.batches import ABORT, COMMIT, Record
from tests.reference import golden
from tests.reference.batches import encode_batch_header, encode_control_batch, encode_record_batch
from tests.reference.compression import Codec
from tests.reference.native import decode


def txn(offset: int, producer: int, *, n: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """A transactional batch; values name offset and producer."""
    records = [Record(value=b"%d/%d" % (offset + i, producer)) for i in range(n)]
    return encode_record_batch(records, offset, codec, transactional=True, producer_id=producer)


def plain(offset: int, producer: int = -1) -> bytes:
    return encode_record_batch([Record(value=b"p")], offset, producer_id=producer)


def abort(offset: int, producer: int) -> bytes:
    return encode_control_batch(offset, producer, ABORT)


def commit(offset: int, producer: int) -> bytes:
    return encode_control_batch(offset, producer, COMMIT)


def offsets(data: bytes, aborted: list[tuple[int, int]], position: int = 0) -> list[int]:
    """Offsets delivered under read_committed; chunks of any size must agree."""
    seen = []
    for max_bytes in (1, 1 << 20):
        got = decode(data, position, aborted=aborted, read_committed=True, max_bytes=max_bytes)
        assert got.error is None
        seen.append([record.offset for record in got.records])
    assert seen[0] == seen[1]
    return seen[0]


def test_golden_transactions() -> None:
    """T-01, T-02: nothing of an aborted transaction, all of a committed one, never a marker."""
    data = golden.TRANSACTION_DATA
    got = decode(data + golden.ABORT_MARKER, aborted=[(9, 3)], read_committed=True)
    assert (got.records, got.next_offset) == ([], 6)
    got = decode(data + golden.COMMIT_MARKER, read_committed=True)
    assert [r.value for r in got.records] == [b"a", b"b"]
    assert got.next_offset == 6


@pytest.mark.parametrize("codec", list(Codec))
def test_aborted_records_are_dropped_in_every_codec(codec: Codec) -> None:
    """T-01: only under read_committed."""
    data = txn(0, 1, n=3, codec=codec) + abort(3, 1) + txn(4, 1, codec=codec) + commit(5, 1)
    assert offsets(data, [(1, 0)]) == [4]
    assert [r.offset for r in decode(data, aborted=[(1, 0)]).records] == [0, 1, 2, 4]


def test_aborted_batches_are_not_decompressed() -> None:
    """T-01: what is dropped need not even be a stream; its checksum still counts."""
    broken = encode_record_batch(
        [Record(value=b"v")],
        0,
        Codec.ZSTD,
        transactional=True,
        producer_id=1,
        payload=b"not zstd",
    )
    assert offsets(broken + abort(1, 1), [(1, 0)]) == []
    assert isinstance(decode(broken, read_committed=True).error, CorruptRecordError)
    bent = bytearray(broken)
    bent[-1] ^= 1
    got = decode(bytes(bent), aborted=[(1, 0)], read_committed=True)
    assert isinstance(got.error, CorruptRecordError)


@pytest.mark.parametrize("read_committed", [True, False])
@pytest.mark.parametrize("kind", [ABORT, COMMIT, 2, 5, 99, -1])
def test_control_batches_are_never_delivered(read_committed: bool, kind: int) -> None:
    """T-02: of any type, in either mode; the position moves past them."""
    data = encode_control_batch(7, 1, kind)
    got = decode(data, aborted=[(1, 0)], read_committed=read_committed)
    assert (got.records, got.next_offset, got.error) == ([], 8, None)


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_and_headed_markers_count(codec: Codec) -> None:
    """T-02: no producer writes them, but the format has them."""
    marker = encode_record_batch(
        [Record(struct.pack(">hh", 0, ABORT), bytes(6), (("h", b"x"),))],
        1,
        codec,
        transactional=True,
        control=True,
        producer_id=1,
    )
    assert offsets(txn(0, 1) + marker + txn(2, 1), [(1, 0)]) == [2]


def test_the_list_is_sorted_here() -> None:
    """T-03: an entry counts from the batch that ends at or after its first offset."""
    data = txn(0, 2) + txn(1, 1) + abort(2, 1) + abort(3, 2) + txn(4, 1) + abort(5, 1)
    data += txn(6, 2) + commit(7, 2)
    entries = [(1, 4), (2, 0), (1, 1)]
    assert offsets(data, entries) == offsets(data, entries[::-1]) == [6]
    inside = txn(10, 3, n=5) + abort(15, 3)
    assert offsets(inside, [(3, 14)]) == []
    assert offsets(inside, [(3, 15)]) == [10, 11, 12, 13, 14]


def test_markers_without_an_entry_change_nothing() -> None:
    """T-04: of an empty transaction, of an unknown producer, twice for one entry."""
    data = abort(0, 5) + txn(1, 1) + abort(2, 7) + txn(3, 1) + abort(4, 1) + abort(5, 1)
    data += txn(6, 1) + commit(7, 1)
    assert offsets(data, [(1, 1)]) == [6]
    assert offsets(data, []) == [1, 3, 6]


def test_transactions_of_one_producer_are_told_apart() -> None:
    """T-05: one begins where its marker is, one follows another at once."""
    data = txn(0, 1) + abort(1, 1) + txn(2, 1) + commit(3, 1) + txn(4, 1) + abort(5, 1)
    assert offsets(data, [(1, 0), (1, 4)]) == [2]
    empty = abort(0, 1) + txn(1, 1) + commit(2, 1)
    assert offsets(empty, [(1, 0)]) == [1]


def test_only_abort_markers_end_it_and_only_transactions_are_dropped() -> None:
    """T-06: COMMIT and unknown markers do not, and plain batches of the same producer stay."""
    data = txn(0, 1) + commit(1, 1) + encode_control_batch(2, 1, 6) + plain(3, 1) + txn(4, 1)
    data += abort(5, 1) + txn(6, 1)
    assert offsets(data, [(1, 0)]) == [3, 6]


def test_state_ends_with_the_slice() -> None:
    """T-07: the next response starts afresh."""
    assert offsets(txn(0, 1), [(1, 0)]) == []
    assert offsets(txn(1, 1), []) == [1]
    assert [r.offset for r in decode(txn(0, 1), aborted=[(1, 0)]).records] == [0]


def test_nothing_but_aborted_data_is_progress() -> None:
    """T-08: no error, whatever the amount, and the position moves."""
    data = b"".join(txn(i, 1) for i in range(2000)) + abort(2000, 1)
    got = decode(data, aborted=[(1, 0)], read_committed=True, max_bytes=1)
    assert (got.records, got.next_offset, got.error) == ([], 2001, None)


def test_compaction_of_transactions() -> None:
    """T-09: emptied data, emptied markers, markers gone."""
    emptied = encode_batch_header(
        b"", base_offset=0, attributes=0x10, last_offset_delta=4, producer_id=1
    )
    gone = encode_batch_header(
        b"", base_offset=5, attributes=0x30, last_offset_delta=0, producer_id=1
    )
    assert offsets(emptied + gone + txn(6, 1), []) == [6]
    assert offsets(emptied + abort(5, 1) + txn(6, 1), [(1, 2)]) == [6]
    # The marker was compacted away, so the entry stays open, as in Java.
    assert offsets(txn(0, 1) + gone + txn(6, 1), [(1, 0)]) == []


def test_a_marker_before_the_position_still_ends_its_transaction() -> None:
    """T-05: a broker may send batches from before the position."""
    data = txn(0, 1) + abort(1, 1) + txn(2, 1) + commit(3, 1)
    assert offsets(data, [(1, 0)], position=2) == [2]


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_marker_that_cannot_be_read_is_corrupt(key: bytes | None) -> None:
    """D-06: where its type matters."""
    data = encode_record_batch(
        [Record(key, b"")], 0, transactional=True, control=True, producer_id=1
    )
    got = decode(data, aborted=[(1, 0)], read_committed=True)
    assert isinstance(got.error, CorruptRecordError)
    assert decode(data).error is None


def test_long_lists_are_no_trouble() -> None:
    """T-08: a hundred thousand entries, most of them for nothing."""
    entries = [(producer, offset) for offset, producer in enumerate(range(100_000, 0, -1))]
    data = txn(200_000, 1) + abort(200_001, 1) + txn(200_002, 1) + txn(200_003, 2)
    assert offsets(data, entries) == [200_002]
