"""A hash of bytes for tables of what producers have written.

Who writes the bytes must not know which of them share a slot: the seed is the caller's, another one
in each process. Of 64 bits of a product a difference of two texts would survive in its highest
bits, whatever the seed is, so that the next 8 bytes could undo it; therefore both halves of 128
bits are folded into one.
"""

from libc.stdint cimport int64_t, uint64_t


cdef extern from *:
    """
    #ifndef KFAST_BYTE_HASH_H
    #define KFAST_BYTE_HASH_H
    #include <stdint.h>
    #include <string.h>

    static inline uint64_t kfast_fold(uint64_t a, uint64_t b) {
        const unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    /* 1 to 7 bytes as a number; with their count no two of them have the same one. */
    static inline uint64_t kfast_few_bytes(const char *text, int64_t size) {
        uint32_t first, last;
        if (size < 4)
            return (uint64_t)(unsigned char)text[0]
                 | (uint64_t)(unsigned char)text[size >> 1] << 8
                 | (uint64_t)(unsigned char)text[size - 1] << 16;
        memcpy(&first, text, 4);
        memcpy(&last, text + size - 4, 4);
        return first | (uint64_t)last << 32;
    }
    static inline uint64_t kfast_hash_bytes(const char *text, int64_t size, uint64_t seed) {
        uint64_t value = seed ^ (uint64_t)size * 0x9E3779B97F4A7C15u;
        uint64_t word;
        for (; size >= 8; size -= 8, text += 8) {
            memcpy(&word, text, 8);
            value = kfast_fold(value ^ word, 0xD6E8FEB86659FD93u);
        }
        if (size)
            value = kfast_fold(value ^ kfast_few_bytes(text, size), 0xD6E8FEB86659FD93u);
        return kfast_fold(value ^ seed, 0xC2B2AE3D27D4EB4Fu);
    }
    #endif
    """
    uint64_t hash_bytes "kfast_hash_bytes"(
        const char* text, int64_t size, uint64_t seed) noexcept nogil
