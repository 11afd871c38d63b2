"""Avro's binary encoding: varints, sizes and decimals of hostile bytes, as inline functions.

The rules are in ``avro_decode.pyx``. Readers take the place to read from and the end of the value;
they return 0 and move the place, or an error code and leave it at the bad byte. What is behind the
value, up to ``buffer_end``, may be read and does not count.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfast._native.builders cimport RANGE, TRUNCATED, ColumnBuilders, fixed_slot
from kfast._native.value_bytes cimport load_word, unzigzag, varint_bits, varint_size


cdef extern from *:
    # Of Cython's own. What is behind it is not made a part of loops, so that the rest is.
    bint unlikely(bint condition) noexcept nogil


cdef enum:
    LONGEST_INT = 5
    LONGEST_LONG = 10


cdef inline int read_long(
        const uint8_t** at, const uint8_t* end, const uint8_t* buffer_end,
        uint64_t* value) noexcept nogil:
    """Read up to 10 bytes, not yet unzigzagged; 0 or an error."""
    cdef uint64_t word
    cdef int size
    if at[0] < end and at[0][0] < 0x80:
        value[0] = at[0][0]
        at[0] += 1
        return 0
    if unlikely(buffer_end - at[0] < 8):
        return read_slowly(at, end, value, LONGEST_LONG, 1)
    word = load_word(at[0])
    size = varint_size(word)
    if unlikely(size == 0 or size > end - at[0]):
        return read_slowly(at, end, value, LONGEST_LONG, 1)
    value[0] = varint_bits(word, size)
    at[0] += size
    return 0


cdef inline int read_int(
        const uint8_t** at, const uint8_t* end, const uint8_t* buffer_end,
        uint64_t* value) noexcept nogil:
    """Read up to 5 bytes, the last at most 15: 32 bits."""
    cdef uint64_t word
    cdef int size
    if at[0] < end and at[0][0] < 0x80:
        value[0] = at[0][0]
        at[0] += 1
        return 0
    if unlikely(buffer_end - at[0] < 8):
        return read_slowly(at, end, value, LONGEST_INT, 15)
    word = load_word(at[0])
    size = varint_size(word)
    if unlikely(size == 0 or size > LONGEST_INT or size > end - at[0]):
        return read_slowly(at, end, value, LONGEST_INT, 15)
    word = varint_bits(word, size)
    if unlikely(word > <uint64_t> 0xFFFFFFFF):
        return RANGE
    value[0] = word
    at[0] += size
    return 0


cdef inline int read_branch(
        const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept nogil:
    """Read a long that has one byte nearly always: the index of a union, the count of a block."""
    if unlikely(at[0] == end or at[0][0] >= 0x80):
        return read_slowly(at, end, value, LONGEST_LONG, 1)
    value[0] = at[0][0]
    at[0] += 1
    return 0


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


cdef inline int read_size(
        const uint8_t** at, const uint8_t* end, const uint8_t* buffer_end,
        int64_t* size) noexcept nogil:
    """Read the size of bytes that have to follow."""
    cdef uint64_t raw = 0
    cdef const uint8_t* begin = at[0]
    cdef int code = read_long(at, end, buffer_end, &raw)
    if unlikely(code):
        return code
    size[0] = unzigzag(raw)
    if unlikely(size[0] < 0):
        at[0] = begin
        return RANGE
    if unlikely(size[0] > end - at[0]):
        at[0] = end
        return TRUNCATED
    return 0


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
