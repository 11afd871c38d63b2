"""C interface of FrameReceiver, and its state as used by ``kfast.network.receive``."""

from kfast._native.buffers cimport OwnedBuffer


cdef enum:
    PREFIX_BYTES = 4


cdef struct Target:
    int fd
    char[PREFIX_BYTES] prefix
    Py_ssize_t prefix_filled
    Py_ssize_t frame_size      # -1 while unknown
    Py_ssize_t frame_filled
    Py_ssize_t max_own_bytes   # larger frames are allocated by the caller
    char* frame                # NULL while there is none
    Py_ssize_t capacity        # of a block allocated here, else 0
    Py_ssize_t received
    bint is_done               # the frame is complete, or its size is not acceptable
    bint is_blocked            # nothing is received until the event loop has handled it


cdef class FrameReceiver:
    cdef readonly Py_ssize_t max_bytes
    cdef bytearray prefix
    cdef Py_ssize_t prefix_filled
    cdef Py_ssize_t frame_size    # -1 while unknown
    cdef Py_ssize_t frame_filled
    cdef OwnedBuffer frame        # None until memory is needed
    cdef object view              # the last view returned, until its bytes are reported
    cdef Py_ssize_t view_size
    cdef bint has_failed

    cdef void restart(self) noexcept
    cdef OwnedBuffer take_size(self)
    cdef OwnedBuffer take_frame(self)
    cdef object unacceptable(self)
    cdef void load(self, Target* target, int fd, Py_ssize_t max_own_bytes) noexcept
    cdef store(self, Target* target)
