"""Varints for Python callers: tests and tools.

The decoders are the inline readers of ``reader.pxd`` with a Python signature, so tests of these
functions test the hot path. Malformed bytes raise ProtocolError.

Wire: 7 bits per byte, low group first, high bit = more. Signed values are zigzagged first:
``(n << 1) ^ (n >> 63)``.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from kfast._native.reader cimport (
    ByteReader,
    read_uvarint,
    read_uvarlong,
    read_varint,
    read_varlong,
    reader_init,
)
from kfast.errors import ProtocolError


cdef bytes encode(uint64_t value):
    cdef unsigned char out[10]
    cdef int size = 0
    while value > 0x7F:
        out[size] = <unsigned char> (value & 0x7F | 0x80)
        value >>= 7
        size += 1
    out[size] = <unsigned char> value
    return out[:size + 1]


cdef int start(ByteReader* r, const unsigned char[::1] data, Py_ssize_t pos) except -1:
    if pos < 0 or pos > data.shape[0]:
        raise ValueError(f"position {pos} is outside {data.shape[0]} bytes")
    reader_init(r, NULL, 0)
    if data.shape[0]:
        reader_init(r, <const char*> &data[0] + pos, data.shape[0] - pos)
    return 0


cdef tuple finish(ByteReader* r, object value, Py_ssize_t size):
    if r.bad:
        raise ProtocolError("a varint is too long, too wide or cut by the end of the bytes")
    return value, size - (r.end - r.pos)


def encode_uvarint(uint32_t value) -> bytes:
    """Unsigned, 32 bits: at most 5 bytes."""
    return encode(value)


def encode_uvarlong(uint64_t value) -> bytes:
    """Unsigned, 64 bits: at most 10 bytes."""
    return encode(value)


def encode_varint(int32_t value) -> bytes:
    """Zigzag, 32 bits."""
    return encode(<uint32_t> ((<uint32_t> value << 1) ^ <uint32_t> (value >> 31)))


def encode_varlong(int64_t value) -> bytes:
    """Zigzag, 64 bits."""
    return encode((<uint64_t> value << 1) ^ <uint64_t> (value >> 63))


def decode_uvarint(const unsigned char[::1] data, Py_ssize_t pos=0) -> tuple[int, int]:
    """``(value, position after it)``."""
    cdef ByteReader r
    start(&r, data, pos)
    return finish(&r, read_uvarint(&r), data.shape[0])


def decode_uvarlong(const unsigned char[::1] data, Py_ssize_t pos=0) -> tuple[int, int]:
    """``(value, position after it)``."""
    cdef ByteReader r
    start(&r, data, pos)
    return finish(&r, read_uvarlong(&r), data.shape[0])


def decode_varint(const unsigned char[::1] data, Py_ssize_t pos=0) -> tuple[int, int]:
    """``(value, position after it)``."""
    cdef ByteReader r
    start(&r, data, pos)
    return finish(&r, read_varint(&r), data.shape[0])


def decode_varlong(const unsigned char[::1] data, Py_ssize_t pos=0) -> tuple[int, int]:
    """``(value, position after it)``."""
    cdef ByteReader r
    start(&r, data, pos)
    return finish(&r, read_varlong(&r), data.shape[0])
