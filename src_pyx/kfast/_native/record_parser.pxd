"""The record loop of magic 2: the code that runs once per record.

Inline and nogil; writes one row of ``IndexColumns`` per record and copies no data. A record is::

    length varint, attributes i8, timestamp delta varlong, offset delta varint,
    key length varint (-1 null), key, value length varint (-1 null), value,
    header count varint, per header: key length varint, key, value length varint (-1 null), value

How it gets to a few nanoseconds per record:

* Cursors are local variables and travel in registers; helpers return them by value.
* Varints of one and two bytes are decoded in line after one comparison with the end; the general
  case is a call. The end they are compared with is that of the section, so an inner field may be
  read past its record; the record is refused when its fields do not end where its length says.
* The next record starts at the end its length gives, which is known before its fields are: the
  processor works on several records at a time.
* Offsets are checked without branches and looked at once, at the end.
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


# A value and the position after it; the position is NULL when the bytes are bad.
cdef struct Varint:
    const uint8_t* next
    int32_t value


cdef struct Varlong:
    const uint8_t* next
    int64_t value


# What `index_records` needs to know besides the bytes. needs_headers is an answer: the batch has
# headers but `IndexColumns` no columns for them.
cdef struct RecordBounds:
    int64_t floor_offset
    bint needs_headers


cdef inline Varint varint_tail(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef ByteReader r
    cdef Varint v
    reader_init(&r, <const char*> at, end - at)
    v.value = unzigzag32(read_uvarint(&r))
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


cdef inline Varint get_varint(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef Varint v
    if end - at >= 2:
        if at[0] < 0x80:
            v.value = unzigzag32(at[0])
            v.next = at + 1
            return v
        if at[1] < 0x80:
            v.value = unzigzag32(<uint32_t> (at[0] & 0x7F) | <uint32_t> at[1] << 7)
            v.next = at + 2
            return v
    return varint_tail(at, end)


cdef inline Varlong get_varlong(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef Varlong v
    if end - at >= 2:
        if at[0] < 0x80:
            v.value = unzigzag32(at[0])
            v.next = at + 1
            return v
        if at[1] < 0x80:
            v.value = unzigzag32(<uint32_t> (at[0] & 0x7F) | <uint32_t> at[1] << 7)
            v.next = at + 2
            return v
    return varlong_tail(at, end)


cdef inline const uint8_t* check_headers(
    const uint8_t* at, const uint8_t* end, int32_t count
) noexcept nogil:
    """Position after ``count`` headers, NULL when they do not parse within the record."""
    cdef Varint v
    # The least a header takes is two bytes; this keeps a hostile count from costing time.
    if count < 0 or count > (end - at) // 2:
        return NULL
    while count > 0:
        count -= 1
        v = get_varint(at, end)
        if v.next is NULL or v.value < 0 or v.value > end - v.next:
            return NULL
        v = get_varint(v.next + v.value, end)
        if v.next is NULL or v.value < -1 or v.value > end - v.next:
            return NULL
        at = v.next + (v.value if v.value > 0 else 0)
    return at


cdef inline BatchStatus index_records(
    const char* data,
    Py_ssize_t start,
    Py_ssize_t stop,
    const BatchHeader* h,
    RecordBounds* bounds,
    IndexColumns* to,
) noexcept nogil:
    """Index the records in ``data[start:stop]``, leaving out those below the floor offset.

    ``to`` has room for ``records_count`` more rows. When the outcome is not BATCH_OK, or
    ``needs_headers`` is set, ``to.n`` is as it was.
    """
    cdef const uint8_t* base = <const uint8_t*> data
    cdef const uint8_t* at = base + start
    cdef const uint8_t* end = base + stop
    cdef const uint8_t* record_end
    cdef Varint v
    cdef Varlong t
    cdef Py_ssize_t n = to.n
    cdef int64_t offset
    cdef int64_t previous = -1
    cdef int32_t _
    cdef bint is_append_time = h.attributes & APPEND_TIME
    cdef bint bad_offset = False
    cdef bint has_header_columns = to.header_counts is not NULL
    bounds.needs_headers = False
    for _ in range(h.records_count):
        v = get_varint(at, end)
        # Six bytes are the least that follow the length.
        if unlikely(v.next is NULL or v.value < 6 or v.value > end - v.next):
            return BATCH_RECORDS_COUNT if at == end else BATCH_RECORD
        record_end = v.next + v.value

        t = get_varlong(v.next + 1, end)
        if unlikely(t.next is NULL):
            return BATCH_RECORD
        to.timestamps[n] = (
            h.max_timestamp
            if is_append_time
            else <int64_t> (<uint64_t> h.base_timestamp + <uint64_t> t.value)
        )

        v = get_varint(t.next, end)
        if unlikely(v.next is NULL):
            return BATCH_RECORD
        bad_offset |= v.value <= previous or v.value > h.last_offset_delta
        previous = v.value
        offset = h.base_offset + v.value
        to.offsets[n] = offset

        v = get_varint(v.next, end)
        if unlikely(v.next is NULL or v.value < -1 or v.value > record_end - v.next):
            return BATCH_RECORD
        to.key_starts[n] = <int32_t> (v.next - base)
        to.key_lengths[n] = v.value

        v = get_varint(v.next + (v.value if v.value > 0 else 0), end)
        if unlikely(v.next is NULL or v.value < -1 or v.value > record_end - v.next):
            return BATCH_RECORD
        to.value_starts[n] = <int32_t> (v.next - base)
        to.value_lengths[n] = v.value

        v = get_varint(v.next + (v.value if v.value > 0 else 0), end)
        if unlikely(v.next is NULL):
            return BATCH_RECORD
        if has_header_columns:
            to.header_starts[n] = <int32_t> (v.next - base)
            to.header_counts[n] = v.value
        if v.value != 0:
            if not has_header_columns:
                bounds.needs_headers = True
                return BATCH_OK
            v.next = check_headers(v.next, record_end, v.value)
        if unlikely(v.next != record_end):
            return BATCH_RECORD
        n += offset >= bounds.floor_offset
        at = record_end
    if at != end:
        return BATCH_RECORDS_COUNT
    if bad_offset:
        return BATCH_RECORD_OFFSET
    to.n = n
    return BATCH_OK
