"""C interface of the texts of typed columns; the rules are in the ``.pyx``."""

from libc.stdint cimport int32_t, int64_t


# Row n has `lengths[n]` bytes of `text` from `starts[n]` on; -1 is null. `size` bytes may be read.
cdef struct Texts:
    const char* text
    Py_ssize_t size
    const int64_t* starts
    const int32_t* lengths
    Py_ssize_t count


# Where texts are written: `used` of `capacity` bytes. A block of the buffer pool.
cdef struct Out:
    char* text
    Py_ssize_t used
    Py_ssize_t capacity


cdef class ColumnTexts:
    cdef Texts texts
    cdef Out out
    cdef int64_t* starts
    cdef int32_t* lengths
    cdef Py_ssize_t rows_room
    cdef bint is_json

    # Forgets what was written, and makes room for rows.
    cdef int begin(self, Py_ssize_t rows) except -1
