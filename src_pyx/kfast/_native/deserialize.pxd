"""C interface of the column deserializers; the rules are in ``deserialize.pyx``."""

from libc.stdint cimport uint8_t


# Whether `size` bytes are well-formed UTF-8 (RFC 3629: no overlong form or surrogate, at most
# U+10FFFF).
cdef bint is_utf8(const uint8_t* text, Py_ssize_t size) noexcept nogil
