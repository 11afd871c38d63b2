"""Protobuf's wire format: varints, tags, sizes and fields that are skipped, as inline functions.

The rules are in ``protobuf_decode.pyx``. Readers take the place to read from and the end of the
message, and return the place behind what they have read; or NULL after ``fail``, with the code and
the bad byte, which is the end for what goes on behind it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kfast._native.builders cimport DEPTH, RANGE, SYNTAX, TRUNCATED, TYPE
from kfast._native.value_bytes cimport load_word, varint_bits, varint_size


cdef enum:
    LONGEST_VARINT = 10
    LONGEST_SMALL = 5       # bytes of tags and sizes
    MOST_GROUPS = 256
    NANOS = 1_000_000_000
    SECONDS_TAG = 1 << 3    # of Timestamp and Duration
    NANOS_TAG = 2 << 3

cdef enum WireType:
    WIRE_VARINT = 0
    WIRE_FIXED64 = 1
    WIRE_BYTES = 2
    WIRE_GROUP = 3
    WIRE_END_GROUP = 4
    WIRE_FIXED32 = 5


cdef struct Cursor:
    const uint8_t* at           # after an error the bad byte
    const uint8_t* buffer_end   # 10 bytes at once may be read up to here
    int32_t code                # of the error
    int32_t most_depth          # of groups


cdef inline const uint8_t* fail(Cursor* c, const uint8_t* at, int code) noexcept nogil:
    c.at = at
    c.code = code
    return NULL


cdef inline const uint8_t* read_varint(
        Cursor* c, const uint8_t* at, const uint8_t* end, uint64_t* value) noexcept nogil:
    """Read up to 10 bytes. Bits behind the 64th are dropped, as protoc's code does."""
    cdef uint64_t made = 0
    if at < end and at[0] < 0x80:
        value[0] = at[0]
        return at + 1
    at = read_more_of_varint(c, at, end, &made)
    value[0] = made
    return at


cdef inline const uint8_t* read_more_of_varint(
        Cursor* c, const uint8_t* at, const uint8_t* end, uint64_t* value) noexcept nogil:
    """Read what is longer than a byte; apart, so that the byte is read in place."""
    cdef uint64_t word
    cdef int size, place
    if c.buffer_end - at >= LONGEST_VARINT:
        word = load_word(at)
        size = varint_size(word)
        if size:
            value[0] = varint_bits(word, size)
        else:
            value[0] = varint_bits(word, 8) | <uint64_t> (at[8] & 0x7F) << 56
            size = 9
            if at[8] >= 0x80:
                value[0] |= <uint64_t> at[9] << 63
                size = LONGEST_VARINT
                if at[9] >= 0x80 and end - at >= LONGEST_VARINT:
                    return fail(c, at, SYNTAX)
        if size > end - at:
            return fail(c, end, TRUNCATED)
        return at + size
    for place in range(LONGEST_VARINT):
        if end - at <= place:
            return fail(c, end, TRUNCATED)
        value[0] |= <uint64_t> (at[place] & 0x7F) << (7 * place)
        if at[place] < 0x80:
            return at + place + 1
    return fail(c, at, SYNTAX)


cdef inline const uint8_t* read_small(
        Cursor* c, const uint8_t* at, const uint8_t* end, uint64_t* value) noexcept nogil:
    """Read a tag or a size: up to 5 bytes, and 32 bits."""
    cdef uint64_t made = 0
    if at < end and at[0] < 0x80:
        value[0] = at[0]
        return at + 1
    at = read_more_of_small(c, at, end, &made)
    value[0] = made
    return at


cdef inline const uint8_t* read_more_of_small(
        Cursor* c, const uint8_t* at, const uint8_t* end, uint64_t* value) noexcept nogil:
    cdef int place
    for place in range(LONGEST_SMALL):
        if end - at <= place:
            return fail(c, end, TRUNCATED)
        value[0] |= <uint64_t> (at[place] & 0x7F) << (7 * place)
        if at[place] < 0x80:
            if value[0] > <uint64_t> 0xFFFFFFFF:
                break
            return at + place + 1
    return fail(c, at, SYNTAX)


cdef inline const uint8_t* read_size(
        Cursor* c, const uint8_t* at, const uint8_t* end, int64_t* size) noexcept nogil:
    """Read the size of bytes that have to follow."""
    cdef uint64_t raw = 0
    at = read_small(c, at, end, &raw)
    if at is not NULL and raw > <uint64_t> (end - at):
        return fail(c, end, TRUNCATED)
    size[0] = <int64_t> raw
    return at


