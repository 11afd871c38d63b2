"""Avro's binary encoding: varints, sizes, text and decimals of hostile bytes, as inline functions.

The rules are in ``avro_decode.pyx``. Readers take the place to read from and the end of the value;
they return 0 and move the place, or an error code and leave it at the bad byte. They read inside of
the value only, apart from copies that read up to 15 bytes more of the same buffer.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfast._native.builders cimport (
    RANGE,
    TRUNCATED,
    UTF8,
    ColumnBuilders,
    bytes_room,
    end_bytes,
    fixed_slot,
)
from kfast._native.deserialize cimport is_utf8


cdef extern from *:
    """
    #ifndef KFAST_AVRO_VARINT_H
    #define KFAST_AVRO_VARINT_H
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
    int varint_size "kfast_varint_size"(uint64_t word) noexcept nogil
    uint64_t varint_bits "kfast_varint_bits"(uint64_t word, int size) noexcept nogil


cdef enum:
    LONGEST_INT = 5
    LONGEST_LONG = 10
    COPY = 16


cdef inline int read_long(
        const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept nogil:
    """Read up to 10 bytes, not yet unzigzagged; 0 or an error."""
    if at[0] < end and at[0][0] < 0x80:
        value[0] = at[0][0]
        at[0] += 1
        return 0
    return read_more_of_long(at, end, value)


cdef inline int read_more_of_long(
        const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept nogil:
    """Read what is longer than a byte; apart, so that the byte is read in place."""
    cdef uint64_t word
    cdef int size
    if end - at[0] >= 8:
        word = load_word(at[0])
        size = varint_size(word)
        if size:
            value[0] = varint_bits(word, size)
            at[0] += size
            return 0
    return read_slowly(at, end, value, LONGEST_LONG, 1)


cdef inline int read_int(const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept nogil:
    """Read up to 5 bytes, the last at most 15: 32 bits."""
    if at[0] < end and at[0][0] < 0x80:
        value[0] = at[0][0]
        at[0] += 1
        return 0
    return read_more_of_int(at, end, value)


cdef inline int read_more_of_int(
        const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept nogil:
    cdef uint64_t word
    cdef int size
    if end - at[0] >= 8:
        word = load_word(at[0])
        size = varint_size(word)
        if not 0 < size <= LONGEST_INT:
            return RANGE
        word = varint_bits(word, size)
        if word > <uint64_t> 0xFFFFFFFF:
            return RANGE
        value[0] = word
        at[0] += size
        return 0
    return read_slowly(at, end, value, LONGEST_INT, 15)


cdef inline int read_slowly(
        const uint8_t** at, const uint8_t* end, uint64_t* value, int longest,
        uint8_t most) noexcept nogil:
    cdef uint64_t made = 0
    cdef uint8_t byte
    cdef int place
    for place in range(longest):
        if end - at[0] <= place:
            at[0] = end
            return TRUNCATED
        byte = at[0][place]
        if place == longest - 1 and byte > most:
            return RANGE
        made |= <uint64_t> (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            value[0] = made
            at[0] += place + 1
            return 0
    return RANGE


cdef inline int64_t unzigzag(uint64_t value) noexcept nogil:
    return <int64_t> ((value >> 1) ^ (0 - (value & 1)))


cdef inline int read_size(
        const uint8_t** at, const uint8_t* end, int64_t* size) noexcept nogil:
    """Read the size of bytes that have to follow."""
    cdef uint64_t raw = 0
    cdef const uint8_t* begin = at[0]
    cdef int code = read_long(at, end, &raw)
    if code:
        return code
    size[0] = unzigzag(raw)
    if size[0] < 0:
        at[0] = begin
        return RANGE
    if size[0] > end - at[0]:
        at[0] = end
        return TRUNCATED
    return 0


cdef inline uint64_t low_bytes(int64_t count) noexcept nogil:
    """Return the bits of the first bytes of a word, at most 7."""
    return (<uint64_t> 1 << 8 * count) - 1


cdef inline int copy_text(
        ColumnBuilders b, int32_t node, const uint8_t* text, int64_t n,
        const uint8_t* buffer_end) noexcept nogil:
    """Append UTF-8: copy 16 bytes at a time, and look closer if one of them is not ASCII."""
    cdef char* room = bytes_room(b, node, n)
    cdef uint64_t words[2]
    cdef uint64_t signs = 0
    cdef int64_t left = n
    if room is NULL:
        return b.failure
    if n + COPY <= buffer_end - text:
        while left >= COPY:
            memcpy(words, text, COPY)
            memcpy(room, words, COPY)
            signs |= words[0] | words[1]
            text += COPY
            room += COPY
            left -= COPY
        if left:
            memcpy(room, text, COPY)
            # Bytes behind the text do not count.
            if left >= 8:
                signs |= load_word(text) | (load_word(text + 8) & low_bytes(left - 8))
            else:
                signs |= load_word(text) & low_bytes(left)
        if signs & <uint64_t> 0x8080808080808080 == 0:
            return end_bytes(b, node, n)
        text -= n - left
    elif n:
        memcpy(room, text, n)
    if not is_utf8(text, n):
        return UTF8
    return end_bytes(b, node, n)


cdef inline int append_decimal(
        ColumnBuilders b, int32_t node, const uint8_t* digits, int64_t n,
        const int32_t* limit) noexcept nogil:
    """Append a big-endian number below a power of ten."""
    cdef uint64_t words[4]
    cdef uint64_t word, bound
    cdef uint64_t sign = 0xFF if n and digits[0] & 0x80 else 0
    cdef uint64_t fill = 0 - (sign & 1)
    cdef uint64_t carry
    cdef int64_t place
    cdef int at
    cdef int32_t width = b.nodes[node].width
    cdef char* slot
    if n < 1:
        return RANGE
    for place in range(32, n):
        if digits[place - 32] != sign:
            return RANGE
    for at in range(4):
        words[at] = fill
    for place in range(n if n < 32 else 32):
        at = <int> (place >> 3)
        word = <uint64_t> 0xFF << (8 * (place & 7))
        words[at] = (words[at] & ~word) | (<uint64_t> digits[n - 1 - place] << (8 * (place & 7)))
    if n >= 32 and (words[3] >> 63) != (sign & 1):
        return RANGE
    # The magnitude is compared: -x is ~x + 1.
    carry = sign & 1
    cdef uint64_t magnitude[4]
    for at in range(4):
        magnitude[at] = (words[at] ^ fill) + carry
        carry = carry & (magnitude[at] == 0)
    for at in range(3, -1, -1):
        bound = (<uint64_t> <uint32_t> limit[2 * at]
                 | <uint64_t> <uint32_t> limit[2 * at + 1] << 32)
        if magnitude[at] < bound:
            break
        if magnitude[at] > bound or at == 0:
            return RANGE
    slot = fixed_slot(b, node)
    if slot is NULL:
        return b.failure
    memcpy(slot, words, width)
    return 0
