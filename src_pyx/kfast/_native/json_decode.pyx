"""JSON documents to columns: a whole run of rows without the GIL and without a Python object.

Owns: the rules of JSON values, by the operations of a plan (``kfast/schemas/json_plan.py``). A row
is atomic: an error rolls back all its columns, and is recorded with code, node, indexes of lists
and byte.

* Documents are read in place. One that does not end with a closing bracket, or that lies at the end
  of the buffer, is copied in front of zeros first, so that no read needs a check (``json_scan``).
* Keys: those of the last object of the same operation are expected in the same order, each compared
  as one block with quotes and colon. One or two that are missing are passed over; other keys are
  looked up in a table. After an object with such a key the order is learned again.
* A member of a struct is there if its column has a value more than the struct had rows: a second
  one is a duplicate, and what is missing at the end of the object gets its default or null.
* Fields of objects that no column is read from are skipped, and counted for each row.
* Nesting is bounded by the depth of the schema and of the cursor, whichever is less.

Threads: any; nothing is shared but the plan, which is only read.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kfast._native.builders cimport (
    BUILD_NO_MEMORY, DEPTH, DUPLICATE_KEY, EMPTY, ERROR_INDEXES, SYNTAX, TOO_LARGE,
    TRAILING, TRUNCATED, Builder, ColumnBuilders, append_null, append_struct, begin_row,
    count_constants, cut, drop_last, end_bad_row, end_list, end_row, finish, finish_errors,
    new_builders, put_bytes, put_half_word, put_word,
)
from kfast._native.columns cimport SpanSource, SpanTotals, Spans, open_checked, span_start
from kfast._native.json_keys cimport (
    count_unknown, free_objects, is_key, note_order, set_up_objects, unexpected_key, unknown_fields,
)
from kfast._native.json_scan cimport (
    MOST_DEPTH, SCAN_SLACK, after_space, fail, fail_syntax, is_plain,
    short_text, skip_key, skip_value, unlikely,
)
from kfast._native.json_state cimport *
from kfast._native.json_values cimport *
from kfast._native.kinds cimport *
from kfast._native.map_keys cimport find_repeated
from kfast._native.number_text cimport LARGEST_POWER, POWERS, SMALLEST_POWER
from kfast._native.short_number cimport short_decimal, short_integer
from kfast._native.value_bytes cimport RowNumbers, number_of, row_numbers


cdef uint64_t power_table[2 * POWERS]


def _fill_powers():
    """The first 128 bits of each power of five, rounded down, negative ones up."""
    for power in range(SMALLEST_POWER, LARGEST_POWER + 1):
        if power >= 0:
            exact = 5 ** power
            bits = exact << 128 >> exact.bit_length()
        else:
            exact = 5 ** -power
            bits = (1 << (127 + exact.bit_length())) // exact + 1
        power_table[2 * (power - SMALLEST_POWER)] = bits >> 64
        power_table[2 * (power - SMALLEST_POWER) + 1] = bits & 0xFFFFFFFFFFFFFFFF


_fill_powers()


# ------------------------------------------------------------------------------------------ objects

cdef const char* object_members(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """From behind the opening brace to behind the closing one. A struct has its row already."""
    cdef ObjectKeys* keys = s.objects + (op - s.ops)
    cdef const Member* members = s.members + op.first
    cdef const Op* child = NULL
    cdef const ExpectedKey* expected = keys.expected
    cdef const ExpectedKey* end = expected
    cdef const char* start
    cdef int64_t rows = b.nodes[op.node].length
    cdef int32_t found = 0, i
    cdef bint has_missed = False
    # Keys that are all as expected are not there twice, unless they were when they were learned.
    cdef bint may_repeat = s.duplicates_last
    if s.c.depth >= s.c.max_depth:
        return fail(&s.c, p - 1, DEPTH)
    s.c.depth += 1
    if keys.is_learning:
        keys.known = 0
        for i in range(op.count):
            keys.places[i] = -1
    elif keys.unordered == 0:
        end += keys.known
    p = after_space(&s.c, p)
    if p < s.c.end and p[0] == c'}':
        p += 1
    else:
        while True:
            start = p
            if expected < end and is_key(p, expected):
                child = expected.op
                p += expected.size
                expected += 1
            elif expected + 1 < end and is_key(p, expected + 1):
                child = expected[1].op
                p += expected[1].size
                expected += 2
            elif expected + 2 < end and is_key(p, expected + 2):
                child = expected[2].op
                p += expected[2].size
                expected += 3
            else:
                has_missed = may_repeat = True
                p = unexpected_key(s, keys, p, &expected, &child)
                if p is NULL:
                    return NULL
            p = after_space(&s.c, p)
            if p >= s.c.end:
                return fail(&s.c, p, TRUNCATED)
            if child is NULL:
                s.unknown += 1
                p = skip_value(&s.c, p, False)
                if p is NULL:
                    return NULL
            else:
                if may_repeat and is_there(s, b, child, rows):
                    if not s.duplicates_last:
                        s.c.node = child.node
                        return fail(&s.c, start, DUPLICATE_KEY)
                    take_back(s, b, child, rows)
                    found -= 1
                p = value(s, b, child, p)
                if p is NULL:
                    return NULL
                found += 1
            if p[0] == c',' and p < s.c.end:
                p = after_space(&s.c, p + 1)
                continue
            p = after_space(&s.c, p)
            if p >= s.c.end:
                return fail(&s.c, p, TRUNCATED)
            if p[0] == c'}':
                p += 1
                break
            if p[0] != c',':
                return fail(&s.c, p, SYNTAX)
            p = after_space(&s.c, p + 1)
    note_order(keys, has_missed)
    if found < op.count:
        for i in range(op.count):
            if append_missing(s, b, s.ops + members[i].op, rows, p - 1) < 0:
                return NULL
    forget_members(s, op)
    s.c.depth -= 1
    return p


cdef inline bint is_there(
        const State* s, ColumnBuilders b, const Op* op, int64_t rows) noexcept nogil:
    """Whether the present object has had this member."""
    # The node of a PATH_OBJECT is the struct, which has its row.
    return b.nodes[op.node].length == rows and (
        op.kind != PATH_OBJECT or s.objects[op - s.ops].is_seen)


cdef void take_back(
        const State* s, ColumnBuilders b, const Op* op, int64_t rows) noexcept nogil:
    """Drop the value of a member, or all that come of it."""
    cdef int32_t i
    if op.kind == PATH_OBJECT:
        for i in range(op.first, op.first + op.count):
            take_back(s, b, s.ops + s.members[i].op, rows)
    elif b.nodes[op.node].length == rows:
        drop_last(b, op.node)


cdef inline void forget_members(State* s, const Op* op) noexcept nogil:
    """The next object of this operation has had no PATH_OBJECT yet."""
    cdef int32_t i, child
    if op.flags & HAS_PATH_OBJECTS:
        for i in range(op.first, op.first + op.count):
            child = s.members[i].op
            s.objects[child].is_seen = False


cdef const char* path_object(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """An object on the way to lifted fields; null has none of them."""
    cdef const char* end
    s.objects[op - s.ops].is_seen = True
    if p[0] == c'{':
        return object_members(s, b, op, p + 1)
    if p[0] != c'n':
        return fail_type(s, p)
    end = skip_word(&s.c, p, "null", 4)
    if end is NULL or append_missing(s, b, op, b.nodes[op.node].length, p) < 0:
        return NULL
    return end


cdef const char* struct_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    if p[0] != c'{':
        return other_value(s, b, op, p)
    if append_struct(b, &b.nodes[op.node]) < 0:
        return fail_build(s, p, b.failure)
    return object_members(s, b, op, p + 1)


# ----------------------------------------------------------------------------------- lists and maps

cdef const char* list_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    cdef const Op* item = s.ops + op.first
    cdef const char* start = p
    cdef int32_t level = s.lists
    cdef int32_t index = 0
    if p[0] != c'[':
        return other_value(s, b, op, p)
    if s.c.depth >= s.c.max_depth:
        return fail(&s.c, p, DEPTH)
    s.c.depth += 1
    s.lists += 1
    p = after_space(&s.c, p + 1)
    if p < s.c.end and p[0] == c']':
        p += 1
    else:
        while True:
            if level < ERROR_INDEXES:
                s.indexes[level] = index
            if p >= s.c.end:
                return fail(&s.c, p, TRUNCATED)
            p = value(s, b, item, p)
            if p is NULL:
                return NULL
            index += 1
            p = after_space(&s.c, p)
            if p >= s.c.end:
                return fail(&s.c, p, TRUNCATED)
            if p[0] == c']':
                p += 1
                break
            if p[0] != c',':
                return fail(&s.c, p, SYNTAX)
            p = after_space(&s.c, p + 1)
    s.c.depth -= 1
    s.lists = level
    return p if end_list(b, op.node) == 0 else fail_build(s, start, b.failure)


cdef const char* map_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """An object of any keys. With duplicates allowed it is read twice: keys first."""
    cdef const char* start = p
    cdef const char* end
    cdef int64_t first = b.nodes[op.node + 1].length
    cdef int64_t entries
    cdef int repeated
    cdef char* is_dropped = NULL
    if p[0] != c'{':
        return other_value(s, b, op, p)
    if s.c.depth >= s.c.max_depth:
        return fail(&s.c, p, DEPTH)
    s.c.depth += 1
    if s.duplicates_last:
        end = map_entries(s, b, op, p + 1, True, NULL)
        if end is NULL:
            return NULL
        entries = b.nodes[op.node + 1].length - first
        is_dropped = <char*> calloc(entries + 1, 1)
        if is_dropped is NULL or find_repeated(
                &s.known_keys, b, op.node + 1, first, is_dropped) < 0:
            free(is_dropped)
            return fail(&s.c, start, BUILD_NO_MEMORY)
        cut(b, op.node + 1, first)
    p = map_entries(s, b, op, p + 1, False, is_dropped)
    if is_dropped is not NULL:
        free(is_dropped)
    elif p is not NULL:
        repeated = find_repeated(&s.known_keys, b, op.node + 1, first, NULL)
        if repeated:
            return fail(&s.c, start, DUPLICATE_KEY if repeated > 0 else BUILD_NO_MEMORY)
    if p is NULL:
        return NULL
    s.c.depth -= 1
    return p if end_list(b, op.node) == 0 else fail_build(s, start, b.failure)


cdef const char* map_entries(
        State* s, ColumnBuilders b, const Op* op, const char* p, bint is_keys_only,
        const char* is_dropped) noexcept nogil:
    """From behind the opening brace to behind the closing one; dropped entries are skipped."""
    cdef const Op* item = s.ops + op.first
    cdef int64_t entry = 0
    cdef bint is_skipped
    p = after_space(&s.c, p)
    if p < s.c.end and p[0] == c'}':
        return p + 1
    while True:
        is_skipped = is_dropped is not NULL and is_dropped[entry]
        if is_skipped:
            p = skip_key(&s.c, p)
        else:
            if p >= s.c.end or p[0] != c'"':
                return fail_syntax(&s.c, p)
            p = string_value(s, b, op.node + 1, p + 1)
            if p is NULL:
                return NULL
            p = after_space(&s.c, p)
            if p >= s.c.end or p[0] != c':':
                return fail_syntax(&s.c, p)
            p = after_space(&s.c, p + 1)
        if p is NULL:
            return NULL
        if p >= s.c.end:
            return fail(&s.c, p, TRUNCATED)
        if is_skipped or is_keys_only:
            p = skip_value(&s.c, p, False)
        else:
            p = value(s, b, item, p)
        if p is NULL:
            return NULL
        entry += 1
        p = after_space(&s.c, p)
        if p >= s.c.end:
            return fail(&s.c, p, TRUNCATED)
        if p[0] == c'}':
            return p + 1
        if p[0] != c',':
            return fail(&s.c, p, SYNTAX)
        p = after_space(&s.c, p + 1)


# ------------------------------------------------------------------------------------------- values

cdef const char* value(State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """Append the value at ``p`` to the operation's column; ``p`` is before the document's end.

    Most values are short numbers and strings; these are read here, without a call. ``any_value``
    has the rules for all.
    """
    cdef Builder* n = &b.nodes[op.node]
    cdef int32_t kind = op.kind
    cdef int64_t number = 0
    cdef uint64_t bits = 0
    cdef int size
    if unlikely(n.length == n.room):
        return any_value(s, b, op, p)
    if kind == KIND_STRING:
        if p[0] == c'"' and n.data_room - n.used >= 16:
            size = short_text(p + 1, n.data + n.used)
            if size >= 0 and p + size + 1 < s.c.end:
                put_bytes(n, size)
                return p + size + 2
    elif kind == KIND_FLOAT64:
        size = short_decimal(p, &bits)
        if size:
            put_word(n, bits)
            return p + size
    elif kind == KIND_INT64 or kind == KIND_INT32 or kind == KIND_TIMESTAMP and is_epoch(op):
        size = short_integer(p, &number)
        if size:
            if kind != KIND_INT32:
                put_word(n, <uint64_t> number)
                return p + size
            if number == <int32_t> number:
                put_half_word(n, <uint32_t> number)
                return p + size
    return any_value(s, b, op, p)


cdef const char* any_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """The same for whatever the value is."""
    p = value_of_kind(s, b, op, p)
    if p is NULL and s.c.node < 0:
        s.c.node = op.node
    return p


cdef inline const char* value_of_kind(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    cdef int32_t kind = op.kind
    if kind == KIND_INT64:
        return int64_value(s, b, op, p)
    elif kind == KIND_STRING:
        if p[0] == c'"':
            return string_value(s, b, op.node, p + 1)
        if op.flags & STRINGIFY:
            return document_value(s, b, op, p)
        return other_value(s, b, op, p)
    elif kind == KIND_FLOAT64 or kind == KIND_FLOAT32:
        return float_value(s, b, op, p)
    elif kind == KIND_STRUCT:
        return struct_value(s, b, op, p)
    elif kind == KIND_LIST:
        return list_value(s, b, op, p)
    elif kind == KIND_BOOL:
        return bool_value(s, b, op, p)
    elif kind == KIND_TIMESTAMP or kind == KIND_DATE32 or kind == KIND_TIME32 or (
            kind == KIND_TIME64):
        return time_value(s, b, op, p)
    elif kind == KIND_DICTIONARY or kind == KIND_UUID or kind == KIND_BINARY or (
            kind == KIND_FIXED_BINARY):
        return text_form(s, b, op, p) if p[0] == c'"' else other_value(s, b, op, p)
    elif kind == KIND_INT32:
        return integer_value(s, b, op, p, -<int64_t> 0x80000000, 0x7FFFFFFF)
    elif kind == KIND_INT16:
        return integer_value(s, b, op, p, -0x8000, 0x7FFF)
    elif kind == KIND_INT8:
        return integer_value(s, b, op, p, -0x80, 0x7F)
    elif kind == KIND_UINT64:
        return integer_value(s, b, op, p, 0, <uint64_t> -1)
    elif kind == KIND_UINT32:
        return integer_value(s, b, op, p, 0, <uint64_t> 0xFFFFFFFF)
    elif kind == KIND_UINT16:
        return integer_value(s, b, op, p, 0, 0xFFFF)
    elif kind == KIND_UINT8:
        return integer_value(s, b, op, p, 0, 0xFF)
    elif kind == KIND_DURATION:  # the smallest number is NumPy's "not a time"
        return integer_value(s, b, op, p, -INT64_MAX, <uint64_t> INT64_MAX)
    elif kind == KIND_DECIMAL128 or kind == KIND_DECIMAL256:
        return decimal_value(s, b, op, p)
    elif kind == KIND_MAP:
        return map_value(s, b, op, p)
    elif kind == PATH_OBJECT:
        return path_object(s, b, op, p)
    return document_value(s, b, op, p)


# ------------------------------------------------------------------------------------ rows and runs

cdef bint place_document(
        State* s, const char* text, int64_t size, int64_t readable) noexcept nogil:
    """Make the document the present one, copied if it cannot be read in place; False without
    memory. Only a closing bracket as the last byte keeps a number from going on behind it."""
    cdef char last = text[size - 1]
    if readable < SCAN_SLACK or (last != c'}' and last != c']'):
        if not copy_document(s, text, size):
            return False
        text = s.copy
    s.c.begin = text
    s.c.end = text + size
    return True


cdef int decode_row(
        State* s, ColumnBuilders b, const char* text, int64_t size,
        int64_t readable) noexcept nogil:
    """Append one row; 0, or the code of the error at `s.c.at`."""
    cdef const char* p
    cdef int32_t i
    s.c.code = 0
    s.c.node = -1
    s.c.detail = 0
    s.c.depth = 0
    s.lists = s.unknown = 0
    s.c.begin = s.c.at = s.c.end = text
    if size == 0:
        return EMPTY
    if not place_document(s, text, size, readable):
        return BUILD_NO_MEMORY
    p = after_space(&s.c, s.c.begin)
    if p >= s.c.end:
        fail(&s.c, p, TRUNCATED)
    else:
        p = any_value(s, b, s.ops, p)
        if p is not NULL and p < s.c.end:
            if is_plain(p[0]) and is_plain((p - 1)[0]):
                fail(&s.c, p, SYNTAX)
            else:
                p = after_space(&s.c, p)
                if p < s.c.end:
                    s.c.node = -1
                    fail(&s.c, p, TRAILING)
    if s.c.code:
        # Objects that the error has left open.
        for i in range(s.op_count):
            s.objects[i].is_seen = False
    return s.c.code


cdef void decode_rows(
        State* s, ColumnBuilders b, const Spans* spans, int mode, const RowNumbers* codes,
        const RowNumbers* prefixes) noexcept nogil:
    cdef Py_ssize_t row
    cdef int32_t size, prefix
    cdef int64_t position
    cdef int code
    cdef const char* text
    for row in range(spans.count):
        size = spans.lengths[row]
        begin_row(b)
        if size < 0:
            if append_null(b, 0) < 0:
                return
        else:
            text = spans.data + span_start(spans, row) if size else spans.data
            position = 0
            code = -number_of(codes, row)
            if code:
                s.c.node = -1
                s.c.detail = s.lists = 0
            else:
                prefix = min(max(number_of(prefixes, row), 0), size)
                code = decode_row(
                    s, b, text + prefix, size - prefix, spans.data + spans.size - text - size)
                if code == 0 and end_row(b, size) < 0:
                    s.c.at = s.c.begin
                    code = TOO_LARGE
                elif code == 0 and s.unknown and not count_unknown(s, row, spans.count):
                    b.failure = BUILD_NO_MEMORY
                    return
                if code:
                    position = min(s.c.at - s.c.begin + prefix, size)
            if code and not end_bad_row(
                    b, mode, row, code, s.c.node, position, s.c.detail, s.indexes, s.lists):
                return
        if b.is_full:
            return


# ------------------------------------------------------------------------------------------- set-up

cdef void free_state(State* s) noexcept:
    free_objects(s)
    free(s.scratch)
    free(s.copy)
    free(s.known_keys.slots)
    free(s.unknown_counts)


def decode(
        plan, data, starts, lengths, int mode, int64_t most_bytes=INT64_MAX,
        const int32_t[::1] row_plans=None, const int32_t[::1] prefixes=None) -> tuple:
    """Decode a run of rows with a ``JsonPlan``.

    Parameters
    ----------
    data, starts, lengths : buffers
        Of a byte column (see ``columns.pyx``); length -1 is a null value, and a null row.
    mode : int
        0 ends before the first bad row; otherwise bad rows are null rows.
    most_bytes : int
        Of columns; the decoding ends after the row that passes it.
    row_plans, prefixes : buffers of int32, optional
        Of each row, or one of each for all: 0 or the negated code of an error, and the bytes in
        front of the document.

    Returns
    -------
    built : tuple
        The columns, as ``builders.finish`` has them; fewer rows than given if it ended early.
    errors : OwnedBuffer or None
        An ``ErrorRow`` for each bad row.
    unknown : tuple or None
        The number of fields without a column of each row, as int32, and the first names of such
        fields, each with the node of its struct; None without any. Bad rows have none.
    """
    cdef State s
    cdef SpanTotals totals
    cdef ColumnBuilders b
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef const int32_t[::1] layout = memoryview(plan.layout).cast("i")
    cdef bytes ops = plan.ops, members = plan.members, keys = plan.keys
    cdef bytes constants = plan.constants
    cdef RowNumbers codes = row_numbers(row_plans, source.spans.count, "code")
    cdef RowNumbers skipped_bytes = row_numbers(prefixes, source.spans.count, "prefix")
    memset(&s, 0, sizeof(State))
    s.ops = <const Op*> <const char*> ops
    s.op_count = <int32_t> (len(ops) // sizeof(Op))
    s.members = <const Member*> <const char*> members
    s.keys = keys
    s.constants = constants
    s.duplicates_last = plan.duplicates_last
    s.c.allow_nan = plan.allow_nan
    s.c.max_depth = min(<int32_t> plan.max_depth, MOST_DEPTH)
    s.powers = power_table
    b = new_builders(
        &layout[0], <int32_t> (layout.shape[0] // 4), source.spans.count, totals.bytes, most_bytes)
    count_constants(b, len(constants))
    try:
        set_up_objects(&s)
        with nogil:
            decode_rows(&s, b, &source.spans, mode, &codes, &skipped_bytes)
        if b.failure == BUILD_NO_MEMORY:
            raise MemoryError("no memory for the columns of JSON documents")
        return finish(b), finish_errors(b), unknown_fields(&s, source.spans.count)
    finally:
        free_state(&s)
