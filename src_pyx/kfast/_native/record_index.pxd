"""C interface of RecordIndex: the columns that the parsers fill; the rules are in the ``.pyx``."""

from libc.stdint cimport int8_t, int32_t, int64_t

from kfast._native.buffers cimport OwnedBuffer


# Where parsers write. Rows [0, n) are final, [n, room) may be written. The last three are NULL
# until a record needs them.
cdef struct IndexColumns:
    Py_ssize_t n
    Py_ssize_t room
    int64_t* offsets
    int64_t* timestamps
    int32_t* key_starts
    int32_t* key_lengths
    int32_t* value_starts
    int32_t* value_lengths
    int32_t* header_starts
    int32_t* header_counts
    int8_t* timestamp_types


cdef class RecordIndex:
    cdef IndexColumns columns
    cdef readonly OwnedBuffer data
    cdef readonly OwnedBuffer offsets
    cdef readonly OwnedBuffer timestamps
    cdef readonly OwnedBuffer key_starts
    cdef readonly OwnedBuffer key_lengths
    cdef readonly OwnedBuffer value_starts
    cdef readonly OwnedBuffer value_lengths
    cdef readonly OwnedBuffer header_starts
    cdef readonly OwnedBuffer header_counts
    cdef OwnedBuffer types
    cdef int8_t uniform_type
    cdef readonly int64_t next_offset
    cdef readonly int64_t base_offset
    cdef readonly int32_t leader_epoch
    cdef readonly Py_ssize_t nbytes
    cdef readonly Py_ssize_t memory_bytes

    # Room for `rows` rows in all, with `hint` rows expected and not for more than `most` unless
    # `rows` is; existing rows are kept.
    cdef int make_room(self, Py_ssize_t rows, Py_ssize_t hint, Py_ssize_t most) except -1
    # Add the column, with an empty header list or the common type in existing rows.
    cdef int add_header_columns(self) except -1
    cdef int add_type_column(self) except -1
    # Fix the sizes and the owner of the bytes; the index is immutable from here on.
    cdef int seal(
        self, OwnedBuffer data, bint owns_data, int64_t next_offset, int32_t epoch
    ) except -1


cdef RecordIndex new_index()
