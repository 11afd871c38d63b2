"""ColumnTexts: the values of a typed column as text, one text per row.

Owns: how each kind of value is written. Every text is JSON (RFC 8259):

==========================  ========================================================================
kind                        JSON
==========================  ========================================================================
bool, integers              as they are, with all digits
float32, float64            the fewest digits that give the number again; NaN and infinities as
                            strings
decimal128, decimal256      numbers with all digits of their scale
string, dictionary          strings
binary, fixed_size_binary   base64 as a string
uuid                        its 36 characters
date, time, timestamp       RFC 3339 with the digits of the unit, ``Z`` behind instants; the number
                            of its unit outside of the years 0 to 9999, or of a day
duration                    the number of its unit
list, map, struct           array, object, object with all members
raw                         JSON as it came, without white space; other bytes in base64
==========================  ========================================================================

In cells (``is_json`` false) a value that JSON writes as a string stands without quotes and escapes,
and JSON only for lists, maps, structs and raw.

A column is given as nested tuples, which ``kfast.columns.column_text`` makes: ``(kind,
digits, flag, width, length, bits, data, offsets, offset_bytes, name, children)``. ``digits`` are
those of a second's fraction, or a decimal's scale; ``flag`` is set for instants and for raw JSON;
``name`` is what stands before a member, such as ``"id":``. A dictionary's child has its texts.

Threads: one at a time per object; rows are written without the GIL, but for numbers with many
digits.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport (
    INT32_MAX,
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
)
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from kfast._native.buffers cimport release_block, resized_block
from kfast._native.json_text cimport copy_json
from kfast._native.kinds cimport (
    KIND_BINARY, KIND_BOOL, KIND_DATE32, KIND_DECIMAL128, KIND_DECIMAL256, KIND_DICTIONARY,
    KIND_FIXED_BINARY, KIND_FLOAT32, KIND_FLOAT64, KIND_INT8, KIND_LIST,
    KIND_MAP, KIND_RAW, KIND_STRING, KIND_STRUCT, KIND_TIME32, KIND_TIME64, KIND_TIMESTAMP,
    KIND_UINT8, KIND_UINT16, KIND_UINT32, KIND_UINT64, KIND_UUID,
)
from kfast._native.number_text cimport POW10
from kfast._native.text_cells cimport (
    Moment,
    floor_division,
    moment_of,
    put_base64,
    put_bytes,
    put_day,
    put_int,
    put_padded,
    put_time_of_day,
    put_unsigned,
    put_uuid,
)
from kfast._native.text_scan cimport TEXT_SLACK
from kfast._native.text_styles cimport JSON, REPLACE, Style, fill_style, put_escaped
from kfast._native.text_values cimport GROWTH, put_floating


cdef enum:
    SCALAR_ROOM = 192             # of the longest number, quoted
    MOST_LEVELS = 160
    MOST_SCALE = 76
    DECIMAL_LIMBS = 8
    DECIMAL_DIGITS = 90
    LIMB_DIGITS = 9
    LIMB_BASE = 1_000_000_000
    MOST_KEPT_BYTES = 8 << 20     # of the block, from one column to the next
    DAY_SECONDS = 86_400
    FIRST_DAY = -719_528          # of the year 0
    LAST_DAY = 2_932_896          # of the year 9999
    SECOND_ROOM = 24


cdef struct Node:
    int kind
    int digits
    bint flag
    int width
    Py_ssize_t length
    const uint8_t* bits           # NULL without nulls
    const char* data
    Py_ssize_t size
    const int32_t* narrow         # offsets, of either width
    const int64_t* wide
    const char* name
    Py_ssize_t name_size
    int child_count
    Node* children
    # The last second that was written, whose text most values share.
    int64_t second
    int second_size
    char second_text[SECOND_ROOM]


cdef Style JSON_STRING
fill_style(&JSON_STRING, JSON, False)


# --- the column -----------------------------------------------------------------------------------

@cython.final
cdef class _Views:
    """The buffers of a column while its rows are written."""

    cdef Py_buffer* views
    cdef Py_ssize_t count, room

    def __cinit__(self):
        self.views = NULL

    def __dealloc__(self):
        cdef Py_ssize_t n
        for n in range(self.count):
            PyBuffer_Release(&self.views[n])
        free(self.views)

    cdef const char* open(self, object given, Py_ssize_t* size) except? NULL:
        cdef Py_buffer* larger
        if self.count == self.room:
            larger = <Py_buffer*> realloc(self.views, (self.room + 16) * sizeof(Py_buffer))
            if larger is NULL:
                raise MemoryError
            self.views = larger
            self.room += 16
        PyObject_GetBuffer(given, &self.views[self.count], PyBUF_SIMPLE)
        self.count += 1
        size[0] = self.views[self.count - 1].len
        return <const char*> self.views[self.count - 1].buf


cdef int fill(Node* node, tuple given, _Views views, int level) except -1:
    """Fill a node, whose children are freed by `drop`."""
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t length, last
    cdef int n
    kind, digits, flag, width, rows, bits, data, offsets, offset_bytes, name, children = given
    if level > MOST_LEVELS:
        raise ValueError("a column is nested too deep")
    node.kind, node.digits, node.flag, node.width = kind, digits, flag, width
    if not -MOST_SCALE <= node.digits <= MOST_SCALE:
        raise ValueError(f"{digits} digits")
    node.length = length = rows
    node.name, node.name_size = <bytes> name, len(<bytes> name)
    if bits is not None:
        node.bits = <const uint8_t*> views.open(bits, &size)
        if size < (length + 7) // 8:
            raise ValueError(f"{size} bytes of validity for {length} rows")
    if data is not None:
        node.data = views.open(data, &node.size)
        if node.size < length * node.width:
            raise ValueError(f"{node.size} bytes for {length} rows of {node.width}")
    if children:
        node.children = <Node*> calloc(len(<tuple> children), sizeof(Node))
        if node.children is NULL:
            raise MemoryError
    for n in range(len(<tuple> children)):
        node.child_count = n + 1
        fill(&node.children[n], (<tuple> children)[n], views, level + 1)
        if node.kind == KIND_STRUCT and node.children[n].length < length:
            raise ValueError(f"a member of {node.children[n].length} of {length} rows")
    if offsets is None:
        return 0
    if offset_bytes == 8:
        node.wide = <const int64_t*> views.open(offsets, &size)
    else:
        node.narrow = <const int32_t*> views.open(offsets, &size)
    if size < (length + 1) * <Py_ssize_t> offset_bytes:
        raise ValueError(f"{size} bytes of offsets for {length} rows")
    last = offset_of(node, length)
    if data is not None and last > node.size:
        raise ValueError(f"offsets up to {last} of {node.size} bytes")
    for n in range(node.child_count):
        if last > node.children[n].length:
            raise ValueError(f"offsets up to {last} of {node.children[n].length} items")
    return 0


cdef void drop(Node* node) noexcept:
    cdef int n
    for n in range(node.child_count):
        drop(&node.children[n])
    free(node.children)


cdef inline Py_ssize_t offset_of(const Node* node, Py_ssize_t row) noexcept nogil:
    return node.narrow[row] if node.wide is NULL else node.wide[row]


cdef inline bint is_null(const Node* node, Py_ssize_t row) noexcept nogil:
    return node.bits is not NULL and not node.bits[row >> 3] >> (row & 7) & 1


# --- writing --------------------------------------------------------------------------------------

cdef inline char* room(Out* out, Py_ssize_t size) noexcept nogil:
    """Return where so many bytes may be written, and TEXT_SLACK more; NULL without memory."""
    cdef char* larger
    cdef Py_ssize_t capacity = out.capacity
    cdef Py_ssize_t needed = out.used + size + TEXT_SLACK
    if needed > capacity:
        larger = resized_block(out.text, out.used, &capacity, max(needed, 2 * capacity))
        if larger is NULL:
            return NULL
        out.text, out.capacity = larger, capacity
    return out.text + out.used


cdef inline bint put(Out* out, const char* text, Py_ssize_t size) noexcept nogil:
    cdef char* p = room(out, size)
    if p is NULL:
        return False
    memcpy(p, text, size)
    out.used += size
    return True


cdef bint put_string(
    Out* out, const char* text, Py_ssize_t size, Py_ssize_t readable, bint is_json
) noexcept nogil:
    cdef Py_ssize_t stopped = 0
    cdef char* p
    if not is_json:
        return put(out, text, size)
    p = room(out, GROWTH * size + 2)
    if p is NULL:
        return False
    p[0] = c'"'
    p = put_escaped(
        p + 1, <const uint8_t*> text, size, readable, &JSON_STRING, REPLACE, &stopped)
    p[0] = c'"'
    out.used = p + 1 - out.text
    return True


cdef bint put_binary(Out* out, const char* data, Py_ssize_t size, bint is_json) noexcept nogil:
    cdef char* p = room(out, (size + 2) // 3 * 4 + 2)
    if p is NULL:
        return False
    p[0] = c'"'
    p = put_base64(p + is_json, <const uint8_t*> data, size)
    p[0] = c'"'
    out.used = p + is_json - out.text
    return True


cdef bint put_raw(
    Out* out, const char* text, Py_ssize_t size, Py_ssize_t readable, bint is_json
) noexcept nogil:
    """JSON as a decoder has let it through; what is not JSON in every part is a string."""
    cdef Py_ssize_t bad = 0
    cdef Py_ssize_t copied
    cdef char* p = room(out, size)
    if p is NULL:
        return False
    copied = copy_json(<uint8_t*> p, <const uint8_t*> text, size, readable, &bad)
    if copied < 0:
        return put_string(out, text, size, readable, is_json)
    out.used += copied
    return True


cdef bint put_value(Out* out, Node* node, Py_ssize_t row, bint is_json) noexcept nogil:
    """Write a value; False without memory."""
    cdef Py_ssize_t start, size
    cdef int32_t index
    cdef char* p
    if is_null(node, row):
        return put(out, b"null", 4)
    if node.kind == KIND_STRUCT:
        return put_struct(out, node, row)
    if node.kind == KIND_LIST:
        return put_list(out, node, row)
    if node.kind == KIND_MAP:
        return put_map(out, node, row)
    if node.kind == KIND_STRING or node.kind == KIND_BINARY or node.kind == KIND_RAW:
        start = offset_of(node, row)
        size = offset_of(node, row + 1) - start
        if node.kind == KIND_STRING:
            return put_string(out, node.data + start, size, node.size - start, is_json)
        if node.kind == KIND_RAW and node.flag:
            return put_raw(out, node.data + start, size, node.size - start, is_json)
        return put_binary(out, node.data + start, size, is_json)
    if node.kind == KIND_FIXED_BINARY:
        return put_binary(out, node.data + row * node.width, node.width, is_json)
    if node.kind == KIND_DICTIONARY:
        index = (<const int32_t*> node.data)[row]
        if not 0 <= index < node.children.length:
            return put(out, b"null", 4)
        return put_value(out, node.children, index, is_json)
    p = room(out, SCALAR_ROOM)
    if p is not NULL:
        p = put_scalar(p, node, row, is_json)
    if p is NULL:
        return False
    out.used = p - out.text
    return True


cdef bint put_struct(Out* out, Node* node, Py_ssize_t row) noexcept nogil:
    cdef int n
    cdef Node* member
    if not put(out, b"{", 1):
        return False
    for n in range(node.child_count):
        member = &node.children[n]
        if not put(out, member.name, member.name_size) or not put_value(out, member, row, True):
            return False
    return put(out, b"}", 1)


cdef bint put_list(Out* out, Node* node, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t start = offset_of(node, row)
    cdef Py_ssize_t item
    if not put(out, b"[", 1):
        return False
    for item in range(start, offset_of(node, row + 1)):
        if item > start and not put(out, b",", 1):
            return False
        if not put_value(out, node.children, item, True):
            return False
    return put(out, b"]", 1)


cdef bint put_map(Out* out, Node* node, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t start = offset_of(node, row)
    cdef Py_ssize_t item
    # Names of members are strings: a key that is a number gets quotes.
    cdef bint is_number = node.children.kind <= KIND_FLOAT64
    if not put(out, b"{", 1):
        return False
    for item in range(start, offset_of(node, row + 1)):
        if item > start and not put(out, b",", 1):
            return False
        if is_number and not put(out, b'"', 1):
            return False
        if not put_value(out, node.children, item, not is_number):
            return False
        if not put(out, b'":', 2) if is_number else not put(out, b":", 1):
            return False
        if not put_value(out, node.children + 1, item, True):
            return False
    return put(out, b"}", 1)


# --- scalars --------------------------------------------------------------------------------------

cdef char* put_scalar(char* p, Node* node, Py_ssize_t row, bint is_json) noexcept nogil:
    cdef const char* at = node.data + row * node.width
    cdef double number
    if node.kind == KIND_FLOAT32 or node.kind == KIND_FLOAT64:
        number = (<const float*> at)[0] if node.kind == KIND_FLOAT32 else (<const double*> at)[0]
        if number - number == 0:
            return put_floating(p, number, node.kind == KIND_FLOAT64)
        p[0] = c'"'
        p += is_json
        if number != number:
            p = put_bytes(p, b"NaN", 3)
        elif number > 0:
            p = put_bytes(p, b"Infinity", 8)
        else:
            p = put_bytes(p, b"-Infinity", 9)
        p[0] = c'"'
        return p + is_json
    if node.kind == KIND_BOOL:
        return put_bytes(p, b"true", 4) if at[0] else put_bytes(p, b"false", 5)
    if node.kind == KIND_UINT64:
        return put_unsigned(p, (<const uint64_t*> at)[0])
    if node.kind == KIND_DECIMAL128 or node.kind == KIND_DECIMAL256:
        return put_decimal(p, <const uint32_t*> at, node.width // 4, node.digits)
    if node.kind == KIND_UUID:
        p[0] = c'"'
        p = put_uuid(p + is_json, <const uint8_t*> at)
        p[0] = c'"'
        return p + is_json
    if node.kind == KIND_TIMESTAMP:
        return put_timestamp(p, node, (<const int64_t*> at)[0], is_json)
    if node.kind == KIND_DATE32:
        return put_date(p, (<const int32_t*> at)[0], is_json)
    if node.kind == KIND_TIME32 or node.kind == KIND_TIME64:
        return put_clock(p, node, integer_of(node, at), is_json)
    return put_int(p, integer_of(node, at))


cdef inline int64_t integer_of(const Node* node, const char* at) noexcept nogil:
    if node.width == 8:
        return (<const int64_t*> at)[0]
    if node.kind == KIND_UINT32:
        return (<const uint32_t*> at)[0]
    if node.width == 4:
        return (<const int32_t*> at)[0]
    if node.kind == KIND_UINT8:
        return (<const uint8_t*> at)[0]
    if node.kind == KIND_INT8:
        return (<const int8_t*> at)[0]
    if node.kind == KIND_UINT16:
        return (<const uint16_t*> at)[0]
    return (<const int16_t*> at)[0]


cdef char* put_timestamp(char* p, Node* node, int64_t value, bint is_json) noexcept nogil:
    cdef int64_t per_second = <int64_t> POW10[node.digits]
    cdef int64_t second = floor_division(value, per_second)
    cdef Moment moment
    cdef char* end
    if not <int64_t> FIRST_DAY * DAY_SECONDS <= second < (<int64_t> LAST_DAY + 1) * DAY_SECONDS:
        return put_int(p, value)
    if node.second != second or not node.second_size:
        moment_of(&moment, second * 1000)
        end = put_day(node.second_text, &moment)
        end[0] = c'T'
        end = put_time_of_day(end + 1, &moment)
        node.second, node.second_size = second, end - node.second_text
    p[0] = c'"'
    p = put_bytes(p + is_json, node.second_text, node.second_size)
    if node.digits:
        p[0] = c'.'
        p = put_padded(p + 1, value - second * per_second, node.digits)
    if node.flag:
        p[0] = c'Z'
        p += 1
    p[0] = c'"'
    return p + is_json


cdef char* put_date(char* p, int64_t days, bint is_json) noexcept nogil:
    cdef Moment moment
    if not FIRST_DAY <= days <= LAST_DAY:
        return put_int(p, days)
    moment_of(&moment, days * DAY_SECONDS * 1000)
    p[0] = c'"'
    p = put_day(p + is_json, &moment)
    p[0] = c'"'
    return p + is_json


cdef char* put_clock(char* p, const Node* node, int64_t value, bint is_json) noexcept nogil:
    cdef int64_t per_second = <int64_t> POW10[node.digits]
    cdef Moment moment
    if not 0 <= value < DAY_SECONDS * per_second:
        return put_int(p, value)
    moment_of(&moment, value // per_second * 1000)
    p[0] = c'"'
    p = put_time_of_day(p + is_json, &moment)
    if node.digits:
        p[0] = c'.'
        p = put_padded(p + 1, value % per_second, node.digits)
    p[0] = c'"'
    return p + is_json


cdef char* put_decimal(char* p, const uint32_t* words, int count, int scale) noexcept nogil:
    """A number of so many words, the lowest first, with ``scale`` digits behind the point."""
    cdef uint32_t limbs[DECIMAL_LIMBS]
    cdef char digits[DECIMAL_DIGITS]
    cdef int n, size, at = DECIMAL_DIGITS
    cdef uint64_t part
    cdef uint64_t carry = 1
    memcpy(limbs, words, 4 * count)
    if limbs[count - 1] >> 31:
        p[0] = c'-'
        p += 1
        for n in range(count):
            carry += <uint32_t> ~limbs[n]
            limbs[n] = <uint32_t> carry
            carry >>= 32
    while count:
        # Nine digits at a time: the remainder of a long division.
        part = 0
        for n in range(count - 1, -1, -1):
            part = part << 32 | limbs[n]
            limbs[n] = <uint32_t> (part // LIMB_BASE)
            part %= LIMB_BASE
        while count and not limbs[count - 1]:
            count -= 1
        at -= LIMB_DIGITS
        put_padded(digits + at, <int64_t> part, LIMB_DIGITS)
    while at < DECIMAL_DIGITS - 1 and digits[at] == c'0':
        at += 1
    size = DECIMAL_DIGITS - at
    if scale <= 0:
        p = put_bytes(p, digits + at, size)
        return p if digits[at] == c'0' else put_padded(p, 0, -scale)
    if size <= scale:
        p = put_bytes(p, b"0.", 2)
        p = put_padded(p, 0, scale - size)
        return put_bytes(p, digits + at, size)
    p = put_bytes(p, digits + at, size - scale)
    p[0] = c'.'
    return put_bytes(p + 1, digits + DECIMAL_DIGITS - scale, scale)


# --- rows -----------------------------------------------------------------------------------------

cdef bint put_rows(
    Out* out, Node* node, int64_t* starts, int32_t* lengths, bint is_json
) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(node.length):
        starts[row] = out.used
        lengths[row] = -1
        if is_null(node, row):
            continue
        if not put_value(out, node, row, is_json) or out.used - starts[row] > INT32_MAX:
            return False
        lengths[row] = <int32_t> (out.used - starts[row])
    # What is behind a text may be read, up to `size`.
    return room(out, 0) is not NULL


@cython.final
cdef class ColumnTexts:
    """The texts of one column at a time, in memory that is used again.

    ``len`` and ``[row]``, bytes or None, are for tests; the text writer reads the texts in place.
    """

    def __cinit__(self, *, bint is_json):
        self.is_json = is_json
        self.starts = NULL
        self.lengths = NULL

    def __dealloc__(self):
        if self.out.text is not NULL:
            release_block(self.out.text, self.out.capacity)
        free(self.starts)
        free(self.lengths)

    def __len__(self):
        return self.texts.count

    def __getitem__(self, Py_ssize_t row):
        if not 0 <= row < self.texts.count:
            raise IndexError(f"row {row} of {self.texts.count}")
        if self.lengths[row] < 0:
            return None
        return self.out.text[self.starts[row]:self.starts[row] + self.lengths[row]]

    def write(self, tuple column not None):
        """Replace the texts by those of a column, all rows of it."""
        cdef _Views views = _Views()
        cdef Node node
        cdef bint is_done = False
        self.texts.count = 0
        memset(&node, 0, sizeof(Node))
        try:
            fill(&node, column, views, 0)
            self.begin(node.length)
            with nogil:
                is_done = put_rows(&self.out, &node, self.starts, self.lengths, self.is_json)
            if not is_done:
                raise MemoryError(f"no memory for the texts of {node.length} rows")
        finally:
            drop(&node)
        self.texts.text, self.texts.size = self.out.text, self.out.used
        self.texts.starts, self.texts.lengths = self.starts, self.lengths
        self.texts.count = node.length

    cdef int begin(self, Py_ssize_t rows) except -1:
        """Forget what was written, and make room for rows."""
        cdef void* larger
        self.out.used = 0
        if self.out.capacity > MOST_KEPT_BYTES:
            release_block(self.out.text, self.out.capacity)
            self.out.text, self.out.capacity = NULL, 0
        if rows <= self.rows_room:
            return 0
        larger = realloc(self.starts, rows * sizeof(int64_t))
        if larger is NULL:
            raise MemoryError
        self.starts = <int64_t*> larger
        larger = realloc(self.lengths, rows * sizeof(int32_t))
        if larger is NULL:
            raise MemoryError
        self.lengths = <int32_t*> larger
        self.rows_room = rows
        return 0
