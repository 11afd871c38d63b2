"""Headers of record batches and old messages: layout, and all checks that need no record.

Inline and nogil. The three formats share their first 17 bytes; the magic decides about the rest:

====  =====================================  ====  ============================================
at    magic 2                                at    magic 0 and 1
====  =====================================  ====  ============================================
0     base offset i64                        0     offset i64 (a wrapper's: of its last message)
8     length i32, from 12 on                 8     length i32, from 12 on
12    leader epoch i32 (outside the CRC)     12    CRC-32 u32, over byte 16 on
16    magic i8                               16    magic i8
17    CRC-32C u32, over byte 21 on           17    attributes i8
21    attributes i16                         18    timestamp i64 (magic 1 only)
23    last offset delta i32                        key, value: i32 length, -1 null, and bytes
27    base timestamp i64
35    max timestamp i64
43    producer id i64, epoch i16, sequence i32
57    records count i32
61    records, compressed or not
====  =====================================  ====  ============================================

Attributes: bits 0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon.
"""

from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint32_t

from kfast._native.endian cimport load_be16, load_be32, load_i32, load_i64


cdef enum:
    LOG_OVERHEAD = 12
    VISIBLE_HEADER = 17
    MAX_BATCH_LENGTH = 2147483635    # length + 12 must fit an int32, as in Java

    CODEC_MASK = 0x07
    APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20

    V2_CRC_START = 21
    V2_HEADER = 61
    V2_MIN_LENGTH = 49
    V2_MIN_RECORD = 7

    MESSAGE_CRC_START = 16
    V0_MIN_LENGTH = 14
    V1_MIN_LENGTH = 22


# Outcome of decoding a batch; everything after BATCH_NONE is a fault.
cdef enum BatchStatus:
    BATCH_OK
    BATCH_NONE             # no complete batch left: the normal end of a slice
    BATCH_LENGTH
    BATCH_MAGIC
    BATCH_OFFSET
    BATCH_DELTA
    BATCH_COUNT
    BATCH_CRC
    BATCH_CODEC
    BATCH_RECORD           # a record's fields, its length, or a varint
    BATCH_RECORD_OFFSET
    BATCH_RECORDS_COUNT    # more or fewer records than the count
    BATCH_MARKER
    BATCH_MESSAGE
    BATCH_WRAPPER_NULL
    BATCH_WRAPPER_NESTED
    BATCH_WRAPPER_OFFSET
    BATCH_PAYLOAD          # the codec failed; its exception has the cause
    BATCH_RECORDS_LIMIT    # more records than may be indexed


cdef struct BatchHeader:
    int64_t size                # whole batch; 0 while the length is not known
    int64_t base_offset
    int64_t last_offset
    int32_t last_offset_delta
    int32_t leader_epoch
    int32_t records_count
    int8_t magic
    int16_t attributes
    uint32_t crc
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id


cdef inline int32_t min_length(int8_t magic) noexcept nogil:
    return V2_MIN_LENGTH if magic == 2 else V1_MIN_LENGTH if magic == 1 else V0_MIN_LENGTH


cdef inline BatchStatus read_frame_of_batch(
    const char* at, Py_ssize_t left, BatchHeader* h
) noexcept nogil:
    """Read size and magic; BATCH_OK if the size is valid and the batch complete."""
    cdef int32_t length
    h.size = 0
    h.base_offset = -1
    h.last_offset = -1
    if left < LOG_OVERHEAD:
        return BATCH_NONE
    length = load_i32(at + 8)
    h.size = <int64_t> length + LOG_OVERHEAD
    if left < VISIBLE_HEADER:
        return BATCH_NONE
    h.base_offset = load_i64(at)
    h.magic = <int8_t> at[16]
    if h.magic < 0 or h.magic > 2:
        return BATCH_MAGIC
    if length < min_length(h.magic) or length > MAX_BATCH_LENGTH:
        return BATCH_LENGTH
    return BATCH_OK if h.size <= left else BATCH_NONE


cdef inline BatchStatus read_batch_header(
    const char* at, Py_ssize_t left, BatchHeader* h
) noexcept nogil:
    """Read a header; of magic 0 and 1 the fields before key and value."""
    cdef BatchStatus status = read_frame_of_batch(at, left, h)
    if status != BATCH_OK:
        return status
    h.producer_id = -1
    h.last_offset_delta = 0
    h.records_count = 1
    if h.magic == 2:
        h.leader_epoch = load_i32(at + 12)
        h.crc = load_be32(at + 17)
        h.attributes = <int16_t> load_be16(at + 21)
        h.last_offset_delta = load_i32(at + 23)
        h.base_timestamp = load_i64(at + 27)
        h.max_timestamp = load_i64(at + 35)
        h.producer_id = load_i64(at + 43)
        h.records_count = load_i32(at + 57)
    else:
        h.leader_epoch = -1
        h.crc = load_be32(at + 12)
        h.attributes = at[17]
        h.base_timestamp = load_i64(at + 18) if h.magic == 1 else -1
        h.max_timestamp = h.base_timestamp
    if h.base_offset < 0:
        return BATCH_OFFSET
    if h.last_offset_delta < 0:
        return BATCH_DELTA
    # The offset after the batch must fit 64 bits too.
    if h.base_offset > INT64_MAX - 1 - h.last_offset_delta:
        return BATCH_OFFSET
    h.last_offset = h.base_offset + h.last_offset_delta
    if h.records_count < 0:
        return BATCH_COUNT
    return BATCH_OK
