"""C interface of column builders: the appends of decode loops, inlined where they are hot.

The rules are in ``builders.pyx``. A node is addressed by its number in the preorder of the schema's
tree; node 0 is the root and has one value per row.

Appends return 0 or one of ``BUILD_NO_MEMORY``, ``BUILD_TOO_LARGE`` and ``BUILD_FULL``; functions
that return a pointer return NULL instead, and ``failure`` of the builders has the code.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfast._native.buffers cimport OwnedBuffer
from kfast._native.text_table cimport TextTable


cdef enum Storage:
    FIXED = 0
    BYTES = 1
    LIST = 2
    STRUCT = 3
    DICTIONARY = 4

cdef enum:
    MODE_RAISE = 0          # of decoders: the first bad row ends the decoding
    BUILD_NO_MEMORY = -1
    BUILD_TOO_LARGE = -2    # this row alone is over a limit: an error of the row
    BUILD_FULL = -3         # the rows before leave no room: roll back and end the decoding
    LAYOUT_ITEMS = 4        # int32 per node of a layout: storage, width, children, is_nullable
    MAX_DEPTH = 128         # levels of a tree
    BYTES_SLACK = 32        # bytes after the room of `bytes_room` that may be written, too
    ERROR_INDEXES = 8
    DATA = 0                # blocks of a node
    OFFSETS = 1
    VALIDITY = 2
    MOST_PER_BYTE = 1 << 30     # times the size of a value it is an int64

cdef enum ErrorCode:
    EMPTY = 1
    TRUNCATED = 2
    TRAILING = 3
    SYNTAX = 4
    UTF8 = 5
    TYPE = 6
    RANGE = 7
    MISSING = 8
    DUPLICATE_KEY = 9
    DEPTH = 10
    MAGIC = 11
    UNKNOWN_SCHEMA = 12
    SCHEMA = 13
    RESOLUTION = 14
    ENUM = 15
    UNION = 16
    TOO_LARGE = 17


# A row that could not be decoded; 64 bytes, native byte order;
# read by kfast/columns/record_errors.py.
cdef struct ErrorRow:
    int64_t row
    int64_t position                    # of the bad byte in the value
    int32_t code
    int32_t node                        # of the path in the plan, -1 for the document
    int32_t detail                      # what the format makes of it
    int32_t depth                       # how many list indexes are known, at most ERROR_INDEXES
    int32_t indexes[ERROR_INDEXES]      # outermost first


cdef struct Builder:
    int32_t storage
    int32_t width           # FIXED: bytes of a value; DICTIONARY: 4; else 0
    int32_t parent          # -1: the root
    int32_t first_child     # the following node, or -1
    int32_t child_count
    int32_t next_sibling    # -1: none
    int32_t end             # number of the node behind this one's subtree
    bint is_nullable        # always of the root
    int64_t length          # values so far; a null counts
    int64_t room            # values for which there is memory
    int64_t nulls
    uint8_t* validity       # one byte per value, 1 where there is one; NULL until the first null
    char* data
    int64_t used            # BYTES: bytes of all values
    int64_t data_room       # BYTES: without BYTES_SLACK
    int32_t* offsets        # BYTES and LIST: length + 1
    int64_t capacities[3]   # of the blocks data, offsets, validity
    TextTable* texts        # DICTIONARY


cdef class ColumnBuilders:
    cdef Builder* nodes
    cdef int32_t count
    cdef int32_t dictionaries
    cdef int failure
    cdef int64_t mark                   # rows at the begin of the present one
    cdef int64_t rows                   # that are expected
    cdef int64_t value_bytes            # of these rows
    cdef readonly int64_t memory_bytes  # of all blocks
    # Limits, set before the first row: of all blocks, of one row's columns, of 32-bit offsets.
    cdef public int64_t most_bytes
    cdef public int64_t most_row_bytes
    cdef int64_t most_per_byte          # bytes of columns that a byte of a value makes at most
    cdef public int64_t most_items
    # Set when `memory_bytes` has passed `most_bytes`: decode loops end after the present row.
    cdef readonly bint is_full
    cdef ErrorRow* errors
    cdef int64_t error_count
    cdef int64_t error_room


# Checks the layout (ValueError). Memory is reserved for `rows` rows made of `value_bytes` bytes, at
# most `most_bytes`.
cdef ColumnBuilders new_builders(
    const int32_t* layout, int32_t nodes, int64_t rows, int64_t value_bytes, int64_t most_bytes)

# The texts of a DICTIONARY node, before its first value; numbered in their order.
cdef int set_categories(ColumnBuilders b, int32_t node, object categories) except -1

# The columns as nested tuples, and the builders can only be dropped after it: see
# builders.pyx.
cdef object finish(ColumnBuilders b)
cdef OwnedBuffer finish_errors(ColumnBuilders b)

cdef int grow(ColumnBuilders b, int32_t node) noexcept nogil
cdef int grow_bytes(ColumnBuilders b, int32_t node, int64_t more) noexcept nogil
cdef int too_many_items(ColumnBuilders b) noexcept nogil

# A null, at a node that is nullable. At others, zeros: what a null struct has in its children. A
# struct pads all children, nested structs too; lists are empty.
cdef int append_null(ColumnBuilders b, int32_t node) noexcept nogil
# Looks the text up, or adds it. The text is UTF-8.
cdef int append_text_index(
    ColumnBuilders b, int32_t node, const char* text, int64_t n) noexcept nogil
# A value with all its children, as kfast.schemas.layout.constant_bytes() encodes it.
cdef int append_constant(
    ColumnBuilders b, int32_t node, const char* constants, int64_t position) noexcept nogil
# Cuts the node and all below it back to `length` values.
cdef void cut(ColumnBuilders b, int32_t node, int64_t length) noexcept nogil
cdef void mark_texts(ColumnBuilders b) noexcept nogil
cdef void roll_back_row(ColumnBuilders b) noexcept nogil
# Bytes that the present row takes in all columns so far; a walk over all nodes.
cdef int64_t row_bytes(ColumnBuilders b) noexcept nogil
cdef int add_error(
    ColumnBuilders b, int64_t row, int32_t code, int32_t node, int64_t position, int32_t detail,
    const int32_t* indexes, int32_t depth) noexcept nogil
# Rolls the present row back: it has an error, or `code` is one of the builders. Unless these end
# the decoding, the error is noted, and the row is a null except with MODE_RAISE. Returns whether
# the next row is to be decoded; without memory `failure` says so.
cdef bint end_bad_row(
    ColumnBuilders b, int mode, int64_t row, int32_t code, int32_t node, int64_t position,
    int32_t detail, const int32_t* indexes, int32_t depth) noexcept nogil


cdef inline void begin_row(ColumnBuilders b) noexcept nogil:
    # Lengths of all other nodes at this moment follow from the root's.
    b.mark = b.nodes[0].length
    if b.dictionaries:
        mark_texts(b)


cdef inline void count_constants(ColumnBuilders b, int64_t constant_bytes) noexcept nogil:
    # What values lack may become constants, as many as these bytes encode.
    b.most_per_byte = min(b.most_per_byte * (1 + constant_bytes), MOST_PER_BYTE)


cdef inline int end_row(ColumnBuilders b, int64_t value_bytes) noexcept nogil:
    # After the last append of a row: room that was there before has let it grow unchecked. A value
    # that is too small for that is not looked at.
    if value_bytes * b.most_per_byte <= b.most_row_bytes or row_bytes(b) <= b.most_row_bytes:
        return 0
    b.failure = BUILD_TOO_LARGE
    return BUILD_TOO_LARGE


cdef inline int64_t length_of(ColumnBuilders b, int32_t node) noexcept nogil:
    return b.nodes[node].length


cdef inline void drop_last(ColumnBuilders b, int32_t node) noexcept nogil:
    cut(b, node, b.nodes[node].length - 1)


cdef inline int32_t node_of(ColumnBuilders b, const Builder* n) noexcept nogil:
    return <int32_t> (n - b.nodes)


cdef inline void count_value(Builder* n) noexcept nogil:
    # Lengths are read once: whatever is written may change them, as far as a compiler knows.
    cdef int64_t at = n.length
    n.length = at + 1
    if n.validity is not NULL:
        n.validity[at] = 1


cdef inline char* fixed_slot(ColumnBuilders b, int32_t node) noexcept nogil:
    cdef Builder* n = &b.nodes[node]
    cdef char* slot
    if n.length == n.room and grow(b, node) < 0:
        return NULL
    slot = n.data + n.length * n.width
    count_value(n)
    return slot


cdef inline int append_fixed(ColumnBuilders b, int32_t node, const void* value) noexcept nogil:
    cdef int32_t width = b.nodes[node].width
    cdef char* slot = fixed_slot(b, node)
    if slot is NULL:
        return b.failure
    # Copies of a constant size are single instructions.
    if width == 8:
        memcpy(slot, value, 8)
    elif width == 4:
        memcpy(slot, value, 4)
    else:
        memcpy(slot, value, width)
    return 0


# Where there is room for a value: for decoders that have looked.
cdef inline void put_word(Builder* n, uint64_t word) noexcept nogil:
    cdef int64_t at = n.length
    count_value(n)
    memcpy(n.data + 8 * at, &word, 8)


cdef inline void put_half_word(Builder* n, uint32_t word) noexcept nogil:
    cdef int64_t at = n.length
    count_value(n)
    memcpy(n.data + 4 * at, &word, 4)


cdef inline void put_bytes(Builder* n, int64_t size) noexcept nogil:
    # `size` bytes were written behind those that are used.
    cdef int64_t at = n.length
    cdef int64_t used = n.used + size
    count_value(n)
    n.used = used
    n.offsets[at + 1] = <int32_t> used


# By the address of the node: decoders have it at hand for each value.
cdef inline int append_word(ColumnBuilders b, Builder* n, uint64_t word) noexcept nogil:
    cdef int64_t at = n.length
    if at == n.room and grow(b, node_of(b, n)) < 0:
        return b.failure
    count_value(n)
    memcpy(n.data + 8 * at, &word, 8)
    return 0


cdef inline int append_half_word(ColumnBuilders b, Builder* n, uint32_t word) noexcept nogil:
    cdef int64_t at = n.length
    if at == n.room and grow(b, node_of(b, n)) < 0:
        return b.failure
    count_value(n)
    memcpy(n.data + 4 * at, &word, 4)
    return 0


cdef inline int append_byte(ColumnBuilders b, Builder* n, uint8_t byte) noexcept nogil:
    cdef int64_t at = n.length
    if at == n.room and grow(b, node_of(b, n)) < 0:
        return b.failure
    count_value(n)
    n.data[at] = <char> byte
    return 0


cdef inline int append_int64(ColumnBuilders b, int32_t node, int64_t value) noexcept nogil:
    return append_word(b, &b.nodes[node], <uint64_t> value)


cdef inline int append_int32(ColumnBuilders b, int32_t node, int32_t value) noexcept nogil:
    return append_half_word(b, &b.nodes[node], <uint32_t> value)


cdef inline int append_float64(ColumnBuilders b, int32_t node, double value) noexcept nogil:
    cdef uint64_t bits
    memcpy(&bits, &value, 8)
    return append_word(b, &b.nodes[node], bits)


cdef inline int append_index(ColumnBuilders b, int32_t node, int32_t index) noexcept nogil:
    # DICTIONARY: the number of a category that is there.
    return append_int32(b, node, index)


cdef inline char* bytes_room(ColumnBuilders b, Builder* n, int64_t size) noexcept nogil:
    if size > n.data_room - n.used and grow_bytes(b, node_of(b, n), size) < 0:
        return NULL
    return n.data + n.used


cdef inline int end_bytes(ColumnBuilders b, Builder* n, int64_t size) noexcept nogil:
    # `size` bytes, at most as many as asked for, were written to `bytes_room`.
    if n.length == n.room and grow(b, node_of(b, n)) < 0:
        return b.failure
    put_bytes(n, size)
    return 0


cdef inline int append_bytes(
        ColumnBuilders b, int32_t node, const char* data, int64_t size) noexcept nogil:
    cdef Builder* n = &b.nodes[node]
    cdef char* room = bytes_room(b, n, size)
    if room is NULL:
        return b.failure
    if size:
        memcpy(room, data, size)
    return end_bytes(b, n, size)


cdef inline int append_struct(ColumnBuilders b, Builder* n) noexcept nogil:
    if n.length == n.room and grow(b, node_of(b, n)) < 0:
        return b.failure
    count_value(n)
    return 0


cdef inline int end_list(ColumnBuilders b, int32_t node) noexcept nogil:
    # A map has two children of one length.
    cdef Builder* n = &b.nodes[node]
    cdef int64_t items = b.nodes[n.first_child].length
    if items > b.most_items:
        return too_many_items(b)
    if n.length == n.room and grow(b, node) < 0:
        return b.failure
    n.offsets[n.length + 1] = <int32_t> items
    count_value(n)
    return 0
