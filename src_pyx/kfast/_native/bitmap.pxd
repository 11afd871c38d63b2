"""Arrow's bitmaps of flags that decoders keep as bytes."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from kfast._native.buffers cimport OwnedBuffer, new_buffer
from kfast._native.endian cimport load_le64


cdef inline OwnedBuffer packed_bits(const uint8_t* flags, int64_t count):
    """Make a bitmap of bytes that are 0 or 1."""
    cdef OwnedBuffer bitmap = new_buffer((count + 7) // 8)
    cdef uint8_t* bits = <uint8_t*> bitmap.ptr
    cdef int64_t at = 0
    bitmap.size = (count + 7) // 8
    with nogil:
        # The product moves bit 0 of byte k to bit 56 + k, and no two meet.
        while at + 8 <= count:
            bits[at >> 3] = <uint8_t> (
                (load_le64(flags + at) * <uint64_t> 0x0102040810204080) >> 56)
            at += 8
        if at < count:
            bits[at >> 3] = 0
            while at < count:
                bits[at >> 3] |= <uint8_t> (flags[at] << (at & 7))
                at += 1
    return bitmap
