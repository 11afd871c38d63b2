"""Varints and text of hostile bytes, as inline functions: what Avro and Protobuf have in common.

Reads are inside of the value, apart from copies that read up to 15 bytes more of the same buffer.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kfast._native.builders cimport UTF8, Builder, ColumnBuilders, bytes_room, end_bytes
from kfast._native.deserialize cimport is_utf8
from kfast._native.utf8 cimport UTF8_SLACK, copy_text_blocks, is_utf8_within


cdef extern from *:
    """
    #ifndef KFAST_VALUE_BYTES_H
    #define KFAST_VALUE_BYTES_H
    #include <stdint.h>
    #include <string.h>

    /* 8 bytes, the first one lowest. One load: what endian.pxd spells out byte by byte is not
       combined by GCC where it is inlined here. */
    static inline uint64_t kfast_load_word(const void *at) {
        uint64_t word;
        memcpy(&word, at, 8);
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }
    static inline int kfast_is_little_endian(void) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        return 0;
    #else
        return 1;
    #endif
    }
    /* Bytes of a varint of 2 to 8 bytes whose first 8 bytes are `word`; 0 if it is longer. */
    static inline int kfast_varint_size(uint64_t word) {
        uint64_t stop = ~word & 0x8080808080808080u;
        return stop ? (__builtin_ctzll(stop) >> 3) + 1 : 0;
    }
    /* The number in the first `size` bytes: 7 bits of each. */
    static inline uint64_t kfast_varint_bits(uint64_t word, int size) {
        word &= ~(uint64_t)0 >> (64 - 8 * size);
        word &= 0x7f7f7f7f7f7f7f7fu;
        word = (word & 0x007f007f007f007fu) | (word & 0x7f007f007f007f00u) >> 1;
        word = (word & 0x00003fff00003fffu) | (word & 0x3fff00003fff0000u) >> 2;
        return (word & 0x000000000fffffffu) | (word & 0x0fffffff00000000u) >> 4;
    }
    #endif
    """
    uint64_t load_word "kfast_load_word"(const void* at) noexcept nogil
    bint is_little_endian "kfast_is_little_endian"() noexcept nogil
    int varint_size "kfast_varint_size"(uint64_t word) noexcept nogil
    uint64_t varint_bits "kfast_varint_bits"(uint64_t word, int size) noexcept nogil


# Numbers that say something of rows: one for each, or one for all.
cdef struct RowNumbers:
    const int32_t* first    # NULL: zeros
    Py_ssize_t step         # 0: one for all


cdef inline RowNumbers row_numbers(
        const int32_t[::1] numbers, Py_ssize_t rows, str what) except *:
    """Check how many there are; ``numbers``, or None, have to stay."""
    cdef RowNumbers made
    made.first, made.step = NULL, 0
    if numbers is not None:
        if numbers.shape[0] != rows and numbers.shape[0] != 1:
            raise ValueError(f"one {what} per row")
        made.first = &numbers[0] if rows else NULL
        made.step = numbers.shape[0] > 1
    return made


cdef inline int32_t number_of(const RowNumbers* numbers, Py_ssize_t row) noexcept nogil:
    return numbers.first[row * numbers.step] if numbers.first is not NULL else 0


cdef inline int64_t unzigzag(uint64_t value) noexcept nogil:
    return <int64_t> ((value >> 1) ^ (0 - (value & 1)))


cdef inline int copy_text(
        ColumnBuilders b, Builder* n, const uint8_t* text, int64_t size,
        const uint8_t* buffer_end) noexcept nogil:
    """Append UTF-8: copy 16 bytes at a time, and look closer if one of them is not ASCII."""
    cdef char* room = bytes_room(b, n, size)
    if room is NULL:
        return b.failure
    if size + UTF8_SLACK <= buffer_end - text:
        if copy_text_blocks(text, room, size) and not is_utf8_within(text, size):
            return UTF8
    else:
        if size:
            memcpy(room, text, size)
        if not is_utf8(text, size):
            return UTF8
    return end_bytes(b, n, size)
