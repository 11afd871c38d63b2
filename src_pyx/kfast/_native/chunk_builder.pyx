"""ChunkBuilder: a RecordIndex under construction.

Owns the columns while they grow, the payload of decompressed batches, and the size of both. All
rows of a chunk point into one ``data``: the frame as long as there is no payload, and a payload can
be opened only while there is no row.

The per-batch functions run without the GIL and never allocate: they return a `Need`, the caller
provides it with the GIL and calls again. Columns are sized by counts that were compared with the
bytes present, and by the chunk's limits, never by a count alone.

``limit`` ends a chunk between two batches. ``most`` is what the decoder's caller has set aside for
payload and index: a batch that needs more does not become part of the chunk. Nor does one that
would make a chunk with rows twice as large as its limit.

Threads: the decoder's.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MIN, int8_t, int32_t, int64_t
from libc.string cimport memset

from kfast._native.batch_header cimport (
    APPEND_TIME,
    BATCH_COUNT,
    BATCH_OK,
    BATCH_RECORDS_LIMIT,
    V2_MIN_RECORD,
    BatchHeader,
    BatchStatus,
)
from kfast._native.buffers cimport OwnedBuffer, give_slack_back, new_buffer
from kfast._native.endian cimport load_i16
from kfast._native.record_index cimport RecordIndex, new_index
from kfast._native.record_parser cimport RecordBounds, index_records


cdef enum:
    MARKER_KEY_BYTES = 4
    INDEX_ROW_BYTES = 32       # per record without headers
    PAYLOAD_GUESS = 4          # times the compressed bytes


cdef bint has_room(
    ChunkBuilder self, const BatchHeader* h, Py_ssize_t size, BatchStatus* status
) noexcept nogil:
    """Whether the batch's rows fit; a count that is too high sets the status."""
    self.batch_bytes = size
    if h.records_count > size // V2_MIN_RECORD:
        status[0] = BATCH_COUNT
        return True
    if self.index.columns.n + h.records_count <= self.index.columns.room:
        return True
    if h.records_count > self.rows_limit:
        status[0] = BATCH_RECORDS_LIMIT
        return True
    return False


cdef Py_ssize_t most_of(ChunkBuilder self) noexcept nogil:
    """Return how many bytes payload and index may have with the next batch."""
    return self.most if self.index.columns.n == 0 else min(self.most, 2 * self.limit)


cdef bint needs_types(ChunkBuilder self, int8_t kind) noexcept nogil:
    """Whether rows of this timestamp type need a column of types."""
    return (
        self.index.columns.n > 0
        and kind != self.timestamp_type
        and self.index.columns.timestamp_types is NULL
    )


cdef void note_types(ChunkBuilder self, Py_ssize_t first, int8_t kind) noexcept nogil:
    """Set the timestamp type of the rows from ``first`` on."""
    if self.index.columns.timestamp_types is not NULL:
        memset(
            self.index.columns.timestamp_types + first, kind, self.index.columns.n - first
        )
    elif first == 0:
        self.timestamp_type = kind


