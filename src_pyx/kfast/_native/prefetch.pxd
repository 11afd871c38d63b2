"""Fetching of rows into the cache: values lie apart, and waiting for memory takes longest."""

from kfast._native.columns cimport Spans, span_start


cdef extern from *:
    """
    #define KFAST_PREFETCH(at) __builtin_prefetch(at)
    """
    void prefetch "KFAST_PREFETCH"(const void* at) noexcept nogil


cdef enum:
    AHEAD = 16      # rows


cdef inline void prefetch_after(const Spans* spans, Py_ssize_t row) noexcept nogil:
    """Fetch the first bytes of a row that comes soon."""
    row += AHEAD
    if row < spans.count and spans.lengths[row] > 0:
        prefetch(spans.data + span_start(spans, row))
