"""C interface of the column deserializers; the rules are in ``deserialize.pyx``."""

from libc.stdint cimport int32_t, uint8_t


# Whether `size` bytes are well-formed UTF-8 (RFC 3629: no overlong form or surrogate, at most
# U+10FFFF).
cdef bint is_utf8(const uint8_t* text, Py_ssize_t size) noexcept nogil

# Whether 36 characters are a UUID, hyphens in their places, letters in either case. `out` gets its
# 16 bytes, and may be written to if they are not.
cdef bint parse_uuid(const char* text, char* out) noexcept nogil

# A UUID of 16 raw bytes or 36 characters as 16 bytes; False when it is malformed.
cdef bint convert_uuid(
    const char* value, int32_t length, char* out, Py_ssize_t width) noexcept nogil
