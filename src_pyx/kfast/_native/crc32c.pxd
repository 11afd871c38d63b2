"""C interface of the checksums; the rules are in ``crc32c.pyx``."""

from libc.stdint cimport uint32_t


# Whether `crc32c_short` may be called for this many bytes: hardware there, and not too many.
cdef bint crc32c_is_short(Py_ssize_t size) noexcept nogil

# CRC-32C by the CPU's instruction; only where `crc32c_is_short` says so.
cdef uint32_t crc32c_short(const char* data, Py_ssize_t size) noexcept nogil

# CRC-32C by the crc32c package, any size.
cdef uint32_t crc32c_long(const char* data, Py_ssize_t size) except? 0

# CRC-32 (IEEE) by zlib: message sets of magic 0 and 1.
cdef uint32_t crc32_ieee(const char* data, Py_ssize_t size) except? 0
