"""Messages of magic 0 and 1: plain ones, and the set inside a compressed wrapper.

Inline and nogil, but not a hot path: such messages were written before Kafka 0.11. They have no
headers. A wrapper's value is a set of plain messages of the same magic; in magic 0 their offsets
are absolute, in magic 1 they count from the first one and the wrapper has the offset of the last
(0 from old producers: then they count from 0). A wrapper with append time sets all timestamps.
"""

from libc.stdint cimport int32_t, int64_t

from kfast._native.batch_header cimport (
    APPEND_TIME,
    BATCH_MESSAGE,
    BATCH_OK,
    BATCH_RECORD_OFFSET,
    BATCH_WRAPPER_NESTED,
    BATCH_WRAPPER_OFFSET,
    CODEC_MASK,
    BatchHeader,
    BatchStatus,
    read_batch_header,
)
from kfast._native.reader cimport ByteReader, read_i32, reader_init, reader_left, skip
from kfast._native.record_index cimport IndexColumns


cdef struct Message:
    int32_t key_start
    int32_t key_length
    int32_t value_start
    int32_t value_length


cdef inline int32_t read_span_of_message(
    ByteReader* r, const char* data, int32_t* start
) noexcept nogil:
    cdef int32_t length = read_i32(r)
    start[0] = <int32_t> (r.pos - data)
    if length < -1:
        r.bad = True
    elif length > 0:
        skip(r, length)
    return length


cdef inline BatchStatus read_message(
    const char* data, Py_ssize_t start, const BatchHeader* h, Message* m
) noexcept nogil:
    """Locate key and value of the message that ``h`` was read from at ``data[start]``."""
    cdef ByteReader r
    cdef Py_ssize_t head = 26 if h.magic == 1 else 18
    reader_init(&r, data + start + head, h.size - head)
    m.key_length = read_span_of_message(&r, data, &m.key_start)
    m.value_length = read_span_of_message(&r, data, &m.value_start)
    return BATCH_MESSAGE if r.bad or reader_left(&r) != 0 else BATCH_OK


cdef inline void add_message(
    IndexColumns* to, const Message* m, int64_t offset, int64_t timestamp
) noexcept nogil:
    cdef Py_ssize_t n = to.n
    to.offsets[n] = offset
    to.timestamps[n] = timestamp
    to.key_starts[n] = m.key_start
    to.key_lengths[n] = m.key_length
    to.value_starts[n] = m.value_start
    to.value_lengths[n] = m.value_length
    if to.header_counts is not NULL:
        to.header_starts[n] = m.value_start
        to.header_counts[n] = 0
    to.n = n + 1


cdef inline BatchStatus walk_wrapped(
    const char* data, Py_ssize_t start, Py_ssize_t stop, int magic, int64_t* last, int64_t* count
) noexcept nogil:
    """Check a wrapper's messages; return the last one's offset and their number."""
    cdef BatchHeader inner
    cdef Message m
    cdef int64_t previous = -1
    count[0] = 0
    while start < stop:
        # Inside a wrapper every message must be complete.
        if read_batch_header(data + start, stop - start, &inner) != BATCH_OK:
            return BATCH_MESSAGE
        if inner.magic != magic or inner.attributes & CODEC_MASK:
            return BATCH_WRAPPER_NESTED
        if read_message(data, start, &inner, &m) != BATCH_OK:
            return BATCH_MESSAGE
        if inner.base_offset <= previous:
            return BATCH_RECORD_OFFSET
        previous = inner.base_offset
        count[0] += 1
        start += inner.size
    last[0] = previous
    return BATCH_OK if count[0] > 0 else BATCH_MESSAGE


cdef inline BatchStatus wrapper_base(
    const BatchHeader* wrapper, int64_t last, int64_t* base
) noexcept nogil:
    """Return the number to add to the inner offsets."""
    base[0] = 0
    if wrapper.base_offset == 0:
        return BATCH_OK
    if wrapper.base_offset < last:
        return BATCH_WRAPPER_OFFSET
    if wrapper.magic == 1:
        base[0] = wrapper.base_offset - last
    return BATCH_OK


cdef inline void index_wrapped(
    const char* data,
    Py_ssize_t start,
    Py_ssize_t stop,
    const BatchHeader* wrapper,
    int64_t base,
    int64_t floor_offset,
    IndexColumns* to,
) noexcept nogil:
    """Index messages that ``walk_wrapped`` has checked; ``to`` has room for them."""
    cdef BatchHeader inner
    cdef Message m
    cdef int64_t offset
    while start < stop:
        if read_batch_header(data + start, stop - start, &inner) != BATCH_OK:
            return
        read_message(data, start, &inner, &m)
        offset = base + inner.base_offset
        if offset >= floor_offset:
            add_message(
                to,
                &m,
                offset,
                wrapper.max_timestamp if wrapper.attributes & APPEND_TIME else inner.base_timestamp,
            )
        start += inner.size
