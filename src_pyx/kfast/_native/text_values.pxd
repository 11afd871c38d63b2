"""Keys, values and headers as text: every kind in every style.

Inline and nogil; each function writes at ``p``, where the caller has made room, and returns the new
end, or NULL for bytes that are not of their kind, with the place of the byte in ``bad_byte``. A
byte takes at most GROWTH bytes and one more for a copy on the way.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfast._native.deserialize cimport convert_uuid
from kfast._native.endian cimport load_be32, load_be64, load_le32, load_le64
from kfast._native.json_text cimport copy_json
from kfast._native.number_text cimport EXACT10, POW10
from kfast._native.text_cells cimport (
    put_base64,
    put_bytes,
    put_hex,
    put_int,
    put_padded,
    put_uuid,
)
from kfast._native.text_styles cimport (
    CSV,
    JSON,
    NOT_QUOTED,
    PLAIN,
    QUOTED,
    SHOW_BYTES,
    STOP,
    OnBad,
    Style,
    put_escaped,
)


cdef extern from "Python.h":
    enum:
        Py_DTSF_ADD_DOT_0
    ctypedef struct PyObject
    void PyErr_Clear()
    char* PyOS_double_to_string(double value, char form, int precision, int flags, int* kind)
    double PyOS_string_to_double(const char* text, char** end, PyObject* overflow) except? -1
    void PyMem_Free(void* block)


cdef enum:
    ROOM = 64                 # of what surrounds any field
    GROWTH = 6                # bytes that one byte may become


cdef enum Form:
    NUMBER
    RAW
    AUTO
    TEXT
    BYTES
    BASE64
    HEX
    JSON_VALUE
    JSON_TEXT
    INT32
    INT64
    FLOAT32
    FLOAT64
    INT32LE
    INT64LE
    FLOAT32LE
    FLOAT64LE
    UUID
    ISO
    MS
    SECONDS
    OF_DAY
    PATTERN
    LIST


cdef struct Escapes:
    const Style* styles
    const Style* of_json      # of JSON that is there already
    bint is_terminal
    bint has_no_memory
    Py_ssize_t bad_byte


cdef enum:
    SHORT_DOUBLE = 15         # digits that a number keeps, whatever they are
    SHORT_FLOAT = 6
    MOST_PLACES = 18


cdef inline char* put_short(char* p, double value, int digits) noexcept nogil:
    """Zero, or a number from 1e-4 on that few digits give again, as `put_double` does; else NULL.

    Such digits are the fewest: of as many digits only one decimal becomes the number. Dividend and
    divisor are exact, so the quotient is what the decimal is parsed as.
    """
    cdef double size = -value if value < 0 else value
    cdef double scaled, parsed
    cdef int64_t whole
    cdef int places
    if size == 0:
        return put_bytes(p, b"0.0", 3) if 1 / value > 0 else put_bytes(p, b"-0.0", 4)
    if not 1e-4 <= size < 1e15:
        return NULL
    for places in range(MOST_PLACES + 1):
        scaled = size * EXACT10[places]
        if scaled >= EXACT10[digits]:
            return NULL
        whole = <int64_t> (scaled + 0.5)
        parsed = <double> whole / EXACT10[places]
        if parsed == size or (digits == SHORT_FLOAT and <float> parsed == <float> size):
            break
    else:
        return NULL
    if value < 0:
        p[0] = c'-'
        p += 1
    p = put_int(p, whole // <int64_t> POW10[places])
    p[0] = c'.'
    if not places:
        p[1] = c'0'
        return p + 2
    return put_padded(p + 1, whole % <int64_t> POW10[places], places)


cdef inline char* put_double(char* p, double value) noexcept with gil:
    """The shortest digits that give the number again; NULL without memory."""
    cdef char* text = PyOS_double_to_string(value, b'r', 0, Py_DTSF_ADD_DOT_0, NULL)
    cdef Py_ssize_t size = 0
    if text is NULL:
        PyErr_Clear()
        return NULL
    while text[size]:
        p[size] = text[size]
        size += 1
    PyMem_Free(text)
    return p + size


cdef inline char* put_float(char* p, float value) noexcept with gil:
    """The same for a number of 4 bytes: the fewest of up to 9 digits that are enough.

    Up to 6 come back as they were, with zeros that are not written, but of subnormal numbers.
    """
    cdef int precision
    cdef bint is_subnormal = -1.17549435e-38 < value < 1.17549435e-38
    cdef char* text
    cdef double parsed = value
    for precision in range(1 if is_subnormal else 6, 10):
        text = PyOS_double_to_string(value, b'g', precision, 0, NULL)
        if text is NULL:
            PyErr_Clear()
            return NULL
        try:
            parsed = PyOS_string_to_double(text, NULL, NULL)
        except (ValueError, MemoryError):
            parsed = value
        PyMem_Free(text)
        if <float> parsed == value:
            break
    return put_double(p, parsed)


cdef inline char* put_floating(char* p, double value, bint is_wide) noexcept nogil:
    """The fewest digits that give a finite number again; NULL without memory."""
    cdef char* end = put_short(p, value, SHORT_DOUBLE if is_wide else SHORT_FLOAT)
    if end is not NULL:
        return end
    return put_double(p, value) if is_wide else put_float(p, <float> value)


cdef inline char* put_styled(
    Escapes* escapes, char* p, const uint8_t* text, Py_ssize_t size, Py_ssize_t readable, int style,
    OnBad on_bad
) noexcept nogil:
    """Write text; NULL with ``bad_byte`` where it is not UTF-8."""
    cdef Py_ssize_t stopped = 0
    cdef char* begin = p
    if style == JSON:
        p[0] = c'"'
        p += 1
    elif style == CSV and size == 0:
        return put_bytes(p, b'""', 2)
    p = put_escaped(p, text, size, readable, &escapes.styles[style], on_bad, &stopped)
    if p is NULL and stopped == NOT_QUOTED:
        begin[0] = c'"'
        p = put_escaped(
            begin + 1, text, size, readable, &escapes.styles[QUOTED], on_bad, &stopped)
        if p is not NULL:
            p[0] = c'"'
            p += 1
    elif p is not NULL and style == JSON:
        p[0] = c'"'
        p += 1
    if p is NULL:
        escapes.bad_byte = stopped
    return p


cdef inline char* put_ascii(
    Escapes* escapes, char* p, int style, const char* text, Py_ssize_t size
) noexcept nogil:
    if style != JSON:
        return put_bytes(p, text, size)
    p[0] = c'"'
    p = put_bytes(p + 1, text, size)
    p[0] = c'"'
    return p + 1


cdef inline char* put_json(
    Escapes* escapes, char* p, int form, int style, const uint8_t* value, Py_ssize_t size,
    Py_ssize_t readable
) noexcept nogil:
    """Check and write JSON, without its white space."""
    # Behind what the text can become at most.
    cdef uint8_t* copy = <uint8_t*> p + GROWTH * size + ROOM // 2
    cdef bint is_plain = form == JSON_VALUE and (style == JSON or style == PLAIN)
    cdef Py_ssize_t bad = 0
    if is_plain and not escapes.is_terminal:
        copy = <uint8_t*> p
    size = copy_json(copy, value, size, readable, &bad)
    if size < 0:
        escapes.bad_byte = bad
        return NULL
    if copy == <uint8_t*> p:
        return p + size
    if is_plain and style == JSON:
        return put_made_json(escapes, p, style, copy, size, size)
    return put_styled(escapes, p, copy, size, size, style, STOP)


cdef inline char* put_made_json(
    Escapes* escapes, char* p, int style, const uint8_t* text, Py_ssize_t size, Py_ssize_t readable
) noexcept nogil:
    """Write JSON without white space: in JSON as it is, elsewhere as text."""
    cdef Py_ssize_t stopped = 0
    if style != JSON:
        return put_styled(escapes, p, text, size, readable, style, SHOW_BYTES)
    if not escapes.is_terminal:
        return put_bytes(p, text, size)
    # Its own escapes stay: only what a terminal acts on has to be escaped, in strings.
    return put_escaped(p, text, size, readable, escapes.of_json, SHOW_BYTES, &stopped)


cdef inline char* put_number(
    Escapes* escapes, char* p, int form, const uint8_t* value, Py_ssize_t size, bint is_json
) noexcept nogil:
    cdef uint32_t half
    cdef uint64_t whole
    cdef float narrow
    cdef double wide
    cdef bint is_wide = form == INT64 or form == FLOAT64 or form == INT64LE or form == FLOAT64LE
    if size != (8 if is_wide else 4):
        return NULL
    if is_wide:
        if form == INT64LE or form == FLOAT64LE:
            whole = load_le64(value)
        else:
            whole = load_be64(value)
        if form == INT64 or form == INT64LE:
            return put_int(p, <int64_t> whole)
        memcpy(&wide, &whole, 8)
    else:
        if form == INT32LE or form == FLOAT32LE:
            half = load_le32(value)
        else:
            half = load_be32(value)
        if form == INT32 or form == INT32LE:
            return put_int(p, <int32_t> half)
        memcpy(&narrow, &half, 4)
        wide = narrow
    if wide != wide:
        return put_ascii(escapes, p, JSON if is_json else PLAIN, b"NaN", 3)
    if wide - wide != 0:
        if wide > 0:
            return put_ascii(escapes, p, JSON if is_json else PLAIN, b"Infinity", 8)
        return put_ascii(escapes, p, JSON if is_json else PLAIN, b"-Infinity", 9)
    p = put_floating(p, wide, is_wide)
    if p is NULL:
        escapes.has_no_memory = True
    return p


cdef inline char* put_kind(
    Escapes* escapes, char* p, int form, int style, const uint8_t* value, Py_ssize_t size,
    Py_ssize_t readable
) noexcept nogil:
    """Write a value; NULL with ``bad_byte`` if it is not of its kind."""
    cdef bint is_json = style == JSON
    cdef char* end
    cdef uint8_t uuid[16]
    escapes.bad_byte = 0
    if form == AUTO or form == TEXT:
        end = put_styled(
            escapes, p, value, size, readable, style,
            STOP if form == TEXT or is_json else SHOW_BYTES)
        if end is not NULL or form == TEXT:
            return end
        form = BYTES
    if form == RAW:
        if style == PLAIN and not escapes.is_terminal:
            return put_bytes(p, value, size)
        return put_styled(escapes, p, value, size, readable, style, SHOW_BYTES)
    if form == BYTES and is_json:
        p = put_base64(put_bytes(p, b'{"base64":"', 11), value, size)
        return put_bytes(p, b'"}', 2)
    if form == JSON_VALUE or form == JSON_TEXT:
        return put_json(escapes, p, form, style, value, size, readable)
    if form == BYTES or form == BASE64 or form == HEX or form == UUID:
        if form == UUID and not (size and convert_uuid(
                <const char*> value, <int32_t> size, <char*> uuid, 16)):
            return NULL
        if size == 0 and style == CSV:
            return put_bytes(p, b'""', 2)
        p[0] = c'"'
        p += is_json
        if form == UUID:
            p = put_uuid(p, uuid)
        elif form == HEX:
            p = put_hex(p, value, size)
        else:
            p = put_base64(p, value, size)
        p[0] = c'"'
        return p + is_json
    return put_number(escapes, p, form, value, size, is_json)
