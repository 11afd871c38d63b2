"""C interface of ``batch_faults.pyx``."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from kfast._native.batch_header cimport BatchHeader, BatchStatus


# A batch that cannot be read, and its place.
cdef struct BatchFault:
    BatchStatus status
    BatchHeader batch
    Py_ssize_t pos             # in the response
    uint32_t found_crc         # for BATCH_CRC
    int64_t following_offset   # base offset of the batch after it, -1 if unknown
    int64_t bytes_behind       # received behind it, -1 if its size is not known


# The exception for a fault. `position` is that of the decoder; `cause` is the codec's exception.
cdef object batch_error(
    const BatchFault* fault, object topic, int32_t partition, int64_t position, object cause)

# The exception for a slice of `size` bytes that is too short for its first batch.
cdef object too_short_error(
    const BatchHeader* batch, object topic, int32_t partition, int64_t position, Py_ssize_t size)
