"""Parser: a ByteReader for counts, strings and tags of Kafka messages (KIP-482).

Like ``ByteReader`` it stays bad after the first error; it also stores the reason, for the error
message. Counts and lengths are compared with the bytes left, so that a caller may loop over a count
without further checks. Inline, noexcept, without the GIL; owns no memory.

Flexible messages write lengths and counts as uvarint length + 1, null as 0, and end every struct
with a tag section: uvarint count, then per field uvarint tag, ascending, uvarint size, content.
Others have i16 string lengths, i32 counts, null as -1, and no tags.
"""

from libc.stdint cimport int64_t, uint32_t

from kfast._native.reader cimport (
    ByteReader,
    read_i16,
    read_i32,
    read_span,
    read_uvarint,
    reader_fail,
    reader_init,
    reader_left,
    skip,
)


cdef enum:
    MAX_STRING_BYTES = 32767


cdef enum Fault:
    FAULT_CUT
    FAULT_NULL
    FAULT_COUNT
    FAULT_LENGTH
    FAULT_TAG_ORDER
    FAULT_TAG_SIZE


cdef struct Parser:
    ByteReader r
    bint is_flexible
    Fault fault


cdef inline void parser_init(
    Parser* p, const char* start, Py_ssize_t size, bint is_flexible
) noexcept nogil:
    reader_init(&p.r, start, size)
    p.is_flexible = is_flexible
    p.fault = FAULT_CUT


cdef inline void fail(Parser* p, Fault fault) noexcept nogil:
    if not p.r.bad:
        p.fault = fault
        reader_fail(&p.r)


cdef inline int64_t read_count(Parser* p, int min_bytes) noexcept nogil:
    """Number of elements of an array, -1 for null; 0 and bad if they exceed the bytes left."""
    cdef int64_t count
    if p.is_flexible:
        count = <int64_t> read_uvarint(&p.r) - 1
    else:
        count = read_i32(&p.r)
    if p.r.bad:
        return 0
    if count < -1 or count * min_bytes > reader_left(&p.r):
        fail(p, FAULT_COUNT)
        return 0
    return count


cdef inline int64_t read_array(Parser* p, int min_bytes) noexcept nogil:
    """Number of elements of an array that must not be null."""
    cdef int64_t count = read_count(p, min_bytes)
    if count < 0:
        fail(p, FAULT_NULL)
        return 0
    return count


cdef inline const char* read_text(Parser* p, int64_t* size, bint nullable) noexcept nogil:
    """Bytes of a string; NULL with size -1 if it is null, NULL with size 0 once bad."""
    if p.is_flexible:
        size[0] = <int64_t> read_uvarint(&p.r) - 1
    else:
        size[0] = read_i16(&p.r)
    if not p.r.bad:
        if size[0] == -1 and nullable:
            return NULL
        if size[0] == -1:
            fail(p, FAULT_NULL)
        elif size[0] < 0 or size[0] > MAX_STRING_BYTES or size[0] > reader_left(&p.r):
            fail(p, FAULT_LENGTH)
    if p.r.bad:
        size[0] = 0
        return NULL
    return read_span(&p.r, size[0])


cdef inline void skip_tags(Parser* p) noexcept nogil:
    """Skip a tag section without known fields."""
    cdef int64_t previous = -1
    cdef uint32_t tag
    cdef int64_t count
    if not p.is_flexible:
        return
    count = read_uvarint(&p.r)
    while count > 0 and not p.r.bad:
        tag = read_uvarint(&p.r)
        if <int64_t> tag <= previous:
            fail(p, FAULT_TAG_ORDER)
        previous = tag
        skip(&p.r, read_uvarint(&p.r))
        count -= 1


cdef inline const char* enter_tag(Parser* p, int64_t* previous, uint32_t* tag) noexcept nogil:
    """Read a tag and its size and bound the reader to it; return the old end, NULL if bad."""
    cdef const char* outer = p.r.end
    cdef int64_t size
    tag[0] = read_uvarint(&p.r)
    if not p.r.bad and <int64_t> tag[0] <= previous[0]:
        fail(p, FAULT_TAG_ORDER)
    previous[0] = tag[0]
    size = read_uvarint(&p.r)
    if not p.r.bad and size > reader_left(&p.r):
        fail(p, FAULT_TAG_SIZE)
    if p.r.bad:
        return NULL
    p.r.end = p.r.pos + size
    return outer


cdef inline void leave_tag(Parser* p, const char* outer) noexcept nogil:
    """Check that the tag was read to its end and restore the reader's old end."""
    if p.r.pos != p.r.end:
        fail(p, FAULT_TAG_SIZE)
    p.r.end = outer
    if p.r.bad:
        p.r.pos = outer
