"""C interface of byte columns: many (start, length) spans over one buffer.

``Spans`` is the view of nogil code, ``SpanSource`` keeps its memory alive for one call.
The rules are in ``columns.pyx``.
"""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t


cdef struct Spans:
    const char* data
    Py_ssize_t size
    const int32_t* narrow   # starts as int32, or NULL when they are int64
    const int64_t* wide     # starts as int64, or NULL when they are int32
    const int32_t* lengths  # -1 is null; for header columns the number of headers
    Py_ssize_t count


cdef class SpanSource:
    cdef Spans spans
    cdef Py_buffer data
    cdef Py_buffer starts
    cdef Py_buffer lengths
    cdef int acquired


cdef struct SpanTotals:
    int64_t bytes
    int64_t nulls
    Py_ssize_t outside      # first row outside of the data, or -1


cdef inline Py_ssize_t span_start(const Spans* spans, Py_ssize_t row) noexcept nogil:
    return spans.narrow[row] if spans.wide is NULL else spans.wide[row]


# Opens the three buffers; raises ValueError when their sizes do not match.
cdef SpanSource open_spans(object data, object starts, object lengths)

# The same, and raises ValueError when a span is outside of the data: all rows may then be read.
cdef SpanSource open_checked(object data, object starts, object lengths, SpanTotals* totals)
