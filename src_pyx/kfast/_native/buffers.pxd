"""C interface of OwnedBuffer; the rules are in ``buffers.pyx``."""

from libc.stdint cimport int64_t


cdef class OwnedBuffer:
    cdef char* ptr
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef int64_t exports


# A buffer with size 0 and room for `capacity` bytes, contents undefined. The caller writes through
# `ptr`, then sets `size`; once shared, the buffer must not be written again.
cdef OwnedBuffer new_buffer(Py_ssize_t capacity)

# A block of at least `size` bytes without an owner, or NULL without memory. `capacity` is set. It
# must be passed to `adopt_block`.
cdef char* take_block(Py_ssize_t size, Py_ssize_t* capacity) noexcept nogil

# A block of at least `size` bytes that begins with the first `used` bytes of `block`, which is
# given up; NULL without memory, and `block` stays. `capacity` is that of `block`, then of the new
# one.
cdef char* resized_block(
    char* block, Py_ssize_t used, Py_ssize_t* capacity, Py_ssize_t size) noexcept nogil

# Gives a block without an owner back.
cdef void release_block(char* block, Py_ssize_t capacity) noexcept nogil

# The owner of a block from `take_block`; size 0, as from `new_buffer`.
cdef OwnedBuffer adopt_block(char* ptr, Py_ssize_t capacity)

# Makes room for `capacity` bytes in all, growing geometrically up to `most`; the first `size` bytes
# stay. `ptr` may change. Raises BufferError while a view of the buffer exists.
cdef int reserve(OwnedBuffer buffer, Py_ssize_t capacity, Py_ssize_t most) except -1

# Gives back what is unused of a large block that is not shared yet and has more than `most` bytes.
# `ptr` may change.
cdef void give_slack_back(OwnedBuffer buffer, Py_ssize_t most) noexcept

# A writable memoryview of bytes [start, start + length) of the capacity, for filling a buffer that
# is not shared yet (recv_into, decompress_into). It keeps the buffer alive and pinned.
cdef object writable_view(OwnedBuffer buffer, Py_ssize_t start, Py_ssize_t length)
