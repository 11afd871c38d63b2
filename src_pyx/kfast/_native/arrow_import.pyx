"""Arrow C data interface: columns of bytes or text of other libraries, in place.

Owns: the array that is moved out of a capsule, until the last view of its bytes is gone. The bytes
are not copied; starts and lengths are made of the offsets. What the offsets say is checked here
against each other; that they fit the other library's memory is its promise.

Threads: any.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memset

from kfast._native.arrow_export cimport ArrowArray
from kfast._native.buffers cimport OwnedBuffer, new_buffer


@cython.final
@cython.no_gc
cdef class ImportedBytes:
    """The bytes of all values, read-only."""
    cdef ArrowArray array
    cdef Py_ssize_t size

    def __cinit__(self):
        memset(&self.array, 0, sizeof(ArrowArray))
        self.size = 0

    def __init__(self):
        raise TypeError("ImportedBytes are made by import_bytes()")

    def __dealloc__(self):
        if self.array.release is not NULL:
            self.array.release(&self.array)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <void*> self.array.buffers[2], self.size, 1, flags)

    def __len__(self):
        return self.size

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return self.size


def import_bytes(capsule, bint is_wide) -> tuple:
    """Move an array of bytes or text out of an ``arrow_array`` capsule.

    ``is_wide`` says that its offsets are int64. Returns ``(data, starts, lengths)`` as a
    BytesColumn has them.
    """
    cdef ArrowArray* given = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    cdef ImportedBytes data = ImportedBytes.__new__(ImportedBytes)
    cdef OwnedBuffer starts, lengths
    cdef int64_t* start
    cdef int32_t* length
    cdef const uint8_t* bits
    cdef const void* offsets
    cdef int64_t row, at, end, first
    if given.release is NULL:
        raise ValueError("the Arrow array has been consumed already")
    if given.n_buffers != 3 or given.length < 0 or given.offset < 0:
        raise ValueError("the Arrow array is none of bytes or text")
    data.array = given[0]
    given.release = NULL
    starts = new_buffer(data.array.length * 8)
    starts.size = data.array.length * 8
    lengths = new_buffer(data.array.length * 4)
    lengths.size = data.array.length * 4
    start, length = <int64_t*> starts.ptr, <int32_t*> lengths.ptr
    bits = <const uint8_t*> data.array.buffers[0]
    offsets = data.array.buffers[1]
    first = data.array.offset
    if offsets is NULL:
        if data.array.length:
            raise ValueError("the Arrow array has no offsets")
        return data, starts, lengths
    at = (<const int64_t*> offsets)[first] if is_wide else (<const int32_t*> offsets)[first]
    for row in range(data.array.length):
        end = ((<const int64_t*> offsets)[first + row + 1] if is_wide
               else (<const int32_t*> offsets)[first + row + 1])
        if at < 0 or end < at or end - at > INT32_MAX:
            raise ValueError(f"row {row} of the Arrow array has bad offsets")
        start[row] = at
        length[row] = <int32_t> (end - at)
        if bits is not NULL and not bits[(first + row) >> 3] >> ((first + row) & 7) & 1:
            length[row] = -1
        at = end
    # Without bytes there need not be a buffer.
    data.size = at if data.array.buffers[2] is not NULL else 0
    return data, starts, lengths
