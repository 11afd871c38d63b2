"""How text is escaped: one table of actions per style, and the loop that applies it.

Inline and nogil. A style is that of JSON strings, of CSV, of TSV (PostgreSQL's COPY), of text that
is copied, or of one line; the SHOWN ones also escape what a terminal acts on and what reorders
text.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from kfast._native.text_cells cimport HEX, put_bytes
from kfast._native.text_scan cimport copy_escaped, copy_plain, utf8_character


cdef enum:
    PLAIN
    JSON
    CSV          # as it is, where no quotes are needed
    QUOTED       # CSV within quotes
    TSV
    LINE         # no control character at all
    STYLES


# What is done with a byte. A letter stands for itself behind a backslash.
cdef enum Action:
    COPY = 0
    CHARACTER = 1       # it begins a character of several bytes
    ESCAPE = 2          # \u00xx in JSON, else \xHH
    TWICE = 3
    NEEDS_QUOTES = 4


# What is done with bytes that are not UTF-8.
cdef enum OnBad:
    STOP
    SHOW_BYTES          # \xHH
    REPLACE             # U+FFFD


cdef enum:
    NOT_QUOTED = -2


cdef struct Style:
    bint is_json
    bint is_shown
    uint8_t a, b, c     # besides control characters and non-ASCII, what is not copied
    uint8_t actions[256]


cdef inline bint is_unsafe(uint32_t character) noexcept nogil:
    """Whether a terminal acts on a character past ASCII, or text is reordered by it."""
    return (character < 0xA0 or character == 0x061C or character == 0x200E or character == 0x200F
            or character == 0x2028 or character == 0x2029
            or 0x202A <= character <= 0x202E or 0x2066 <= character <= 0x2069)


cdef inline char* put_escape(char* p, uint32_t character, bint is_json) noexcept nogil:
    cdef int digits = 4 if character > 0xFF else 2
    if is_json and digits == 2:            # in one piece: numbers in binary have many zeros
        memcpy(p, b"\\u00", 4)
        p[4] = HEX[character >> 4]
        p[5] = HEX[character & 15]
        return p + 6
    p[0] = c'\\'
    p[1] = c'u' if digits == 4 else c'x'
    p += 2
    while digits:
        digits -= 1
        p[0] = HEX[character >> 4 * digits & 15]
        p += 1
    return p


cdef inline char* put_escaped(
    char* p, const uint8_t* text, Py_ssize_t size, Py_ssize_t readable, const Style* style,
    OnBad on_bad, Py_ssize_t* stopped
) noexcept nogil:
    """Write text of `size` bytes, `readable` of which may be read, in at most six times as many.

    NULL with the place of a byte that is not UTF-8 in ``stopped``, or NOT_QUOTED.
    """
    cdef const uint8_t* at = text
    cdef const uint8_t* end = text + size
    cdef Py_ssize_t count
    cdef int length
    cdef uint32_t character
    cdef uint8_t byte, action
    while True:
        if style.is_json:
            at += copy_escaped(
                <uint8_t**> &p, at, end - at, readable - (at - text), style.a, style.b, style.c
            )
        count = copy_plain(
            <uint8_t*> p, at, end - at, readable - (at - text), style.a, style.b, style.c
        )
        p += count
        at += count
        if at == end:
            return p
        # What is not plain seldom comes alone.
        while at < end:
            byte = at[0]
            action = style.actions[byte]
            if action == COPY:
                p[0] = <char> byte
                p += 1
                at += 1
                if 0x20 <= byte < 0x80:
                    break
            elif action == CHARACTER:
                length = utf8_character(at, end - at, &character)
                if length < 0:
                    length = -length
                    if on_bad == STOP:
                        stopped[0] = at - text
                        return NULL
                    if on_bad == REPLACE:
                        p = put_bytes(p, b"\xef\xbf\xbd", 3)
                        at += length
                    else:
                        p = put_escape(p, byte, False)
                        at += 1
                elif style.is_shown and is_unsafe(character):
                    p = put_escape(p, character, style.is_json)
                    at += length
                else:
                    p = put_bytes(p, at, length)
                    at += length
            elif action == NEEDS_QUOTES:
                stopped[0] = NOT_QUOTED
                return NULL
            else:
                if action == ESCAPE:
                    p = put_escape(p, byte, style.is_json)
                elif action == TWICE:
                    p[0] = p[1] = <char> byte
                    p += 2
                else:
                    p[0] = c'\\'
                    p[1] = <char> action
                    p += 2
                at += 1


cdef inline char* cut_line(char* begin, char* p, Py_ssize_t columns) noexcept nogil:
    """Cut a line of UTF-8, if ``columns`` is not 0; an ellipsis stands for the rest."""
    cdef Py_ssize_t width = 0
    cdef char* last = begin          # where the ellipsis would stand
    cdef char* at = begin
    cdef uint32_t character = 0
    if columns <= 0 or p - begin <= columns:
        return p
    while at < p:
        if width < columns:
            last = at
        at += utf8_character(<const uint8_t*> at, p - at, &character)
        width += 2 if character >= 0x1100 else 1
        if width > columns:
            return put_bytes(last, b"\xe2\x80\xa6", 3)
    return p


cdef inline void fill_style(Style* style, int name, bint is_shown) noexcept nogil:
    cdef int byte
    style.is_json = name == JSON
    style.is_shown = is_shown or name == LINE
    style.a = style.b = style.c = 0x7F
    for byte in range(256):
        style.actions[byte] = CHARACTER if byte >= 0x80 else COPY
        if byte < 0x20 or byte == 0x7F:
            if style.is_shown and (name == LINE or (byte != c'\n' and byte != c'\t')):
                style.actions[byte] = ESCAPE
    if name == JSON:
        for byte in range(0x20):
            style.actions[byte] = ESCAPE
        style.actions[c'\b'] = c'b'
        style.actions[c'\t'] = c't'
        style.actions[c'\n'] = c'n'
        style.actions[c'\f'] = c'f'
        style.actions[c'\r'] = c'r'
        style.actions[c'"'] = c'"'
        style.actions[c'\\'] = c'\\'
        style.a, style.b = c'"', c'\\'
    elif name == CSV:
        style.actions[c'"'] = style.actions[c','] = NEEDS_QUOTES
        style.actions[c'\n'] = style.actions[c'\r'] = NEEDS_QUOTES
        style.a, style.b = c'"', c','
    elif name == QUOTED:
        style.actions[c'"'] = TWICE
        style.a = c'"'
    elif name == TSV:
        style.actions[c'\t'] = c't'
        style.actions[c'\n'] = c'n'
        style.actions[c'\r'] = c'r'
        style.actions[c'\\'] = c'\\'
        style.a = c'\\'
