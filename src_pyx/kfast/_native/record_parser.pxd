"""The record loop of magic 2: the code executed once per record.

Inline and nogil; writes one row of ``IndexColumns`` per record and copies no data. A record is::

    length varint, attributes i8, timestamp delta varlong, offset delta varint,
    key length varint (-1 null), key, value length varint (-1 null), value,
    header count varint, per header: key length varint, key, value length varint (-1 null), value

How it takes a few nanoseconds per record:

* Cursors are local variables in registers; helpers return them by value.
* Varints of one and two bytes are decoded in line, the general case is a call. Most of a record's
  numbers cannot be negative, so their sign bit is a fault to look for, not a step of decoding.
* A record that ends at least ``NEAR_END`` bytes before its section is read without comparing each
  number with the end: its fields cannot get further before a check stops them. A field may so be
  read past its record; the record is refused when its fields do not end at its length.
* The start of the next record is known from the length before the fields are: the processor works
  on several records at a time.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kfast._native.batch_header cimport (
    APPEND_TIME,
    BATCH_OK,
    BATCH_RECORD,
    BATCH_RECORD_OFFSET,
    BATCH_RECORDS_COUNT,
    BatchHeader,
    BatchStatus,
)
from kfast._native.reader cimport ByteReader, read_uvarint, read_uvarlong, reader_init
from kfast._native.reader cimport unzigzag32, unzigzag64
from kfast._native.record_index cimport IndexColumns


cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define KFAST_UNLIKELY(x) __builtin_expect(!!(x), 0)
    #else
    #define KFAST_UNLIKELY(x) (x)
    #endif
    """
    bint unlikely "KFAST_UNLIKELY"(bint condition) noexcept nogil


# Most that the five numbers of a record can be read past its end: the null lengths of key and
# value, the header count, an offset and a timestamp delta, all as long as a number may be, rounded
# up.
cdef enum:
    NEAR_END = 32
    RUN_RECORDS = 4096


# A number as it was encoded, twice its value or one less, and the position after it; the position
# is NULL when the bytes are bad.
cdef struct Varint:
    const uint8_t* next
    uint32_t raw


cdef struct Varlong:
    const uint8_t* next
    int64_t value


# Input of `index_records` besides the bytes. needs_headers is a result: the batch has headers but
# `IndexColumns` has no columns for them.
cdef struct RecordBounds:
    int64_t floor_offset
    bint needs_headers


