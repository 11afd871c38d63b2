"""Unaligned big-endian loads and stores.

The only place that depends on byte order. Every integer of the Kafka protocol is big-endian and
unaligned, so values are assembled from bytes; GCC and Clang compile each of these to one load and
one byte swap. Bounds are checked in ``reader.pxd``, not here.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t


cdef extern from *:
    """
    #ifndef KFAST_ENDIAN_H
    #define KFAST_ENDIAN_H
    #include <stdint.h>
    #include <string.h>

    static inline uint16_t kfast_load_be16(const void *at) {
        const unsigned char *p = (const unsigned char *)at;
        return (uint16_t)((uint16_t)p[0] << 8 | (uint16_t)p[1]);
    }
    static inline uint32_t kfast_load_be32(const void *at) {
        const unsigned char *p = (const unsigned char *)at;
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
    }
    static inline uint64_t kfast_load_be64(const void *at) {
        const unsigned char *p = (const unsigned char *)at;
        return (uint64_t)p[0] << 56 | (uint64_t)p[1] << 48 | (uint64_t)p[2] << 40
             | (uint64_t)p[3] << 32 | (uint64_t)p[4] << 24 | (uint64_t)p[5] << 16
             | (uint64_t)p[6] << 8 | (uint64_t)p[7];
    }
    static inline uint32_t kfast_load_le32(const void *at) {
        const unsigned char *p = (const unsigned char *)at;
        return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | (uint32_t)p[0];
    }
    static inline uint64_t kfast_load_le64(const void *at) {
        const unsigned char *p = (const unsigned char *)at;
        return (uint64_t)p[7] << 56 | (uint64_t)p[6] << 48 | (uint64_t)p[5] << 40
             | (uint64_t)p[4] << 32 | (uint64_t)p[3] << 24 | (uint64_t)p[2] << 16
             | (uint64_t)p[1] << 8 | (uint64_t)p[0];
    }
    static inline void kfast_store_be32(void *at, uint32_t value) {
        unsigned char *p = (unsigned char *)at;
        p[0] = (unsigned char)(value >> 24);
        p[1] = (unsigned char)(value >> 16);
        p[2] = (unsigned char)(value >> 8);
        p[3] = (unsigned char)value;
    }
    static inline void kfast_store_be64(void *at, uint64_t value) {
        kfast_store_be32(at, (uint32_t)(value >> 32));
        kfast_store_be32((unsigned char *)at + 4, (uint32_t)value);
    }
    #endif
    """
    uint16_t load_be16 "kfast_load_be16"(const void* at) noexcept nogil
    uint32_t load_be32 "kfast_load_be32"(const void* at) noexcept nogil
    uint64_t load_be64 "kfast_load_be64"(const void* at) noexcept nogil
    uint32_t load_le32 "kfast_load_le32"(const void* at) noexcept nogil
    uint64_t load_le64 "kfast_load_le64"(const void* at) noexcept nogil
    void store_be32 "kfast_store_be32"(void* at, uint32_t value) noexcept nogil
    void store_be64 "kfast_store_be64"(void* at, uint64_t value) noexcept nogil


cdef inline int16_t load_i16(const void* at) noexcept nogil:
    return <int16_t> load_be16(at)


cdef inline int32_t load_i32(const void* at) noexcept nogil:
    return <int32_t> load_be32(at)


cdef inline int64_t load_i64(const void* at) noexcept nogil:
    return <int64_t> load_be64(at)
