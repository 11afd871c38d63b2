"""AbortedTransactions: which producers' batches a read_committed consumer must drop (KIP-98).

A Fetch response lists the aborted transactions that overlap its records as (producer id, first
offset), in any order. Walking the batches in order, a producer id becomes aborted once a batch ends
at or after the first offset of one of its entries, and stops being so at its next ABORT marker.

State for one slice of one response; nothing outlives it (T-07). Everything but `aborted_list` is
inline and nogil. Entries sorted by first offset come in order, so a cursor does for the queue;
whether an id is aborted is one flag per distinct id, found by binary search.
"""

from libc.stdint cimport int32_t, int64_t


cdef struct AbortedList:
    Py_ssize_t entries
    Py_ssize_t cursor
    const int64_t* first_offsets     # ascending
    const int32_t* owners            # index into producer_ids, per entry
    Py_ssize_t producers
    const int64_t* producer_ids      # ascending, distinct
    char* active                     # per producer


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
    """Take in the entries that began by ``last_offset``, then tell about the producer."""
    cdef Py_ssize_t producer
    while a.cursor < a.entries and a.first_offsets[a.cursor] <= last_offset:
        a.active[a.owners[a.cursor]] = True
        a.cursor += 1
    producer = find_producer(a, producer_id)
    return producer >= 0 and a.active[producer]


cdef inline void end_transaction(AbortedList* a, int64_t producer_id) noexcept nogil:
    """An ABORT marker; without an open entry it changes nothing."""
    cdef Py_ssize_t producer = find_producer(a, producer_id)
    if producer >= 0:
        a.active[producer] = False