cdef inline const uint8_t* skip_bytes(
        Cursor* c, const uint8_t* at, const uint8_t* end, int64_t size) noexcept nogil:
    if size > end - at:
        return fail(c, end, TRUNCATED)
    return at + size


cdef inline const uint8_t* skip_field(
        Cursor* c, const uint8_t* begin, const uint8_t* at, const uint8_t* end,
        uint64_t tag) noexcept nogil:
    """Pass over what follows a tag, which is at ``begin``: a value, or a group with all in it."""
    cdef uint32_t groups[MOST_GROUPS]
    cdef int32_t depth = 0
    cdef uint64_t raw = 0
    cdef int64_t size = 0
    cdef uint32_t wire
    while True:
        wire = <uint32_t> tag & 7
        if tag >> 3 == 0:
            return fail(c, begin, SYNTAX)
        if wire == WIRE_VARINT:
            at = read_varint(c, at, end, &raw)
        elif wire == WIRE_BYTES:
            at = read_size(c, at, end, &size)
            if at is not NULL:
                at += size
        elif wire == WIRE_FIXED64:
            at = skip_bytes(c, at, end, 8)
        elif wire == WIRE_FIXED32:
            at = skip_bytes(c, at, end, 4)
        elif wire == WIRE_GROUP:
            if depth >= c.most_depth or depth >= MOST_GROUPS:
                return fail(c, begin, DEPTH)
            groups[depth] = <uint32_t> (tag >> 3)
            depth += 1
        elif wire == WIRE_END_GROUP and depth and groups[depth - 1] == <uint32_t> (tag >> 3):
            depth -= 1
        else:
            return fail(c, begin, SYNTAX)
        if depth == 0 or at is NULL:
            return at
        begin = at
        at = read_small(c, at, end, &tag)
        if at is NULL:
            return NULL


cdef inline const uint8_t* check_fields(
        Cursor* c, const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Pass over all fields of a message whose schema is not known here."""
    cdef uint64_t tag = 0
    cdef const uint8_t* begin
    while at is not NULL and at < end:
        begin = at
        at = read_small(c, at, end, &tag)
        if at is not NULL:
            at = skip_field(c, begin, at, end, tag)
    return at


cdef inline const uint8_t* read_time(
        Cursor* c, const uint8_t* at, const uint8_t* end, bint is_duration,
        int64_t* nanoseconds) noexcept nogil:
    """Read a Timestamp or Duration into ``nanoseconds``, whose value is that of the parts before.

    Seconds and nanoseconds have the same sign in a Duration, and in a Timestamp nanoseconds are
    not negative: else, and where an int64 does not have the sum, it is RANGE. The smallest int64 is
    NumPy's "not a time".
    """
    cdef const uint8_t* begin = at
    cdef const uint8_t* field
    cdef int64_t seconds = nanoseconds[0] // NANOS      # towards zero, as in C
    cdef int64_t nanos = nanoseconds[0] % NANOS
    cdef uint64_t raw = 0
    cdef uint64_t tag = 0
    cdef bint is_good
    if nanos < 0 and not is_duration:
        seconds -= 1
        nanos += NANOS
    while at < end:
        field = at
        at = read_small(c, at, end, &tag)
        if at is NULL:
            return NULL
        if tag == SECONDS_TAG:
            at = read_varint(c, at, end, &raw)
            seconds = <int64_t> raw
        elif tag == NANOS_TAG:
            at = read_varint(c, at, end, &raw)
            nanos = <int32_t> <uint32_t> raw
        elif ((tag >> 3 == 1 or tag >> 3 == 2) and tag & 7 <= WIRE_FIXED32
                and tag & 7 != WIRE_END_GROUP):
            return fail(c, field, TYPE)
        else:
            at = skip_field(c, field, at, end, tag)
        if at is NULL:
            return NULL
    is_good = -NANOS < nanos < NANOS
    if is_duration:
        is_good = is_good and not (seconds > 0 and nanos < 0) and not (seconds < 0 and nanos > 0)
    else:
        is_good = is_good and nanos >= 0
        if seconds < 0 and nanos > 0:
            seconds += 1
            nanos -= NANOS
    # What an int64 has is 9223372036 s and 854775807 ns, and as much before zero.
    is_good = is_good and <int64_t> -9_223_372_036 <= seconds <= <int64_t> 9_223_372_036
    if is_good and (seconds == <int64_t> 9_223_372_036 and nanos > 854_775_807
                    or seconds == <int64_t> -9_223_372_036 and nanos < -854_775_807):
        is_good = False
    if not is_good:
        return fail(c, begin, RANGE)
    nanoseconds[0] = seconds * NANOS + nanos
    return at