@cython.final
@cython.freelist(8)
cdef class ChunkBuilder:
    """Made by ``new_chunk``; the methods are documented in the ``.pxd``."""

    def __init__(self):
        raise TypeError("ChunkBuilder is made by the decoder")

    cdef Need add_records(
        self, const char* data, Py_ssize_t start, Py_ssize_t stop, const BatchHeader* h,
        int64_t floor_offset, BatchStatus* status
    ) noexcept nogil:
        cdef int8_t kind = 1 if h.attributes & APPEND_TIME else 0
        cdef Py_ssize_t n = self.index.columns.n
        cdef RecordBounds bounds
        if needs_types(self, kind):
            return NEED_TYPES
        if not has_room(self, h, stop - start, status):
            return NEED_ROOM
        if status[0] != BATCH_OK:
            return NEED_NOTHING
        bounds.floor_offset = floor_offset
        status[0] = index_records(data, start, stop, h, &bounds, &self.index.columns)
        if status[0] != BATCH_OK:
            return NEED_NOTHING
        if bounds.needs_headers:
            return NEED_HEADERS
        note_types(self, n, kind)
        self.made += (stop - start) + (self.index.columns.n - n) * INDEX_ROW_BYTES
        self.nbytes += stop - start
        return NEED_NOTHING

    cdef Need read_marker(
        self, const char* data, Py_ssize_t start, Py_ssize_t stop, const BatchHeader* h,
        BatchStatus* status, int32_t* kind
    ) noexcept nogil:
        cdef Py_ssize_t n = self.index.columns.n
        cdef RecordBounds bounds
        kind[0] = MARKER_NONE
        if not has_room(self, h, stop - start, status):
            return NEED_ROOM
        if status[0] != BATCH_OK:
            return NEED_NOTHING
        # The marker is indexed and checked like any record; then its row is removed.
        bounds.floor_offset = INT64_MIN
        status[0] = index_records(data, start, stop, h, &bounds, &self.index.columns)
        self.index.columns.n = n
        if status[0] != BATCH_OK:
            return NEED_NOTHING
        if bounds.needs_headers:
            return NEED_HEADERS
        if h.records_count == 0:
            kind[0] = MARKER_NONE
        elif self.index.columns.key_lengths[n] < MARKER_KEY_BYTES:
            kind[0] = MARKER_UNREADABLE
        else:
            kind[0] = load_i16(data + self.index.columns.key_starts[n] + 2)
        return NEED_NOTHING

    cdef Py_ssize_t rows_left(self) noexcept nogil:
        cdef Py_ssize_t left = most_of(self) - self.index.columns.n * INDEX_ROW_MOST
        if self.has_payload:
            left -= self.payload.capacity
        return left // INDEX_ROW_MOST if left > 0 else 0

    cdef Py_ssize_t payload_left(self) noexcept nogil:
        return most_of(self) - self.payload.size - self.index.columns.room * INDEX_ROW_MOST

    cdef bint provide(self, Need need, const BatchHeader* h, Py_ssize_t left) except -1:
        cdef Py_ssize_t rows, expected, most
        if need == NEED_HEADERS:
            self.index.add_header_columns()
        elif need == NEED_TYPES:
            self.index.uniform_type = self.timestamp_type
            self.index.add_type_column()
        elif need == NEED_ROOM:
            # Expect equal batches in the rest of the slice, up to the chunk's limits.
            rows = h.records_count
            most = self.rows_left()
            if rows > most and self.has_payload:
                give_slack_back(self.payload, self.payload.size)
                most = self.rows_left()
            if rows > most:
                return False
            expected = min(
                rows * (left // h.size + 1),
                (self.limit - self.made) // (self.batch_bytes // rows + INDEX_ROW_BYTES) + rows,
                most,
            )
            self.index.make_room(
                self.index.columns.n + rows, self.index.columns.n + expected,
                self.index.columns.n + most,
            )
        return True

    cdef int before_messages(self, Py_ssize_t rows, Py_ssize_t size, int8_t kind) except -1:
        self.batch_bytes = size
        if needs_types(self, kind):
            self.provide(NEED_TYPES, NULL, 0)
        if self.index.columns.n + rows > self.index.columns.room:
            self.index.make_room(
                self.index.columns.n + rows, 2 * self.index.columns.n,
                self.index.columns.n + self.rows_left(),
            )
        return 0

    cdef void after_messages(self, Py_ssize_t rows, int8_t kind) noexcept nogil:
        note_types(self, self.index.columns.n - rows, kind)
        self.made += self.batch_bytes + rows * INDEX_ROW_BYTES
        self.nbytes += self.batch_bytes

    cdef bint open_payload(self, Py_ssize_t left, Py_ssize_t size) except -1:
        if not self.has_payload:
            if self.index.columns.n > 0:
                return False
            self.payload = new_buffer(max(min(self.limit, left * PAYLOAD_GUESS), <Py_ssize_t> 0))
            self.has_payload = True
        # Positions within the payload have to fit 32 bits.
        return self.payload.size == 0 or size <= INT32_MAX - self.payload.size

    cdef RecordIndex seal(self, OwnedBuffer frame, int64_t next_offset, int32_t leader_epoch):
        self.index.uniform_type = self.timestamp_type
        self.index.nbytes = self.nbytes
        if self.has_payload:
            give_slack_back(self.payload, self.payload.size << 2)
        self.index.seal(
            self.payload if self.has_payload else frame, self.has_payload, next_offset, leader_epoch
        )
        return self.index


cdef ChunkBuilder new_chunk(Py_ssize_t limit, Py_ssize_t most, Py_ssize_t rows_limit):
    cdef ChunkBuilder chunk = ChunkBuilder.__new__(ChunkBuilder)
    chunk.index = new_index()
    chunk.payload = None
    chunk.has_payload = False
    # Positions have to fit 32 bits anyway.
    chunk.limit = min(limit, most, <Py_ssize_t> INT32_MAX)
    chunk.most = most
    chunk.rows_limit = rows_limit
    chunk.made = 0
    chunk.last_unpacked = 0
    chunk.batches = 0
    chunk.nbytes = 0
    chunk.batch_bytes = 0
    chunk.timestamp_type = 0
    return chunk
