"""Headers of a record as text: pairs as JSON, or a list ``a=1,b=2``.

Inline and nogil. A header is: varint key length, key, varint value length (-1 null), value; the
parser of the record has checked them.
"""

from libc.stdint cimport int32_t, uint8_t

from kfast._native.reader cimport ByteReader, read_span, read_varint, reader_init
from kfast._native.text_cells cimport put_bytes
from kfast._native.text_styles cimport JSON, REPLACE, STOP
from kfast._native.text_values cimport AUTO, GROWTH, LIST, RAW, ROOM, Escapes, put_kind, put_styled


cdef enum:
    HEADER_ROOM = 24          # of what surrounds a header


# The headers of one record: `size` bytes may be read from `text` on.
cdef struct Headers:
    int32_t count
    const char* text
    Py_ssize_t size


cdef inline Py_ssize_t headers_room(const Headers* headers, Py_ssize_t room) noexcept nogil:
    """Return how many bytes they take as JSON at most, with ``room`` for each besides its text."""
    cdef ByteReader reader
    cdef int32_t _each, length
    if not headers.count:
        return 0
    reader_init(&reader, headers.text, headers.size)
    for _each in range(headers.count):
        read_span(&reader, read_varint(&reader))
        length = read_varint(&reader)
        if length > 0:
            read_span(&reader, length)
    return (
        GROWTH * (reader.pos - headers.text) + room * <Py_ssize_t> headers.count + ROOM)


cdef inline char* put_headers(
    Escapes* escapes, char* p, const Headers* headers, int form, int style, const char* null,
    Py_ssize_t null_size, Py_ssize_t room
) noexcept nogil:
    """Write headers; ``room`` is what `headers_room` has returned for them."""
    cdef ByteReader reader
    cdef char* begin = p
    cdef char* copy = p
    cdef int32_t each, key_length, length
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef Py_ssize_t key_left, left
    cdef bint is_copied = form != LIST and style != JSON
    # Behind what the text can become at most.
    if is_copied and headers.count:
        p += 2 * room
        copy = p
    if form != LIST:
        p[0] = c'['
        p += 1
    if headers.count:
        reader_init(&reader, headers.text, headers.size)
    for each in range(headers.count):
        key_length = read_varint(&reader)
        key_left = reader.end - reader.pos
        key = <const uint8_t*> read_span(&reader, key_length)
        length = read_varint(&reader)
        value = <const uint8_t*> reader.pos
        left = reader.end - reader.pos
        if length > 0:
            read_span(&reader, length)
        if each:
            p[0] = c','
            p += 1
        if form == LIST:
            p = put_kind(escapes, p, RAW, style, key, key_length, key_left)
            p[0] = c'='
            p += 1
            if length < 0:
                p = put_bytes(p, null, null_size)
            else:
                p = put_kind(escapes, p, RAW, style, value, length, left)
            continue
        p[0] = c'['
        p = put_styled(escapes, p + 1, key, key_length, key_left, JSON, REPLACE)
        p[0] = c','
        if length < 0:
            p = put_bytes(p + 1, b"null", 4)
        else:
            p = put_kind(escapes, p + 1, AUTO, JSON, value, length, left)
        p[0] = c']'
        p += 1
    if form == LIST:
        return p
    p[0] = c']'
    p += 1
    if not is_copied:
        return p
    if not headers.count:
        return begin + 2
    return put_styled(
        escapes, begin, <const uint8_t*> copy, p - copy, p - copy, style, STOP)