cdef inline Varint varint_tail(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef ByteReader r
    cdef Varint v
    reader_init(&r, <const char*> at, end - at)
    v.raw = read_uvarint(&r)
    v.next = <const uint8_t*> r.pos
    if r.bad:
        v.next = NULL
    return v


cdef inline Varlong varlong_tail(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef ByteReader r
    cdef Varlong v
    reader_init(&r, <const char*> at, end - at)
    v.value = unzigzag64(read_uvarlong(&r))
    v.next = <const uint8_t*> r.pos
    if r.bad:
        v.next = NULL
    return v


cdef inline Varint get_varint(const uint8_t* at, const uint8_t* end, bint near_end) noexcept nogil:
    cdef Varint v
    if not near_end or end - at >= 2:
        if at[0] < 0x80:
            v.raw = at[0]
            v.next = at + 1
            return v
        if at[1] < 0x80:
            v.raw = <uint32_t> (at[0] & 0x7F) | <uint32_t> at[1] << 7
            v.next = at + 2
            return v
    return varint_tail(at, end)


cdef inline Varlong get_varlong(
    const uint8_t* at, const uint8_t* end, bint near_end
) noexcept nogil:
    cdef Varlong v
    if not near_end or end - at >= 2:
        if at[0] < 0x80:
            v.value = unzigzag32(at[0])
            v.next = at + 1
            return v
        if at[1] < 0x80:
            v.value = unzigzag32(<uint32_t> (at[0] & 0x7F) | <uint32_t> at[1] << 7)
            v.next = at + 2
            return v
    return varlong_tail(at, end)


cdef inline const uint8_t* skip_bytes(
    Varint length, const uint8_t* end, int32_t* size
) noexcept nogil:
    """Return the position after ``length`` bytes, NULL if fewer are left.

    ``size`` becomes the length, -1 for null.
    """
    if length.raw & 1:
        size[0] = -1
        return length.next if length.raw == 1 else NULL
    size[0] = <int32_t> (length.raw >> 1)
    return length.next + size[0] if size[0] <= end - length.next else NULL


cdef inline const uint8_t* check_headers(
    const uint8_t* at, const uint8_t* end, int32_t count
) noexcept nogil:
    """Return the position after ``count`` headers, NULL if they exceed the record."""
    cdef Varint v
    cdef int32_t size
    # A header has at least two bytes; this refuses a hostile count at once.
    if count < 0 or count > (end - at) // 2:
        return NULL
    while count > 0:
        count -= 1
        v = get_varint(at, end, True)
        if v.next is NULL:
            return NULL
        at = skip_bytes(v, end, &size)
        if at is NULL or size < 0:
            return NULL
        v = get_varint(at, end, True)
        if v.next is NULL:
            return NULL
        at = skip_bytes(v, end, &size)
        if at is NULL:
            return NULL
    return at


# Constants of the loop. Copies, because the compiler has to assume that a row written changes the
# target of a pointer.
cdef struct Batch:
    const uint8_t* base
    const uint8_t* end
    int64_t base_offset
    uint64_t base_timestamp
    uint64_t timestamp_mask      # 0 if all records have the batch's timestamp
    int64_t last_delta
    IndexColumns rows


# State of the loop: row to write, position of the next record, offset delta of the last one.
cdef struct Progress:
    const uint8_t* at
    Py_ssize_t n
    int64_t delta
    bint bad_offset


cdef enum Parsed:
    PARSED
    PARSED_BAD
    PARSED_HEADERS             # there are headers, and no columns for them


cdef inline Parsed parse_record(
    const Batch* b, Progress* p, const uint8_t* at, const uint8_t* record_end, bint near_end
) noexcept nogil:
    """Write the record whose fields start at ``at`` into row ``p.n``."""
    cdef Py_ssize_t n = p.n
    cdef Varint v
    cdef Varlong t
    cdef int64_t delta

    t = get_varlong(at + 1, b.end, near_end)
    if unlikely(t.next is NULL):
        return PARSED_BAD
    b.rows.timestamps[n] = <int64_t> (
        b.base_timestamp + (<uint64_t> t.value & b.timestamp_mask))

    v = get_varint(t.next, b.end, near_end)
    if unlikely(v.next is NULL):
        return PARSED_BAD
    delta = v.raw >> 1
    p.bad_offset |= (delta <= p.delta) | (delta > b.last_delta) | (v.raw & 1)
    p.delta = delta
    b.rows.offsets[n] = b.base_offset + delta

    v = get_varint(v.next, b.end, near_end)
    if unlikely(v.next is NULL):
        return PARSED_BAD
    b.rows.key_starts[n] = <int32_t> (v.next - b.base)
    at = skip_bytes(v, record_end, &b.rows.key_lengths[n])
    if unlikely(at is NULL):
        return PARSED_BAD

    v = get_varint(at, b.end, near_end)
    if unlikely(v.next is NULL):
        return PARSED_BAD
    b.rows.value_starts[n] = <int32_t> (v.next - b.base)
    at = skip_bytes(v, record_end, &b.rows.value_lengths[n])
    if unlikely(at is NULL):
        return PARSED_BAD

    v = get_varint(at, b.end, near_end)
    if unlikely(v.next is NULL):
        return PARSED_BAD
    if b.rows.header_counts is not NULL:
        b.rows.header_starts[n] = <int32_t> (v.next - b.base)
        b.rows.header_counts[n] = unzigzag32(v.raw)
    if v.raw != 0:
        if b.rows.header_counts is NULL:
            return PARSED_HEADERS
        v.next = check_headers(v.next, record_end, unzigzag32(v.raw))
    return PARSED if v.next == record_end else PARSED_BAD


cdef inline BatchStatus index_records(
    const char* data,
    Py_ssize_t start,
    Py_ssize_t stop,
    const BatchHeader* h,
    RecordBounds* bounds,
    IndexColumns* to,
) noexcept nogil:
    """Index the records in ``data[start:stop]``, without those below the floor offset.

    ``to`` has room for ``records_count`` more rows. If the result is not BATCH_OK, or
    ``needs_headers`` is set, ``to.n`` is unchanged.
    """
    cdef Batch b
    cdef Progress p
    cdef Parsed parsed
    cdef Varint v
    cdef const uint8_t* record_end
    cdef const uint8_t* far_end
    cdef int64_t floor_offset = bounds.floor_offset
    cdef int32_t count = h.records_count
    cdef int32_t _
    b.base = <const uint8_t*> data
    b.end = b.base + stop
    b.base_offset = h.base_offset
    b.base_timestamp = <uint64_t> h.base_timestamp
    b.timestamp_mask = ~<uint64_t> 0
    if h.attributes & APPEND_TIME:
        b.base_timestamp = <uint64_t> h.max_timestamp
        b.timestamp_mask = 0
    b.last_delta = h.last_offset_delta
    b.rows = to[0]
    p.at = b.base + start
    p.n = to.n
    p.delta = -1
    p.bad_offset = False
    far_end = b.end - NEAR_END
    bounds.needs_headers = False
    while count > 0:
        # Offsets are judged now and then, before many rows are written for nothing.
        for _ in range(min(count, RUN_RECORDS)):
            v = get_varint(p.at, b.end, True)
            # At least six bytes follow the length.
            if unlikely(
                v.next is NULL or v.raw < 12 or v.raw & 1
                or <int64_t> (v.raw >> 1) > b.end - v.next
            ):
                return BATCH_RECORDS_COUNT if p.at == b.end else BATCH_RECORD
            record_end = v.next + (v.raw >> 1)
            parsed = parse_record(&b, &p, v.next, record_end, record_end > far_end)
            if unlikely(parsed != PARSED):
                if parsed == PARSED_BAD:
                    return BATCH_RECORD
                bounds.needs_headers = True
                return BATCH_OK
            p.n += b.base_offset + p.delta >= floor_offset
            p.at = record_end
        if p.bad_offset:
            return BATCH_RECORD_OFFSET
        count -= RUN_RECORDS
    if p.at != b.end:
        return BATCH_RECORDS_COUNT
    to.n = p.n
    return BATCH_OK
