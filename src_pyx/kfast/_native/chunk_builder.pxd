"""C interface of ChunkBuilder; the rules are in ``chunk_builder.pyx``."""

from libc.stdint cimport int8_t, int32_t, int64_t

from kfast._native.batch_header cimport BatchHeader, BatchStatus
from kfast._native.buffers cimport OwnedBuffer
from kfast._native.message_set cimport Message
from kfast._native.record_index cimport RecordIndex


# What is missing to index the next batch; NEED_NOTHING once it is indexed.
cdef enum Need:
    NEED_NOTHING
    NEED_ROOM              # more rows
    NEED_HEADERS           # the columns for headers
    NEED_TYPES             # the column for timestamp types


# Types of control records; the type is an i16 in the key.
cdef enum:
    MARKER_ABORT = 0
    MARKER_NONE = 65536        # the batch is empty
    MARKER_UNREADABLE = 65537  # the key is too short


cdef class ChunkBuilder:
    cdef RecordIndex index
    cdef OwnedBuffer payload
    cdef bint has_payload
    cdef Py_ssize_t limit          # bytes of payload and index at which the chunk is full
    cdef Py_ssize_t most           # that it may have at all
    cdef Py_ssize_t rows_limit     # of one batch
    cdef Py_ssize_t made
    cdef Py_ssize_t last_unpacked  # payload and index of the last decompressed batch
    cdef Py_ssize_t batches        # done, with or without rows
    cdef Py_ssize_t nbytes
    cdef Py_ssize_t batch_bytes    # of the last records indexed
    cdef int8_t timestamp_type     # of the rows so far

    # Index the plain records data[start:stop] of a batch of magic 2 from `floor_offset` on. With a
    # need, or a status other than BATCH_OK, the chunk is unchanged.
    cdef Need add_records(
        self, const char* data, Py_ssize_t start, Py_ssize_t stop, const BatchHeader* h,
        int64_t floor_offset, BatchStatus* status
    ) noexcept nogil
    # The same for a control batch, whose rows are removed again: `kind` is its marker's type.
    cdef Need read_marker(
        self, const char* data, Py_ssize_t start, Py_ssize_t stop, const BatchHeader* h,
        BatchStatus* status, int32_t* kind
    ) noexcept nogil
    # Allocate what the batch needs, if `most` allows it; the slice has `left` bytes from it on.
    cdef bint provide(self, Need need, const BatchHeader* h, Py_ssize_t left) except -1
    # How many more rows, and how many more bytes of payload, `most` allows.
    cdef Py_ssize_t rows_left(self) noexcept nogil
    cdef Py_ssize_t payload_left(self) noexcept nogil
    # Messages of magic 0 and 1: before and after `rows` of them are added.
    cdef int before_messages(self, Py_ssize_t rows, Py_ssize_t size, int8_t kind) except -1
    cdef void after_messages(self, Py_ssize_t rows, int8_t kind) noexcept nogil
    # Whether the chunk has a payload with room for `size` more bytes; if not, the chunk must end.
    cdef bint open_payload(self, Py_ssize_t left, Py_ssize_t size) except -1
    cdef RecordIndex seal(self, OwnedBuffer frame, int64_t next_offset, int32_t leader_epoch)


# An index row takes up to this much, with headers and timestamp types.
cdef enum:
    INDEX_ROW_MOST = 41


# `rows_limit` is that of one batch: more set BATCH_RECORDS_LIMIT.
cdef ChunkBuilder new_chunk(Py_ssize_t limit, Py_ssize_t most, Py_ssize_t rows_limit)
