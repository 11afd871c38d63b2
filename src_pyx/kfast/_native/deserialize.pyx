"""Deserialization of Kafka's standard serializers, a whole column at a time.

Owns: validation and conversion of values to fixed-width blocks or checked text. It returns which
rows are bad; the caller raises, nulls or skips.

Every function takes the three buffers of a byte column (see ``columns.pyx``) and
``stop_at_first``, and returns ``(block, flags, first_bad)``:

=============  ====================================================================================
block          OwnedBuffer with one entry per row, zeros for null and bad rows; None for text,
               which stays where it is
flags          None when every row is a good value; else one byte per row: 0 good, 1 null, 2 bad
first_bad      first bad row, or -1. With ``stop_at_first`` rows from there on are not converted
=============  ====================================================================================

Wire forms: integers and floats big-endian (Java's IntegerSerializer, LongSerializer,
FloatSerializer, DoubleSerializer); UUIDs as their 36 characters of text (UUIDSerializer) or 16 raw
bytes; text in UTF-8 (StringSerializer); structures in NumPy's layout.

The per-record loops run without the GIL. Threads: any.
"""

from libc.stdint cimport int8_t, int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kfast._native.buffers cimport OwnedBuffer, new_buffer
from kfast._native.columns cimport SpanSource, SpanTotals, Spans, open_checked, span_start
from kfast._native.endian cimport load_be32, load_be64


cdef enum:
    GOOD = 0
    NULL_VALUE = 1
    BAD = 2
    UUID_BYTES = 16
    UUID_TEXT = 36

# Converts one value that is not null; False when it is malformed. `width` is the size of an entry.
ctypedef bint (*Converter)(
    const char* value, int32_t length, char* out, Py_ssize_t width) noexcept nogil


cdef bint convert_be32(
        const char* value, int32_t length, char* out, Py_ssize_t width) noexcept nogil:
    cdef uint32_t number
    if length != 4:
        return False
    number = load_be32(value)
    memcpy(out, &number, 4)
    return True


cdef bint convert_be64(
        const char* value, int32_t length, char* out, Py_ssize_t width) noexcept nogil:
    cdef uint64_t number
    if length != 8:
        return False
    number = load_be64(value)
    memcpy(out, &number, 8)
    return True


cdef bint convert_block(
        const char* value, int32_t length, char* out, Py_ssize_t width) noexcept nogil:
    if length != width:
        return False
    memcpy(out, value, length)
    return True


cdef inline int hex_digit(uint8_t letter) noexcept nogil:
    """Value of a hexadecimal digit, or -1."""
    if c'0' <= letter <= c'9':
        return letter - c'0'
    letter |= 0x20
    if c'a' <= letter <= c'f':
        return letter - c'a' + 10
    return -1


cdef bint parse_uuid(const char* text, char* out) noexcept nogil:
    cdef const uint8_t* letters = <const uint8_t*> text
    cdef int at = 0
    cdef int byte, high, low
    for byte in range(UUID_BYTES):
        if at == 8 or at == 13 or at == 18 or at == 23:
            if letters[at] != c'-':
                return False
            at += 1
        high = hex_digit(letters[at])
        low = hex_digit(letters[at + 1])
        if high < 0 or low < 0:
            return False
        out[byte] = <char> (high << 4 | low)
        at += 2
    return True


cdef bint convert_uuid(
        const char* value, int32_t length, char* out, Py_ssize_t width) noexcept nogil:
    """16 raw bytes, or ``xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`` in either letter case."""
    if length == UUID_BYTES:
        memcpy(out, value, UUID_BYTES)
        return True
    return length == UUID_TEXT and parse_uuid(value, out)


cdef uint8_t* mark(OwnedBuffer flags, Py_ssize_t rows) noexcept nogil:
    """Prepare the result, with all rows good."""
    memset(flags.ptr, GOOD, rows)
    flags.size = rows
    return <uint8_t*> flags.ptr


