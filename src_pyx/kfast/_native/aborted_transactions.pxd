"""C interface of AbortedTransactions, and its per-batch functions, without the GIL."""

from libc.stdint cimport int32_t, int64_t

from kfast._native.buffers cimport OwnedBuffer


cdef struct AbortedList:
    Py_ssize_t entries
    Py_ssize_t cursor
    int64_t* first_offsets     # ascending
    int32_t* owners            # per entry: index into producer_ids
    Py_ssize_t producers
    int64_t* producer_ids      # ascending, distinct
    char* active               # per producer


cdef class AbortedTransactions:
    cdef AbortedList list
    cdef OwnedBuffer memory

    # Save and restore the state between two batches.
    cdef tuple snapshot(self)
    cdef int restore(self, tuple state) except -1


cdef AbortedTransactions read_aborted(object entries)


cdef inline Py_ssize_t find_producer(const AbortedList* a, int64_t producer_id) noexcept nogil:
    """Index of the producer id, -1 if no entry has it."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = a.producers
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) >> 1
        if a.producer_ids[middle] < producer_id:
            low = middle + 1
        else:
            high = middle
    return low if low < a.producers and a.producer_ids[low] == producer_id else -1


cdef inline bint is_aborted(
    AbortedList* a, int64_t producer_id, int64_t last_offset
) noexcept nogil:
    """Activate the entries that begin at or before ``last_offset``, then look the producer up."""
    cdef Py_ssize_t producer
    while a.cursor < a.entries and a.first_offsets[a.cursor] <= last_offset:
        a.active[a.owners[a.cursor]] = True
        a.cursor += 1
    producer = find_producer(a, producer_id)
    return producer >= 0 and a.active[producer]


cdef inline void end_transaction(AbortedList* a, int64_t producer_id) noexcept nogil:
    """Handle an ABORT marker; without an active entry it has no effect."""
    cdef Py_ssize_t producer = find_producer(a, producer_id)
    if producer >= 0:
        a.active[producer] = False
