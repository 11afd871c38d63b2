"""C interface of the checksums; the rules are in ``crc32c.pyx``."""

from libc.stdint cimport uint32_t


# Whether `crc32c_direct` is to be used for this many bytes.
cdef bint is_crc32c_direct(Py_ssize_t size) noexcept nogil

# CRC-32C by the processor's instructions; only if `is_crc32c_direct`.
cdef uint32_t crc32c_direct(const char* data, Py_ssize_t size) noexcept nogil

# CRC-32C by the crc32c package, any size.
cdef uint32_t crc32c_packaged(const char* data, Py_ssize_t size) except? 0

# CRC-32 (IEEE) by zlib: message sets of magic 0 and 1.
cdef uint32_t crc32_ieee(const char* data, Py_ssize_t size) except? 0
