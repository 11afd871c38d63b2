"""Batch headers: where a batch ends, the offset after it, and what no header can say.

Inline, noexcept, without the GIL; owns no memory. Never looks at a record nor at a checksum.

Layout of magic 2 (positions in bytes)::

    0  base offset i64       12 leader epoch i32    17 crc u32           23 last offset delta i32
    8  length i32            16 magic i8            21 attributes i16    57 records count i32

Magic 0 and 1 have offset, length and magic at the same places; they are entries of one offset.
The length counts the bytes behind itself.
"""

from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t

from kfast._native.endian cimport load_i32, load_i64


cdef enum:
    # Positions in a batch of magic 2; offset, length and magic are where magic 0 and 1 have them.
    AT_LENGTH = 8
    AT_LEADER_EPOCH = 12
    AT_MAGIC = 16
    AT_LAST_OFFSET_DELTA = 23
    AT_RECORDS_COUNT = 57
    LOG_OVERHEAD = 12          # offset and length, which the length does not count
    VISIBLE_HEADER = 17        # up to and including the magic
    MIN_LENGTH_V0 = 14
    MIN_LENGTH_V1 = 22
    MIN_LENGTH_V2 = 49
    MAX_LENGTH = 2147483635    # a size of length + 12 must fit an int32, as in Java


cdef struct Scan:
    int64_t next_offset     # -1 to start with
    int32_t leader_epoch    # -1 to start with
    int64_t complete_bytes
    int64_t batches
    int64_t needed_bytes    # size of a partial batch at the end, where its length can be seen
    bint is_corrupt


cdef inline int64_t batch_end(const char* batch, int8_t magic) noexcept nogil:
    """Offset after a complete batch whose length is at least its magic's least; -1 if corrupt."""
    cdef int64_t base = load_i64(batch)
    cdef int64_t delta = 0
    if magic == 2:
        delta = load_i32(batch + AT_LAST_OFFSET_DELTA)
        if load_i32(batch + AT_RECORDS_COUNT) < 0:
            return -1
    if base < 0 or delta < 0 or base > INT64_MAX - 1 - delta:
        return -1
    return base + delta + 1


cdef inline void walk_batches(const char* at, const char* end, Scan* scan) noexcept nogil:
    """Take every complete batch into ``scan``, up to a partial or an impossible one."""
    cdef int32_t length, least
    cdef int8_t magic
    cdef int64_t next_offset
    while end - at >= LOG_OVERHEAD:
        length = load_i32(at + AT_LENGTH)
        if end - at < VISIBLE_HEADER:
            scan.needed_bytes = length + <int64_t> LOG_OVERHEAD if length > 0 else 0
            return
        magic = <int8_t> at[AT_MAGIC]
        least = MIN_LENGTH_V2 if magic == 2 else MIN_LENGTH_V1 if magic == 1 else MIN_LENGTH_V0
        if magic < 0 or magic > 2 or length < least or length > MAX_LENGTH:
            scan.is_corrupt = True
            return
        if end - at < length + <int64_t> LOG_OVERHEAD:
            scan.needed_bytes = length + <int64_t> LOG_OVERHEAD
            return
        next_offset = batch_end(at, magic)
        if next_offset < 0:
            scan.is_corrupt = True
            return
        # A log never goes back. If a broker does, the fetch position must not follow it.
        if next_offset > scan.next_offset:
            scan.next_offset = next_offset
            scan.leader_epoch = load_i32(at + AT_LEADER_EPOCH) if magic == 2 else -1
        at += length + LOG_OVERHEAD
        scan.complete_bytes += length + LOG_OVERHEAD
        scan.batches += 1
