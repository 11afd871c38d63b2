"""xxHash32 with seed 0: the checksum inside LZ4 frames (header byte and optional block sums).

Inline and nogil; reads exactly ``size`` bytes. The lz4 packages do not export theirs.
"""

from libc.stdint cimport uint32_t

from kfast._native.endian cimport load_le32


cdef enum:
    XXH_LANE_BYTES = 16


cdef inline uint32_t rotate_left(uint32_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (32 - bits))


cdef inline uint32_t xxh32(const char* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t p1 = 2654435761u
    cdef uint32_t p2 = 2246822519u
    cdef uint32_t p3 = 3266489917u
    cdef uint32_t p4 = 668265263u
    cdef uint32_t p5 = 374761393u
    cdef uint32_t lanes[4]
    cdef uint32_t acc = p5
    cdef Py_ssize_t left = size
    cdef int i
    if left >= XXH_LANE_BYTES:
        lanes[0] = p1 + p2
        lanes[1] = p2
        lanes[2] = 0
        lanes[3] = 0 - p1
        while left >= XXH_LANE_BYTES:
            for i in range(4):
                lanes[i] = rotate_left(lanes[i] + load_le32(data + 4 * i) * p2, 13) * p1
            data += XXH_LANE_BYTES
            left -= XXH_LANE_BYTES
        acc = rotate_left(lanes[0], 1) + rotate_left(lanes[1], 7)
        acc += rotate_left(lanes[2], 12) + rotate_left(lanes[3], 18)
    acc += <uint32_t> size
    while left >= 4:
        acc = rotate_left(acc + load_le32(data) * p3, 17) * p4
        data += 4
        left -= 4
    while left > 0:
        acc = rotate_left(acc + (<const unsigned char*> data)[0] * p5, 11) * p1
        data += 1
        left -= 1
    acc = (acc ^ (acc >> 15)) * p2
    acc = (acc ^ (acc >> 13)) * p3
    return acc ^ (acc >> 16)
