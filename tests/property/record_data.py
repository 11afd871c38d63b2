"""Strategies for record data: records, batches of every format and codec, whole slices."""

from __future__ import annotations

from hypothesis import strategies as st

from kfast.testing.batches import ABORT, COMMIT, Record
from tests.reference.batches import encode_control_batch, encode_message_set, encode_record_batch
from tests.reference.compression import (
    Codec,
    compress,
    gzip_compress,
    lz4_compress,
    snappy_raw,
    snappy_xerial,
    zstd_compress,
)

PRODUCERS = (1, 2, 9)

blobs = st.none() | st.binary(max_size=12) | st.binary(min_size=60, max_size=200)
header_lists = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3
).map(tuple)
timestamps = st.integers(-1, 2**42) | st.integers(0, 300)


@st.composite
def record_lists(
    draw: st.DrawFn, *, with_headers: bool = True, min_size: int = 1, max_size: int = 8
) -> list[Record]:
    """Records in offset order, with holes."""
    size = draw(st.integers(min_size, max_size))
    has_headers = with_headers and draw(st.booleans())
    delta = -1
    records = []
    for _ in range(size):
        delta += draw(st.integers(1, 3) | st.just(1))
        records.append(
            Record(
                key=draw(blobs),
                value=draw(blobs),
                headers=draw(header_lists) if has_headers else (),
                timestamp=draw(timestamps),
                offset_delta=delta,
            )
        )
    return records


@st.composite
def record_batches(draw: st.DrawFn, base_offset: int = 0) -> tuple[bytes, int]:
    """A batch of magic 2 and the offset after it."""
    records = draw(record_lists())
    tail = draw(st.integers(0, 3))
    last_delta = (records[-1].offset_delta or 0) + tail
    batch = encode_record_batch(
        records,
        base_offset,
        draw(st.sampled_from(Codec)),
        leader_epoch=draw(st.integers(-1, 5)),
        log_append_time=draw(st.none() | st.integers(0, 2**42)),
        delete_horizon=draw(st.none() | st.integers(0, 1000)),
        transactional=draw(st.booleans()),
        producer_id=draw(st.sampled_from((-1, *PRODUCERS))),
        last_offset_delta=last_delta,
    )
    return batch, base_offset + last_delta + 1


@st.composite
def emptied_batches(draw: st.DrawFn, base_offset: int = 0) -> tuple[bytes, int]:
    """What compaction leaves of a batch that must stay for its producer's sake."""
    delta = draw(st.integers(0, 9))
    batch = encode_record_batch(
        [], base_offset, producer_id=draw(st.sampled_from(PRODUCERS)), last_offset_delta=delta
    )
    return batch, base_offset + delta + 1


@st.composite
def markers(draw: st.DrawFn, base_offset: int = 0) -> tuple[bytes, int]:
    """A transaction marker, or a control record of another type."""
    batch = encode_control_batch(
        base_offset, draw(st.sampled_from(PRODUCERS)), draw(st.sampled_from((ABORT, COMMIT, 4)))
    )
    return batch, base_offset + 1


@st.composite
def message_sets(draw: st.DrawFn, base_offset: int = 0) -> tuple[bytes, int]:
    """Magic 0 or 1, plain or wrapped."""
    magic = draw(st.sampled_from((0, 1)))
    records = draw(record_lists(with_headers=False))
    data = encode_message_set(
        records,
        base_offset,
        draw(st.sampled_from((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))),
        magic=magic,
        log_append_time=draw(st.none() | st.integers(0, 2**42)) if magic == 1 else None,
    )
    return data, base_offset + (records[-1].offset_delta or 0) + 1


KINDS = (record_batches, record_batches, record_batches, message_sets, markers, emptied_batches)


@st.composite
def slices(draw: st.DrawFn, max_batches: int = 6) -> bytes:
    """Batches of any kind one after the other, with holes between them."""
    offset = draw(st.sampled_from((0, 100, 2**40)))
    parts = []
    for _ in range(draw(st.integers(1, max_batches))):
        kind = draw(st.sampled_from(KINDS))
        data, offset = draw(kind(offset))
        offset += draw(st.sampled_from((0, 0, 0, 7)))
        parts.append(data)
    return b"".join(parts)


aborted_lists = st.lists(
    st.tuples(st.sampled_from(PRODUCERS), st.integers(0, 40) | st.integers(95, 140)), max_size=4
)


@st.composite
def compressed_blobs(draw: st.DrawFn, plain: bytes) -> tuple[Codec, bytes]:
    """``plain`` in one of the forms that the codecs allow."""
    codec = draw(st.sampled_from([c for c in Codec if c is not Codec.NONE]))
    cut = draw(st.integers(0, len(plain)))
    head, tail = plain[:cut], plain[cut:]
    match codec:
        case Codec.GZIP:
            forms = [gzip_compress(head) + gzip_compress(tail), gzip_compress(plain) + b"junk"]
        case Codec.SNAPPY:
            forms = [snappy_raw(plain), snappy_xerial(head) + snappy_xerial(tail)]
        case Codec.LZ4:
            forms = [
                lz4_compress(plain, block_checksum=True, content_checksum=True),
                lz4_compress(plain, store_size=True),
                lz4_compress(plain, block_linked=True),
            ]
        case _:
            forms = [
                zstd_compress(plain, content_size=True),
                zstd_compress(head) + zstd_compress(tail, 1),
            ]
    return codec, draw(st.sampled_from([compress(codec, plain), *forms]))
