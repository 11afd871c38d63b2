"""Record headers: parsed on demand, because most applications do not read them.

Owns: parsing of the header bytes that a record index refers to. Columns of headers are ``data``,
``starts`` (position of a record's first header) and ``counts`` (int32[n]); otherwise the layout and
the rules of ``columns.pyx`` apply.

Wire layout of one header: key length varint (not negative), key, value length varint (-1 is null),
value. Order and repeated keys are kept (D-02).

The decoder has checked these bytes; they are checked again because Python code can call these
functions with any buffers. Threads: any.
"""

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t

from kfast._native.buffers cimport OwnedBuffer, new_buffer
from kfast._native.columns cimport SpanSource, Spans, open_spans, span_start
from kfast._native.reader cimport ByteReader, read_varint, reader_init, reader_left, skip


cdef extern from "Python.h":
    int PyGC_Enable() noexcept
    int PyGC_Disable() noexcept


cdef enum:
    INT32_MAX = 0x7FFFFFFF


cdef OwnedBuffer filled_buffer(Py_ssize_t size):
    cdef OwnedBuffer buffer = new_buffer(size)
    buffer.size = size
    return buffer


cdef Py_ssize_t count_headers(const Spans* spans, int64_t* total) noexcept nogil:
    """Add up the header counts; return the first row whose count is impossible, or -1."""
    cdef Py_ssize_t row
    cdef int64_t start
    cdef int32_t count
    total[0] = 0
    for row in range(spans.count):
        count = spans.lengths[row]
        if count == 0:
            continue
        start = span_start(spans, row)
        # The smallest header, an empty key with a null value, has two bytes.
        if count < 0 or start < 0 or start > spans.size or count > (spans.size - start) // 2:
            return row
        total[0] += count
    return -1


def parse_headers(data, starts, counts) -> tuple:
    """Locate every header of every record.

    Returns ``(row_offsets, key_starts, key_lengths, value_starts, value_lengths)``: headers of
    row i are ``row_offsets[i]:row_offsets[i + 1]`` (int32). The starts have the width of the given
    ones.
    """
    cdef SpanSource source = open_spans(data, starts, counts)
    cdef Spans* spans = &source.spans
    cdef int64_t total
    cdef Py_ssize_t row, bad, at = 0
    cdef int32_t _i, length
    cdef ByteReader r
    cdef bint wide = spans.wide is not NULL
    cdef OwnedBuffer row_offsets, key_starts, key_lengths, value_starts, value_lengths
    with nogil:
        bad = count_headers(spans, &total)
    if bad >= 0 or total > INT32_MAX:
        raise ValueError(f"row {bad} has a header count that does not fit its bytes")
    row_offsets = filled_buffer((spans.count + 1) * 4)
    key_starts = filled_buffer(total * (8 if wide else 4))
    value_starts = filled_buffer(total * (8 if wide else 4))
    key_lengths = filled_buffer(total * 4)
    value_lengths = filled_buffer(total * 4)
    with nogil:
        for row in range(spans.count):
            (<int32_t*> row_offsets.ptr)[row] = <int32_t> at
            if spans.lengths[row] == 0:
                continue
            reader_init(&r, spans.data + span_start(spans, row),
                        spans.size - span_start(spans, row))
            for _i in range(spans.lengths[row]):
                length = read_varint(&r)
                (<int32_t*> key_lengths.ptr)[at] = length
                store_start(key_starts.ptr, at, wide, r.pos - spans.data)
                skip(&r, length)
                length = read_varint(&r)
                (<int32_t*> value_lengths.ptr)[at] = length
                store_start(value_starts.ptr, at, wide, r.pos - spans.data)
                if length != -1:
                    skip(&r, length)
                at += 1
            if r.bad:
                bad = row
                break
        (<int32_t*> row_offsets.ptr)[spans.count] = <int32_t> at
    if bad >= 0:
        raise ValueError(f"the headers of row {bad} are malformed")
    return row_offsets, key_starts, key_lengths, value_starts, value_lengths


cdef inline void store_start(char* out, Py_ssize_t at, bint wide, int64_t start) noexcept nogil:
    if wide:
        (<int64_t*> out)[at] = start
    else:
        (<int32_t*> out)[at] = <int32_t> start


def header_lengths(data, starts, counts) -> OwnedBuffer:
    """Bytes of each record's header block (int32[n]), for copying it with :func:`pack`."""
    cdef SpanSource source = open_spans(data, starts, counts)
    cdef Spans* spans = &source.spans
    cdef OwnedBuffer lengths = filled_buffer(spans.count * 4)
    cdef int32_t* out = <int32_t*> lengths.ptr
    cdef Py_ssize_t row, bad, left
    cdef int64_t total
    cdef int32_t _i, length
    cdef ByteReader r
    with nogil:
        bad = count_headers(spans, &total)
        if bad < 0:
            for row in range(spans.count):
                out[row] = 0
                if spans.lengths[row] == 0:
                    continue
                left = spans.size - span_start(spans, row)
                reader_init(&r, spans.data + span_start(spans, row), left)
                for _i in range(spans.lengths[row]):
                    skip(&r, read_varint(&r))
                    length = read_varint(&r)
                    if length != -1:
                        skip(&r, length)
                if r.bad or left - reader_left(&r) > INT32_MAX:
                    bad = row
                    break
                out[row] = <int32_t> (left - reader_left(&r))
    if bad >= 0:
        raise ValueError(f"the headers of row {bad} are malformed")
    return lengths


def empty_lists(Py_ssize_t count) -> list:
    """Return new empty lists, the headers of records that have none.

    The garbage collector waits meanwhile: so many new containers would have it look at all objects
    of the program several times, which takes ten times as long as making them. Nothing else runs
    before it is on again, since making a list runs no Python code.
    """
    cdef list made = PyList_New(count)
    cdef Py_ssize_t row
    cdef object one
    cdef int was_on = PyGC_Disable()
    try:
        for row in range(count):
            one = PyList_New(0)
            Py_INCREF(one)
            PyList_SET_ITEM(made, row, one)
    finally:
        if was_on:
            PyGC_Enable()
    return made
