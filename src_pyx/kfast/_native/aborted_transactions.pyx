"""AbortedTransactions: the producers whose batches a read_committed consumer drops (KIP-98).

A Fetch response lists the aborted transactions that overlap its records as (producer id, first
offset), in any order. In the order of the batches, a producer id becomes aborted once a batch ends
at or after the first offset of one of its entries, until its next ABORT marker.

Owns that state for one slice of one response (T-07). Entries are sorted by first offset, so that a
cursor replaces a queue; an id has one flag, found by binary search, so that a long list costs
little per batch.

Threads: the decoder's.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from operator import itemgetter

from kfast._native.buffers cimport new_buffer


@cython.final
cdef class AbortedTransactions:
    """Made by ``read_aborted``; read by the functions of the ``.pxd``."""

    def __init__(self):
        raise TypeError("AbortedTransactions is made by the decoder")

    cdef tuple snapshot(self):
        return self.list.cursor, self.list.active[:self.list.producers]

    cdef int restore(self, tuple state) except -1:
        cdef bytes active = state[1]
        self.list.cursor = state[0]
        memcpy(self.list.active, <const char*> active, self.list.producers)
        return 0


cdef AbortedTransactions read_aborted(object entries):
    """Return the state for a list of (producer id, first offset), in any order."""
    cdef AbortedTransactions made = AbortedTransactions.__new__(AbortedTransactions)
    cdef AbortedList* a = &made.list
    cdef list ordered = sorted(entries, key=itemgetter(1))
    cdef list ids = sorted({producer_id for producer_id, _ in ordered})
    cdef dict index = {producer_id: i for i, producer_id in enumerate(ids)}
    cdef Py_ssize_t i
    a.entries = len(ordered)
    a.producers = len(ids)
    made.memory = new_buffer(12 * a.entries + 9 * a.producers)
    a.first_offsets = <int64_t*> made.memory.ptr
    a.producer_ids = a.first_offsets + a.entries
    a.owners = <int32_t*> (a.producer_ids + a.producers)
    a.active = <char*> (a.owners + a.entries)
    memset(a.active, 0, a.producers)
    for i, (producer_id, first_offset) in enumerate(ordered):
        a.first_offsets[i] = first_offset
        a.owners[i] = index[producer_id]
    for i in range(a.producers):
        a.producer_ids[i] = ids[i]
    return made