cdef tuple convert_column(
        object data, object starts, object lengths, Py_ssize_t width, Converter convert,
        bint stop_at_first):
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef OwnedBuffer block = new_buffer(spans.count * width)
    cdef OwnedBuffer flags = new_buffer(spans.count)
    cdef uint8_t* flag = mark(flags, spans.count)
    cdef Py_ssize_t row, first_bad = -1
    cdef int32_t length
    cdef char* out
    block.size = spans.count * width
    with nogil:
        for row in range(spans.count):
            length = spans.lengths[row]
            out = block.ptr + row * width
            # The start is added to the data pointer only for values that have bytes.
            if length > 0 and convert(
                    spans.data + span_start(spans, row), length, out, width):
                continue
            memset(out, 0, width)
            if length < 0:
                flag[row] = NULL_VALUE
                continue
            flag[row] = BAD
            if first_bad < 0:
                first_bad = row
                if stop_at_first:
                    memset(out, 0, (spans.count - row) * width)
                    break
    if totals.nulls == 0 and first_bad < 0:
        return block, None, -1
    return block, flags, first_bad


def big_endian_column(data, starts, lengths, Py_ssize_t width, bint stop_at_first) -> tuple:
    """4- or 8-byte big-endian numbers, integer or floating, in native byte order."""
    if width == 4:
        return convert_column(data, starts, lengths, 4, convert_be32, stop_at_first)
    if width == 8:
        return convert_column(data, starts, lengths, 8, convert_be64, stop_at_first)
    raise ValueError("big-endian numbers have 4 or 8 bytes here")


def block_column(data, starts, lengths, Py_ssize_t width, bint stop_at_first) -> tuple:
    """Values of exactly ``width`` bytes, unchanged: structured NumPy types."""
    if width <= 0:
        raise ValueError("a fixed width must be positive")
    return convert_column(data, starts, lengths, width, convert_block, stop_at_first)


def uuid_column(data, starts, lengths, bint stop_at_first) -> tuple:
    """UUIDs as 16 bytes each, from text or raw bytes."""
    return convert_column(data, starts, lengths, UUID_BYTES, convert_uuid, stop_at_first)


# --------------------------------------------------------------------------------------------- text

cdef inline bint is_tail(uint8_t byte) noexcept nogil:
    return (<int8_t> byte) < -64


cdef bint is_utf8(const uint8_t* text, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t* end = text + size
    cdef uint64_t words[4]
    cdef uint64_t word
    cdef uint8_t lead
    while text < end:
        # Runs of ASCII, 32 then 8 bytes at a time.
        while end - text >= 32:
            memcpy(words, text, 32)
            if (words[0] | words[1] | words[2] | words[3]) & <uint64_t> 0x8080808080808080:
                break
            text += 32
        while end - text >= 8:
            memcpy(&word, text, 8)
            if word & <uint64_t> 0x8080808080808080:
                break
            text += 8
        while text < end and text[0] < 0x80:
            text += 1
        # Runs of longer characters; the second byte's limits rule out overlong forms, surrogates
        # and code points past U+10FFFF.
        while text < end and text[0] >= 0x80:
            lead = text[0]
            if lead < 0xC2:
                return False
            if lead < 0xE0:
                if end - text < 2 or not is_tail(text[1]):
                    return False
                text += 2
            elif lead < 0xF0:
                if end - text < 3 or not is_tail(text[1]) or not is_tail(text[2]):
                    return False
                if (lead == 0xE0 and text[1] < 0xA0) or (lead == 0xED and text[1] > 0x9F):
                    return False
                text += 3
            elif lead < 0xF5:
                if (end - text < 4 or not is_tail(text[1]) or not is_tail(text[2])
                        or not is_tail(text[3])):
                    return False
                if (lead == 0xF0 and text[1] < 0x90) or (lead == 0xF4 and text[1] > 0x8F):
                    return False
                text += 4
            else:
                return False
    return True


def utf8_column(data, starts, lengths, bint stop_at_first) -> tuple:
    """Check that every value is UTF-8; the values stay in ``data``, so the block is None."""
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef OwnedBuffer flags = new_buffer(spans.count)
    cdef uint8_t* flag = mark(flags, spans.count)
    cdef Py_ssize_t row, first_bad = -1
    cdef int32_t length
    with nogil:
        for row in range(spans.count):
            length = spans.lengths[row]
            if length < 0:
                flag[row] = NULL_VALUE
            elif length > 0 and not is_utf8(
                    <const uint8_t*> spans.data + span_start(spans, row), length):
                flag[row] = BAD
                if first_bad < 0:
                    first_bad = row
                    if stop_at_first:
                        break
    if totals.nulls == 0 and first_bad < 0:
        return None, None, -1
    return None, flags, first_bad
