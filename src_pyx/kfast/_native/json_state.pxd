"""State of JSON decoding: operations of a plan, the document under way, and its errors.

See ``json_decode.pyx`` for the rules; all functions return where to go on, or NULL after ``fail``.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset

from kfast._native.builders cimport (
    BUILD_NO_MEMORY, BUILD_TOO_LARGE, ERROR_INDEXES, MISSING, TOO_LARGE, TYPE, ColumnBuilders,
    append_constant, append_null,
)
from kfast._native.json_scan cimport (
    PATTERN_BYTES, SCAN_SLACK, Cursor, fail, skip_value, skip_word,
)
from kfast._native.map_keys cimport KeySlots


cdef enum:
    PATH_OBJECT = 32
    # Flags of operations, as in json_plan.py.
    REQUIRED = 1
    IS_UTC = 2
    TEXT_ONLY = 4
    EPOCH_ONLY = 8
    BASE64URL = 16
    HEX = 32
    PLAIN_TEXT = 64
    NUMBER_TEXT = 256
    INTEGRAL_FLOAT = 512
    STRINGIFY = 1024
    TRUNCATE_TIME = 2048
    HAS_PATH_OBJECTS = 4096

    # What was found instead of a value of the column: `detail` of a TYPE error.
    FOUND_TEXT = 1
    FOUND_NUMBER = 2
    FOUND_BOOL = 3
    FOUND_OBJECT = 4
    FOUND_ARRAY = 5

    MOST_UNKNOWN = 8        # names of fields without a column that are kept
    UNKNOWN_BYTES = 48      # of each


cdef struct Op:
    int32_t kind
    int32_t node
    int32_t flags
    int32_t constant
    int32_t first
    int32_t count
    int32_t unit
    int32_t scale


cdef struct Member:
    int32_t key
    int32_t size
    int32_t op


cdef struct ExpectedKey:
    char pattern[PATTERN_BYTES]
    int32_t size
    uint32_t mask       # a bit for each byte
    const Op* op        # of the member, NULL: not wanted


# The keys of one operation's objects.
cdef struct ObjectKeys:
    int32_t first       # member
    int32_t count       # members
    int32_t known       # keys expected, in their order
    int32_t room
    bint is_learning    # from the present object
    int32_t misses      # objects one after the other with other keys than expected
    int32_t unordered   # so many objects more are not compared with what is expected
    bint is_seen        # a PATH_OBJECT: in the present object around it
    int32_t mask        # of the table
    ExpectedKey* expected
    int32_t* places     # of each member among the expected keys, -1: none
    int32_t* table      # members by the hash of their keys, -1: free
    uint64_t* words     # of each member the first 8 bytes of its key


# The name of a field that has no column.
cdef struct UnknownName:
    int32_t node        # the struct
    int32_t size
    char text[UNKNOWN_BYTES]


# One decoding under way. `c` is the present document.
cdef struct State:
    Cursor c
    const Op* ops
    const Member* members
    const char* keys
    const char* constants
    ObjectKeys* objects     # one per operation, empty but for objects
    int32_t op_count
    bint duplicates_last
    int32_t lists           # open ones
    int32_t indexes[ERROR_INDEXES]
    char* scratch           # a text without its escapes
    int64_t scratch_room
    int64_t text_size       # of the number in the scratch
    char* copy              # of a document, with zeros behind it
    int64_t copy_room
    KeySlots known_keys     # of one map
    const uint64_t* powers  # of ten, for floats
    int32_t unknown         # fields of the present row that have no column
    int32_t* unknown_counts     # the same of each row, NULL before the first that has some
    int32_t name_count
    UnknownName names[MOST_UNKNOWN]


# ------------------------------------------------------------------------------------------- errors

cdef inline const char* fail_build(State* s, const char* at, int status) noexcept nogil:
    return fail(&s.c, at, TOO_LARGE if status == BUILD_TOO_LARGE else status)


cdef inline const char* fail_type(State* s, const char* p) noexcept nogil:
    """A value of another kind; it may also be no value at all."""
    cdef int32_t found = FOUND_NUMBER
    if skip_value(&s.c, p, True) is NULL:
        return NULL
    if p[0] == c'"':
        found = FOUND_TEXT
    elif p[0] == c't' or p[0] == c'f':
        found = FOUND_BOOL
    elif p[0] == c'{':
        found = FOUND_OBJECT
    elif p[0] == c'[':
        found = FOUND_ARRAY
    s.c.detail = found
    return fail(&s.c, p, TYPE)


cdef inline const char* fail_missing(State* s, const Op* op, const char* at) noexcept nogil:
    s.c.node = op.node
    return fail(&s.c, at, MISSING)


cdef inline const char* other_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """``null``, or a value of a kind that the column does not take."""
    cdef const char* start = p
    cdef int status
    if p[0] != c'n':
        return fail_type(s, p)
    p = skip_word(&s.c, p, "null", 4)
    if p is NULL:
        return NULL
    if not op.flags & REQUIRED:
        status = append_null(b, op.node)
    elif op.constant >= 0:
        status = append_constant(b, op.node, s.constants, op.constant)
    else:
        return fail_missing(s, op, start)
    return p if status == 0 else fail_build(s, start, status)


cdef inline int append_missing(
        State* s, ColumnBuilders b, const Op* op, int64_t rows, const char* at) noexcept nogil:
    """Give a member that was not in its object a default or null; -1 if it is required."""
    cdef int32_t i
    cdef int status = 0
    if op.kind == PATH_OBJECT:
        for i in range(op.first, op.first + op.count):
            if append_missing(s, b, s.ops + s.members[i].op, rows, at) < 0:
                return -1
        return 0
    if b.nodes[op.node].length == rows:
        return 0
    if op.constant >= 0:
        status = append_constant(b, op.node, s.constants, op.constant)
    elif op.flags & REQUIRED:
        fail_missing(s, op, at)
        return -1
    else:
        status = append_null(b, op.node)
    if status < 0:
        fail_build(s, at, status)
        return -1
    return 0


cdef inline char* scratch(State* s, int64_t size) noexcept nogil:
    """Room for ``size`` bytes and `SCAN_SLACK` more; NULL without memory, which is noted."""
    cdef char* larger
    if size + SCAN_SLACK > s.scratch_room:
        larger = <char*> realloc(s.scratch, 2 * size + SCAN_SLACK)
        if larger is NULL:
            fail(&s.c, s.c.begin, BUILD_NO_MEMORY)
            return NULL
        s.scratch = larger
        s.scratch_room = 2 * size + SCAN_SLACK
    return s.scratch


cdef inline bint copy_document(State* s, const char* text, int64_t size) noexcept nogil:
    """Copy a document to where zeros are behind it, as scanning needs; False without memory."""
    cdef char* larger
    if size + SCAN_SLACK > s.copy_room:
        larger = <char*> realloc(s.copy, 2 * size + SCAN_SLACK)
        if larger is NULL:
            return False
        s.copy = larger
        s.copy_room = 2 * size + SCAN_SLACK
    memcpy(s.copy, text, size)
    memset(s.copy + size, 0, SCAN_SLACK)
    return True
