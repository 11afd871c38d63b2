"""Fields of JSON documents that no column is read from, as documents of their own.

Owns the shape of those: the objects around such a field are kept, and nothing else of the document.
An item of a list has its number as a key. So ``{"id":1,"user":{"age":5},"lines":[{},{"n":2}]}``
without columns for ``age`` and ``n`` is ``{"user":{"age":5},"lines":{"1":{"n":2}}}``.

Runs after the decoding, over the rows that have such fields only; what has been read once by
``json_decode.pyx`` is not checked again, but for values that were skipped there: one that is no
JSON becomes null.

Threads: any; nothing is shared but the plan, which is only read.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from kfast._native.built cimport copied
from kfast._native.columns cimport SpanSource, SpanTotals, open_checked, span_start
from kfast._native.json_keys cimport find_member, free_objects, set_up_objects
from kfast._native.json_scan cimport MOST_DEPTH, after_space, skip_value
from kfast._native.json_state cimport *
from kfast._native.json_values cimport read_text
from kfast._native.kinds cimport KIND_LIST, KIND_MAP, KIND_STRUCT
from kfast._native.value_bytes cimport RowNumbers, number_of, row_numbers


cdef struct Text:
    char* data
    int64_t size
    int64_t room
    bint is_full        # no memory for more


cdef void put(Text* out, const char* data, int64_t size) noexcept nogil:
    cdef char* larger
    if out.size + size > out.room:
        larger = <char*> realloc(out.data, 2 * (out.size + size))
        if larger is NULL:
            out.is_full = True
            return
        out.data = larger
        out.room = 2 * (out.size + size)
    memcpy(out.data + out.size, data, size)
    out.size += size


cdef void put_number(Text* out, int64_t number) noexcept nogil:
    cdef char digits[20]
    cdef int32_t at = 20
    while True:
        at -= 1
        digits[at] = <char> (c'0' + number % 10)
        number //= 10
        if number == 0:
            break
    put(out, digits + at, 20 - at)


cdef inline bint is_container(const Op* op) noexcept nogil:
    return op.kind == KIND_STRUCT or op.kind == PATH_OBJECT or (
        op.kind == KIND_LIST or op.kind == KIND_MAP)


cdef const char* rescue_value(
        State* s, const Op* op, const char* p, Text* out) noexcept nogil:
    """From a value to behind it, writing what of it has no column: nothing, or an object.

    NULL where the document is not what it was when it was decoded.
    """
    if p < s.c.end and p[0] == c'{' and (op.kind == KIND_STRUCT or op.kind == PATH_OBJECT):
        return rescue_object(s, op, p + 1, out, True)
    if p < s.c.end and p[0] == c'{' and op.kind == KIND_MAP and is_container(s.ops + op.first):
        return rescue_object(s, op, p + 1, out, False)
    if p < s.c.end and p[0] == c'[' and op.kind == KIND_LIST and is_container(s.ops + op.first):
        return rescue_items(s, s.ops + op.first, p + 1, out)
    return skip_value(&s.c, p, False)


cdef const char* rescue_field(State* s, const char* p, Text* out) noexcept nogil:
    """A value without a column, as it is; null if it is no JSON."""
    cdef const char* end = skip_value(&s.c, p, True)
    if end is not NULL:
        put(out, p, end - p)
        return end
    s.c.code = 0
    put(out, "null", 4)
    return skip_value(&s.c, p, False)


cdef const char* rescue_object(
        State* s, const Op* op, const char* p, Text* out, bint is_struct) noexcept nogil:
    """From behind the opening brace to behind the closing one; a map has no unknown keys."""
    cdef const ObjectKeys* keys = s.objects + (op - s.ops)
    cdef const Op* child
    cdef const char* start
    cdef const char* key
    cdef int64_t begin = out.size
    cdef int64_t before, inner, size
    cdef int32_t member
    p = after_space(&s.c, p)
    if p < s.c.end and p[0] == c'}':
        return p + 1
    put(out, "{", 1)
    while True:
        before, start = out.size, p
        if p >= s.c.end or p[0] != c'"':
            return NULL
        p = read_text(s, p + 1, &key, &size)
        if p is NULL:
            return NULL
        child = s.ops + op.first
        if is_struct:
            member = find_member(s, keys, key, size)
            child = s.ops + s.members[keys.first + member].op if member >= 0 else NULL
        if before > begin + 1:
            put(out, ",", 1)
        put(out, start, p - start)
        put(out, ":", 1)
        inner = out.size
        p = after_space(&s.c, p)
        if p >= s.c.end or p[0] != c':':
            return NULL
        p = after_space(&s.c, p + 1)
        if p >= s.c.end:
            return NULL
        if child is NULL:
            p = rescue_field(s, p, out)
        else:
            p = rescue_value(s, child, p, out)
        if p is NULL:
            return NULL
        if out.size == inner:
            out.size = before
        p = after_space(&s.c, p)
        if p >= s.c.end:
            return NULL
        if p[0] == c'}':
            break
        p = after_space(&s.c, p + 1)
    if out.size == begin + 1:
        out.size = begin
    else:
        put(out, "}", 1)
    return p + 1


cdef const char* rescue_items(
        State* s, const Op* item, const char* p, Text* out) noexcept nogil:
    """From behind the opening bracket to behind the closing one."""
    cdef int64_t begin = out.size
    cdef int64_t before, inner
    cdef int64_t number = 0
    p = after_space(&s.c, p)
    if p < s.c.end and p[0] == c']':
        return p + 1
    put(out, "{", 1)
    while True:
        before = out.size
        put(out, ',"', 2)
        if before == begin + 1:
            out.size = before
            put(out, '"', 1)
        put_number(out, number)
        put(out, '":', 2)
        inner = out.size
        p = rescue_value(s, item, p, out)
        if p is NULL:
            return NULL
        if out.size == inner:
            out.size = before
        number += 1
        p = after_space(&s.c, p)
        if p >= s.c.end:
            return NULL
        if p[0] == c']':
            break
        p = after_space(&s.c, p + 1)
    if out.size == begin + 1:
        out.size = begin
    else:
        put(out, "}", 1)
    return p + 1


cdef bint rescue_row(State* s, const char* text, int64_t size, Text* out) noexcept nogil:
    """Write what of a document has no column; False without memory."""
    cdef int64_t begin = out.size
    cdef const char* p
    if not copy_document(s, text, size):
        return False
    s.c.begin = s.copy
    s.c.end = s.copy + size
    s.c.code = 0
    s.c.depth = 0
    p = after_space(&s.c, s.c.begin)
    if rescue_value(s, s.ops, p, out) is NULL:
        out.size = begin
    return not out.is_full


def rescue(plan, data, starts, lengths, const int32_t[::1] counts, prefixes=None) -> tuple:
    """Return the fields without a column of some documents, as documents.

    Parameters
    ----------
    plan : JsonPlan
        With which they were decoded without an error.
    data, starts, lengths : buffers
        Of a byte column (see ``columns.pyx``).
    counts : buffer of int32
        Fields without a column of each row, as ``json_decode.decode`` has them; 0: skip the row.
    prefixes : buffer of int32, optional
        Of each row, the bytes in front of the document.

    Returns
    -------
    offsets, text : OwnedBuffer
        int32[n + 1], and the documents.

    Raises
    ------
    MemoryError
        They are larger than memory, or than 2 GiB.
    """
    cdef State s
    cdef Text out
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef bytes ops = plan.ops, members = plan.members, keys = plan.keys
    cdef RowNumbers skipped_bytes = row_numbers(prefixes, source.spans.count, "prefix")
    cdef Py_ssize_t row
    cdef int64_t size
    cdef int32_t prefix
    cdef int32_t* offsets
    cdef bint has_memory = True
    if counts.shape[0] != source.spans.count:
        raise ValueError("one count per row")
    memset(&s, 0, sizeof(State))
    memset(&out, 0, sizeof(Text))
    s.ops = <const Op*> <const char*> ops
    s.op_count = <int32_t> (len(ops) // sizeof(Op))
    s.members = <const Member*> <const char*> members
    s.keys = keys
    s.c.allow_nan = plan.allow_nan
    s.c.max_depth = min(<int32_t> plan.max_depth, MOST_DEPTH)
    offsets = <int32_t*> malloc((source.spans.count + 1) * 4)
    try:
        if offsets is NULL:
            raise MemoryError()
        set_up_objects(&s)
        with nogil:
            offsets[0] = 0
            for row in range(source.spans.count):
                size = source.spans.lengths[row]
                prefix = max(number_of(&skipped_bytes, row), 0)
                if counts[row] and size > prefix and has_memory:
                    has_memory = rescue_row(
                        &s, source.spans.data + span_start(&source.spans, row) + prefix,
                        size - prefix, &out) and out.size <= INT32_MAX
                offsets[row + 1] = <int32_t> out.size
        if not has_memory:
            raise MemoryError("no memory for fields of JSON documents without a column")
        return copied(offsets, (source.spans.count + 1) * 4), copied(out.data, out.size)
    finally:
        free(offsets)
        free(out.data)
        free_objects(&s)
        free(s.scratch)
        free(s.copy)
