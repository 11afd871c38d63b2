"""JSON (RFC 8259) that is checked and copied: without white space between its parts.

Numbers keep their digits, objects the order of their keys and duplicates, strings their escapes.
Refused are NaN and Infinity, a byte order mark, text behind the value, lone control characters,
what is not UTF-8, and more than ``JSON_DEPTH`` arrays and objects inside each other.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from kfast._native.text_scan cimport copy_plain, utf8_character


cdef enum:
    JSON_DEPTH = 1024


# What may come next.
cdef enum Expected:
    A_VALUE
    A_VALUE_OR_END      # behind "["
    A_KEY
    A_KEY_OR_END        # behind "{"
    A_COMMA_OR_END
    NOTHING_MORE


cdef struct JsonCopy:
    const uint8_t* text
    Py_ssize_t size
    Py_ssize_t at
    uint8_t* to


cdef inline bint is_digit(const JsonCopy* copy) noexcept nogil:
    return copy.at < copy.size and c'0' <= copy.text[copy.at] <= c'9'


cdef inline void copy_byte(JsonCopy* copy) noexcept nogil:
    copy.to[0] = copy.text[copy.at]
    copy.to += 1
    copy.at += 1


cdef inline void skip_white_space(JsonCopy* copy) noexcept nogil:
    cdef uint8_t byte
    while copy.at < copy.size:
        byte = copy.text[copy.at]
        if byte != c' ' and byte != c'\n' and byte != c'\t' and byte != c'\r':
            return
        copy.at += 1


cdef inline bint copy_digits(JsonCopy* copy) noexcept nogil:
    if not is_digit(copy):
        return False
    while is_digit(copy):
        copy_byte(copy)
    return True


cdef inline bint copy_number(JsonCopy* copy) noexcept nogil:
    if copy.text[copy.at] == c'-':
        copy_byte(copy)
    if copy.at < copy.size and copy.text[copy.at] == c'0':
        copy_byte(copy)
    elif not copy_digits(copy):
        return False
    if copy.at < copy.size and copy.text[copy.at] == c'.':
        copy_byte(copy)
        if not copy_digits(copy):
            return False
    if copy.at < copy.size and (copy.text[copy.at] | 0x20) == c'e':
        copy_byte(copy)
        if copy.at < copy.size and (copy.text[copy.at] == c'+' or copy.text[copy.at] == c'-'):
            copy_byte(copy)
        if not copy_digits(copy):
            return False
    return True


cdef inline bint copy_word(JsonCopy* copy, const char* word, Py_ssize_t size) noexcept nogil:
    if copy.size - copy.at < size or memcmp(copy.text + copy.at, word, size) != 0:
        return False
    memcpy(copy.to, word, size)
    copy.to += size
    copy.at += size
    return True


cdef inline bint copy_escape(JsonCopy* copy) noexcept nogil:
    cdef int _digit
    cdef uint8_t byte
    copy_byte(copy)
    if copy.at >= copy.size:
        return False
    byte = copy.text[copy.at]
    if byte != c'u':
        copy_byte(copy)
        return (byte == c'"' or byte == c'\\' or byte == c'/' or byte == c'b' or byte == c'f'
                or byte == c'n' or byte == c'r' or byte == c't')
    copy_byte(copy)
    for _digit in range(4):
        if copy.at >= copy.size:
            return False
        byte = copy.text[copy.at] | 0x20
        if not (c'0' <= copy.text[copy.at] <= c'9' or c'a' <= byte <= c'f'):
            return False
        copy_byte(copy)
    return True


cdef inline bint copy_string(JsonCopy* copy, Py_ssize_t readable) noexcept nogil:
    """Copy from a quotation mark up to the next; ``readable`` bytes of the text may be read."""
    cdef Py_ssize_t count
    cdef int length
    cdef uint32_t character
    cdef uint8_t byte
    copy_byte(copy)
    while True:
        count = copy_plain(
            copy.to, copy.text + copy.at, copy.size - copy.at, readable - copy.at, c'"', c'\\', c'"'
        )
        copy.to += count
        copy.at += count
        if copy.at >= copy.size:
            return False
        byte = copy.text[copy.at]
        if byte == c'"':
            copy_byte(copy)
            return True
        if byte == c'\\':
            if not copy_escape(copy):
                return False
            continue
        if byte < 0x20:
            return False
        length = utf8_character(copy.text + copy.at, copy.size - copy.at, &character)
        if length < 0:
            return False
        memcpy(copy.to, copy.text + copy.at, length)
        copy.to += length
        copy.at += length


cdef inline bint copy_scalar(JsonCopy* copy, Py_ssize_t readable) noexcept nogil:
    cdef uint8_t byte = copy.text[copy.at]
    if byte == c'"':
        return copy_string(copy, readable)
    if byte == c't':
        return copy_word(copy, b"true", 4)
    if byte == c'f':
        return copy_word(copy, b"false", 5)
    if byte == c'n':
        return copy_word(copy, b"null", 4)
    return copy_number(copy)


cdef inline Py_ssize_t copy_json(
    uint8_t* to, const uint8_t* text, Py_ssize_t size, Py_ssize_t readable, Py_ssize_t* bad
) noexcept nogil:
    """Copy one JSON text; return its size, at most ``size``, or -1 with the ``bad`` byte's place.

    Up to ``TEXT_SLACK`` bytes behind the copy may be written.
    """
    cdef uint64_t objects[16]   # a bit for each level of JSON_DEPTH: an object, not an array
    cdef int depth = 0
    cdef Expected expected = A_VALUE
    cdef JsonCopy copy
    cdef uint8_t byte
    cdef bint is_end
    copy.text, copy.size, copy.at, copy.to = text, size, 0, to
    memset(objects, 0, sizeof(objects))
    while True:
        skip_white_space(&copy)
        if copy.at >= size:
            break
        byte = text[copy.at]
        is_end = False
        if expected == NOTHING_MORE:
            break
        if expected == A_COMMA_OR_END:
            if byte == c',':
                copy_byte(&copy)
                expected = A_KEY if objects[(depth - 1) >> 6] >> ((depth - 1) & 63) & 1 else A_VALUE
                continue
            is_end = True
        elif expected == A_VALUE_OR_END:
            is_end = byte == c']'
        elif expected == A_KEY_OR_END:
            is_end = byte == c'}'
        if is_end:
            if byte != (c'}' if objects[(depth - 1) >> 6] >> ((depth - 1) & 63) & 1 else c']'):
                break
            copy_byte(&copy)
            depth -= 1
            expected = A_COMMA_OR_END if depth else NOTHING_MORE
            continue
        if expected == A_KEY or expected == A_KEY_OR_END:
            if byte != c'"' or not copy_string(&copy, readable):
                break
            skip_white_space(&copy)
            if copy.at >= size or text[copy.at] != c':':
                break
            copy_byte(&copy)
            expected = A_VALUE
            continue
        if byte == c'{' or byte == c'[':
            if depth == JSON_DEPTH:
                break
            objects[depth >> 6] &= ~(<uint64_t> 1 << (depth & 63))
            objects[depth >> 6] |= <uint64_t> (byte == c'{') << (depth & 63)
            depth += 1
            copy_byte(&copy)
            expected = A_KEY_OR_END if byte == c'{' else A_VALUE_OR_END
            continue
        if not copy_scalar(&copy, readable):
            break
        expected = A_COMMA_OR_END if depth else NOTHING_MORE
    if expected == NOTHING_MORE and copy.at >= size:
        return copy.to - to
    bad[0] = copy.at
    return -1
