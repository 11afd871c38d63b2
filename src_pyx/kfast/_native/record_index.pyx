"""RecordIndex: positions of the keys, values and headers of one chunk of records.

Owns: the columns made by decoding a slice, and through ``data`` the bytes they point into: the
received frame itself without compression, else one payload of all batches of the chunk. There are
no Python objects per record, and no value is copied.

==================  =========  ============================================================
offsets             int64[n]   ascending, with gaps after compaction
timestamps          int64[n]   milliseconds, -1 for none
timestamp_types     int or     0 create time, 1 append time, -1 none (magic 0); one int when
                    int8[n]    all records have the same
key_starts          int32[n]   position in ``data``; undefined when the length is below 1
key_lengths         int32[n]   -1 for null
value_starts        int32[n]   as the keys
value_lengths       int32[n]   -1 for null
header_starts       int32[n]   position of the first header; None when no record has any
header_counts       int32[n]   None when no record has any
==================  =========  ============================================================

A header is: varint key length, key, varint value length (-1 null), value. All spans have been
checked to be inside ``data``, and headers to be exactly as many as their count.

Threads: built by one, then immutable.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.string cimport memset

from kfast._native.buffers cimport OwnedBuffer, new_buffer, reserve


cdef OwnedBuffer EMPTY = new_buffer(0)


cdef OwnedBuffer grown(OwnedBuffer buffer, Py_ssize_t used, Py_ssize_t capacity):
    """Return ``buffer``, or a new one if it is the shared empty one, with that capacity."""
    if buffer is None or buffer is EMPTY:
        return new_buffer(capacity)
    buffer.size = used
    reserve(buffer, capacity, capacity)
    return buffer


@cython.final
@cython.freelist(8)
cdef class RecordIndex:
    """Columns that locate the records of one chunk; see the module for their types.

    Attributes
    ----------
    data : OwnedBuffer
        The bytes all positions refer to.
    base_offset : int
        Offset of the first record; ``next_offset`` without records.
    next_offset : int
        Position after the chunk, including aborted, control and compacted records.
    leader_epoch : int
        Leader epoch of all rows, or of the last batch without rows; -1 if unknown.
    nbytes : int
        Bytes of record data, decompressed, in the chunk.
    memory_bytes : int
        Memory besides the frame: the index, and the payload if there is one.
    """

    def __cinit__(self):
        self.data = EMPTY
        self.offsets = EMPTY
        self.timestamps = EMPTY
        self.key_starts = EMPTY
        self.key_lengths = EMPTY
        self.value_starts = EMPTY
        self.value_lengths = EMPTY
        self.header_starts = None
        self.header_counts = None
        self.types = None
        self.uniform_type = 0
        self.leader_epoch = -1

    def __init__(self):
        raise TypeError("RecordIndex is made by SliceDecoder.decode()")

    def __len__(self):
        return self.columns.n

    def __repr__(self):
        return (
            f"<RecordIndex n={self.columns.n} offsets {self.base_offset} to {self.next_offset} "
            f"memory_bytes={self.memory_bytes}>"
        )

    @property
    def n(self) -> int:
        """Number of records."""
        return self.columns.n

    @property
    def last_timestamp(self) -> int:
        """Timestamp of the last record; -1 without records."""
        return self.columns.timestamps[self.columns.n - 1] if self.columns.n else -1

    @property
    def timestamp_types(self):
        """One int for all records, or an int8 buffer when they differ."""
        return self.uniform_type if self.types is None else self.types

    cdef int make_room(self, Py_ssize_t rows, Py_ssize_t hint, Py_ssize_t most) except -1:
        cdef IndexColumns* to = &self.columns
        cdef Py_ssize_t n = to.n
        if rows <= to.room:
            return 0
        rows = max(rows, min(max(hint, to.room + (to.room >> 1)), most))
        self.offsets = grown(self.offsets, 8 * n, 8 * rows)
        self.timestamps = grown(self.timestamps, 8 * n, 8 * rows)
        self.key_starts = grown(self.key_starts, 4 * n, 4 * rows)
        self.key_lengths = grown(self.key_lengths, 4 * n, 4 * rows)
        self.value_starts = grown(self.value_starts, 4 * n, 4 * rows)
        self.value_lengths = grown(self.value_lengths, 4 * n, 4 * rows)
        to.offsets = <int64_t*> self.offsets.ptr
        to.timestamps = <int64_t*> self.timestamps.ptr
        to.key_starts = <int32_t*> self.key_starts.ptr
        to.key_lengths = <int32_t*> self.key_lengths.ptr
        to.value_starts = <int32_t*> self.value_starts.ptr
        to.value_lengths = <int32_t*> self.value_lengths.ptr
        if to.header_starts is not NULL:
            self.header_starts = grown(self.header_starts, 4 * n, 4 * rows)
            self.header_counts = grown(self.header_counts, 4 * n, 4 * rows)
            to.header_starts = <int32_t*> self.header_starts.ptr
            to.header_counts = <int32_t*> self.header_counts.ptr
        if to.timestamp_types is not NULL:
            self.types = grown(self.types, n, rows)
            to.timestamp_types = <int8_t*> self.types.ptr
        to.room = rows
        return 0

    cdef int add_header_columns(self) except -1:
        cdef IndexColumns* to = &self.columns
        self.header_starts = new_buffer(4 * to.room)
        self.header_counts = new_buffer(4 * to.room)
        to.header_starts = <int32_t*> self.header_starts.ptr
        to.header_counts = <int32_t*> self.header_counts.ptr
        memset(to.header_starts, 0, 4 * to.n)
        memset(to.header_counts, 0, 4 * to.n)
        return 0

    cdef int add_type_column(self) except -1:
        self.types = new_buffer(self.columns.room)
        self.columns.timestamp_types = <int8_t*> self.types.ptr
        memset(self.columns.timestamp_types, self.uniform_type, self.columns.n)
        return 0

    cdef int seal(
        self, OwnedBuffer data, bint owns_data, int64_t next_offset, int32_t epoch
    ) except -1:
        cdef Py_ssize_t n = self.columns.n
        cdef OwnedBuffer column
        self.data = data
        self.next_offset = next_offset
        self.leader_epoch = epoch
        self.base_offset = self.columns.offsets[0] if n else next_offset
        self.memory_bytes = data.capacity if owns_data else 0
        if self.offsets is EMPTY:
            return 0
        for column in (self.offsets, self.timestamps):
            column.size = 8 * n
            self.memory_bytes += column.capacity
        for column in (self.key_starts, self.key_lengths, self.value_starts, self.value_lengths):
            column.size = 4 * n
            self.memory_bytes += column.capacity
        if self.header_starts is not None:
            for column in (self.header_starts, self.header_counts):
                column.size = 4 * n
                self.memory_bytes += column.capacity
        if self.types is not None:
            self.types.size = n
            self.memory_bytes += self.types.capacity
        return 0


cdef RecordIndex new_index():
    return RecordIndex.__new__(RecordIndex)
