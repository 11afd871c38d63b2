"""Scanning of JSON text: strings 16 bytes at a time, and parts that are skipped.

``Cursor`` is one document under way. Its text is followed by readable bytes: at least
``SCAN_SLACK`` more belong to the same buffer. Its last byte is a closing bracket, or the byte after
it is zero; so a number or a word never goes on past the end, and what stands behind a string, an
object or an array is compared with the end first.

Functions return where to go on, or NULL after ``fail``. Skipped parts are checked for strings,
escapes, UTF-8, brackets and nesting; the spelling of numbers and words only if ``is_strict``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kfast._native.builders cimport DEPTH, SYNTAX, TRUNCATED, UTF8
from kfast._native.deserialize cimport is_utf8
from kfast._native.number_text cimport Number, is_digit, scan_number
from kfast._native.short_number cimport count_digits
from kfast._native.utf8 cimport is_utf8_within


cdef extern from *:
    """
    #ifndef KFAST_JSON_SCAN_H
    #define KFAST_JSON_SCAN_H
    #include <stdint.h>
    #include <string.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>

    /* Copies 16 bytes, and returns one bit for each that ends a run of plain text: a quote, a
       backslash or a control character. `high` has one for each that is not ASCII. */
    static inline uint32_t kfast_copy16(const char *from, char *to, uint32_t *high) {
        __m128i text = _mm_loadu_si128((const __m128i *)from);
        __m128i quote = _mm_cmpeq_epi8(text, _mm_set1_epi8('"'));
        __m128i slash = _mm_cmpeq_epi8(text, _mm_set1_epi8('\\\\'));
        __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(text, _mm_set1_epi8(31)), text);
        _mm_storeu_si128((__m128i *)to, text);
        *high = (uint32_t)_mm_movemask_epi8(text);
        return (uint32_t)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, slash), control));
    }
    static inline uint32_t kfast_scan16(const char *from, uint32_t *high) {
        __m128i text = _mm_loadu_si128((const __m128i *)from);
        __m128i quote = _mm_cmpeq_epi8(text, _mm_set1_epi8('"'));
        __m128i slash = _mm_cmpeq_epi8(text, _mm_set1_epi8('\\\\'));
        __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(text, _mm_set1_epi8(31)), text);
        *high = (uint32_t)_mm_movemask_epi8(text);
        return (uint32_t)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, slash), control));
    }
    /* Whether text begins with a pattern of up to 32 bytes, of which 32 are readable. The mask has
       a bit for each. */
    static inline int kfast_begins_with(
            const char *text, const char *pattern, int32_t size, uint32_t mask) {
        uint32_t same = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(
            _mm_loadu_si128((const __m128i *)text), _mm_loadu_si128((const __m128i *)pattern)));
        if (size > 16)
            same |= (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(
                _mm_loadu_si128((const __m128i *)(text + 16)),
                _mm_loadu_si128((const __m128i *)(pattern + 16)))) << 16;
        return (~same & mask) == 0;
    }
    #else
    static inline uint32_t kfast_scan16(const char *from, uint32_t *high) {
        uint32_t stops = 0, above = 0;
        int i;
        for (i = 0; i < 16; i++) {
            unsigned char c = (unsigned char)from[i];
            stops |= (uint32_t)(c < 32 || c == '"' || c == '\\\\') << i;
            above |= (uint32_t)(c >> 7) << i;
        }
        *high = above;
        return stops;
    }
    static inline uint32_t kfast_copy16(const char *from, char *to, uint32_t *high) {
        memcpy(to, from, 16);
        return kfast_scan16(from, high);
    }
    static inline int kfast_begins_with(
            const char *text, const char *pattern, int32_t size, uint32_t mask) {
        (void)mask;
        return memcmp(text, pattern, (size_t)size) == 0;
    }
    #endif
    static inline int kfast_lowest(uint32_t bits) { return __builtin_ctz(bits); }
    /* Copies a string of up to 16 plain ASCII characters and returns its size; -1 if it is another
       one. 17 bytes are read, and 16 written. */
    static inline int kfast_short_text(const char *from, char *to) {
        uint32_t high;
        const uint32_t stops = kfast_copy16(from, to, &high) | 1u << 16;
        const int size = __builtin_ctz(stops);
        return from[size] == '"' && (high & (stops ^ (stops - 1)) >> 1) == 0 ? size : -1;
    }
    #endif
    """
    uint32_t copy16 "kfast_copy16"(
        const char* source, char* to, uint32_t* high) noexcept nogil
    uint32_t scan16 "kfast_scan16"(const char* source, uint32_t* high) noexcept nogil
    bint begins_with "kfast_begins_with"(
        const char* text, const char* pattern, int32_t size, uint32_t mask) noexcept nogil
    int lowest_bit "kfast_lowest"(uint32_t bits) noexcept nogil
    int short_text "kfast_short_text"(const char* source, char* to) noexcept nogil
    bint unlikely(bint condition) noexcept nogil


cdef enum:
    SCAN_SLACK = 64     # readable bytes behind a document
    PATTERN_BYTES = 32  # most that `begins_with` compares
    MOST_DEPTH = 1024   # of documents
    DEPTH_WORDS = 16    # 64-bit words with one bit for each level

    # What a run of text has that a copy of its bytes is not enough for.
    HAS_ESCAPES = 1
    HAS_HIGH = 2


cdef struct Cursor:
    const char* begin
    const char* end
    const char* at          # of the error
    int32_t code            # of the error, 0 without one
    int32_t node
    int32_t detail
    int32_t depth           # levels that are open
    int32_t max_depth
    bint allow_nan


cdef inline const char* fail(Cursor* c, const char* at, int32_t code) noexcept nogil:
    c.at = at if at < c.end else c.end
    c.code = code
    return NULL


cdef inline const char* fail_syntax(Cursor* c, const char* at) noexcept nogil:
    """What stands at ``at`` does not belong there, or nothing stands there."""
    return fail(c, at, TRUNCATED if at >= c.end else SYNTAX)


cdef inline bint is_space(char letter) noexcept nogil:
    return letter == c' ' or letter == c'\n' or letter == c'\r' or letter == c'\t'


cdef inline const char* after_space(const Cursor* c, const char* p) noexcept nogil:
    # Most bytes are above all of the four.
    while p[0] <= c' ' and p < c.end and is_space(p[0]):
        p += 1
    return p


# ------------------------------------------------------------------------------------------ strings

cdef inline const char* text_end(Cursor* c, const char* p, int* flags) noexcept nogil:
    """From the first character of a string to its closing quote; what it has goes into flags."""
    cdef uint32_t stops, high
    cdef int count
    flags[0] = 0
    while p < c.end:
        stops = scan16(p, &high)
        if stops == 0:
            if high:
                flags[0] |= HAS_HIGH
            p += 16
            continue
        count = lowest_bit(stops)
        if high & ((<uint32_t> 1 << count) - 1):
            flags[0] |= HAS_HIGH
        p += count
        if p >= c.end:
            break
        if p[0] == c'"':
            return p
        if p[0] != c'\\':
            return fail(c, p, SYNTAX)
        flags[0] |= HAS_ESCAPES
        p += 2
    return fail(c, c.end, TRUNCATED)


cdef inline int hex4(const char* p) noexcept nogil:
    """The number of four hexadecimal digits, or -1."""
    cdef int value = 0, i, digit
    for i in range(4):
        digit = p[i]
        if c'0' <= digit <= c'9':
            digit -= c'0'
        else:
            digit |= 0x20
            if digit < c'a' or digit > c'f':
                return -1
            digit -= c'a' - 10
        value = value << 4 | digit
    return value


cdef inline char plain_escape(char letter) noexcept nogil:
    """The character of a two-character escape, 0 if there is none such."""
    if letter == c'n':
        return c'\n'
    if letter == c'"' or letter == c'\\' or letter == c'/':
        return letter
    if letter == c't':
        return c'\t'
    if letter == c'r':
        return c'\r'
    if letter == c'b':
        return c'\b'
    if letter == c'f':
        return c'\f'
    return 0


cdef inline const char* read_escape(
        Cursor* c, const char* p, char* out, int* written) noexcept nogil:
    """Write the character of the escape at ``p`` in UTF-8, at most 4 bytes; go on behind it."""
    cdef const char* start = p
    cdef int code, low
    cdef char plain
    if p[1] != c'u':
        plain = plain_escape(p[1])
        if plain == 0:
            return fail_syntax(c, p + 1)
        out[0] = plain
        written[0] = 1
        return p + 2
    code = hex4(p + 2)
    p += 6
    if code < 0:
        return fail(c, start, TRUNCATED if p > c.end else SYNTAX)
    if 0xD800 <= code < 0xE000:
        # Half of a pair; alone it is no character.
        low = hex4(p + 2) if p[0] == c'\\' and p[1] == c'u' else -1
        if code >= 0xDC00 or low < 0xDC00 or low > 0xDFFF:
            return fail(c, start, UTF8)
        p += 6
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
    if code < 0x80:
        out[0] = <char> code
        written[0] = 1
    elif code < 0x800:
        out[0] = <char> (0xC0 | code >> 6)
        out[1] = <char> (0x80 | (code & 0x3F))
        written[0] = 2
    elif code < 0x10000:
        out[0] = <char> (0xE0 | code >> 12)
        out[1] = <char> (0x80 | (code >> 6 & 0x3F))
        out[2] = <char> (0x80 | (code & 0x3F))
        written[0] = 3
    else:
        out[0] = <char> (0xF0 | code >> 18)
        out[1] = <char> (0x80 | (code >> 12 & 0x3F))
        out[2] = <char> (0x80 | (code >> 6 & 0x3F))
        out[3] = <char> (0x80 | (code & 0x3F))
        written[0] = 4
    return p


cdef inline const char* bad_utf8(Cursor* c, const char* p, const char* end) noexcept nogil:
    """Fail at the first byte of a text from which on it is no UTF-8."""
    cdef const uint8_t* text = <const uint8_t*> p
    cdef int64_t good = 0, bad = end - p, middle
    cdef int size
    # The longest prefix that is UTF-8: halves first, then characters.
    while bad - good > 32:
        middle = good + (bad - good) // 2
        while middle > good and (text[middle] & 0xC0) == 0x80:
            middle -= 1
        if middle == good:
            break
        if is_utf8(text + good, middle - good):
            good = middle
        else:
            bad = middle
    bad = end - p
    while good < bad:
        for size in range(1, 5):
            if size <= bad - good and is_utf8(text + good, size):
                good += size
                break
        else:
            break
    return fail(c, p + good, UTF8)


cdef inline const char* skip_text(Cursor* c, const char* p) noexcept nogil:
    """From the first character of a string to behind its closing quote, with all checks."""
    cdef int flags, written
    cdef char letters[4]
    cdef const char* end = text_end(c, p, &flags)
    if end is NULL:
        return NULL
    if flags == 0:
        return end + 1
    if flags & HAS_HIGH and not is_utf8_within(<const uint8_t*> p, end - p):
        return bad_utf8(c, p, end)
    if flags & HAS_ESCAPES:
        while p < end:
            if p[0] == c'\\':
                p = read_escape(c, p, letters, &written)
                if p is NULL:
                    return NULL
            else:
                p += 1
    return end + 1


cdef inline int64_t unescaped(
        Cursor* c, const char* p, const char* end, char* out) noexcept nogil:
    """Write a text whose end is known without its escapes; -1 on a bad one. It never grows, and
    up to 16 bytes behind it may be written."""
    cdef char* to = out
    cdef uint32_t stops, high
    cdef int count
    while p < end:
        stops = copy16(p, to, &high)
        count = lowest_bit(stops) if stops else 16
        if count > end - p:
            count = <int> (end - p)
        p += count
        to += count
        if p < end and p[0] == c'\\':
            p = read_escape(c, p, to, &count)
            if p is NULL:
                return -1
            to += count
    return to - out


# ----------------------------------------------------------------------------------- skipped values

cdef inline bint is_plain(char letter) noexcept nogil:
    """Whether a letter may stand in a number or a word."""
    return (c'0' <= letter <= c'9' or c'a' <= (letter | 0x20) <= c'z'
            or letter == c'-' or letter == c'+' or letter == c'.')


cdef inline const char* skip_word(
        Cursor* c, const char* p, const char* word, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        if p[i] != word[i]:
            return fail_syntax(c, p + i if p + i >= c.end else p)
    p += size
    if is_plain(p[0]) and p < c.end:
        return fail(c, p - size, SYNTAX)
    return p


cdef inline const char* skip_scalar(Cursor* c, const char* p, bint is_strict) noexcept nogil:
    """A number, or a word: true, false, null."""
    cdef Number number
    cdef const char* start = p
    if not is_strict:
        p += count_digits(p)
        while is_plain(p[0]):
            p += 1
        return p if p > start and p <= c.end else fail_syntax(c, p)
    if p[0] == c't':
        return skip_word(c, p, "true", 4)
    if p[0] == c'f':
        return skip_word(c, p, "false", 5)
    if p[0] == c'n':
        return skip_word(c, p, "null", 4)
    if c.allow_nan and p[0] == c'N':
        return skip_word(c, p, "NaN", 3)
    if c.allow_nan and p[p[0] == c'-'] == c'I':
        return skip_word(c, p + (p[0] == c'-'), "Infinity", 8)
    return after_number(c, p, scan_number(p, &number))


cdef inline const char* after_number(
        Cursor* c, const char* start, const char* p) noexcept nogil:
    """Check what stands behind a number; ``p`` is NULL if there is none."""
    if p is not NULL and p <= c.end and not is_plain(p[0]):
        return p
    # A number that the end of the document cuts off, or none.
    p = start + (start[0] == c'-')
    if is_digit(p[0]):
        p += 1
        while (p - 1)[0] != c'0' and is_digit(p[0]):
            p += 1
        if p[0] == c'.':
            p += 1
            while is_digit(p[0]):
                p += 1
        if (p[0] | 0x20) == c'e' and (p - 1)[0] != c'.':
            p += 1
            p += p[0] == c'+' or p[0] == c'-'
    return fail(c, p if p >= c.end else start, TRUNCATED if p >= c.end else SYNTAX)


cdef inline const char* skip_value(Cursor* c, const char* p, bint is_strict) noexcept nogil:
    """A whole value at ``p``; no recursion, one bit of memory per level."""
    cdef uint64_t levels[DEPTH_WORDS]   # 1: an object
    cdef int32_t depth = 0
    cdef bint is_object
    while True:
        # A value begins here.
        if p >= c.end:
            return fail(c, p, TRUNCATED)
        if p[0] == c'"':
            p = skip_text(c, p + 1)
            if p is NULL:
                return NULL
        elif p[0] == c'{' or p[0] == c'[':
            is_object = p[0] == c'{'
            if c.depth + depth >= c.max_depth:
                return fail(c, p, DEPTH)
            if depth & 63 == 0:
                levels[depth >> 6] = 0
            if is_object:
                levels[depth >> 6] |= <uint64_t> 1 << (depth & 63)
            else:
                levels[depth >> 6] &= ~(<uint64_t> 1 << (depth & 63))
            depth += 1
            p = after_space(c, p + 1)
            if p < c.end and p[0] == (c'}' if is_object else c']'):
                p += 1
                depth -= 1
            elif is_object:
                p = skip_key(c, p)
                if p is NULL:
                    return NULL
                continue
            else:
                continue
        else:
            p = skip_scalar(c, p, is_strict)
            if p is NULL:
                return NULL
        # A value ends here, and so may those around it.
        while True:
            if depth == 0:
                return p
            p = after_space(c, p)
            if p >= c.end:
                return fail(c, p, TRUNCATED)
            is_object = levels[(depth - 1) >> 6] >> ((depth - 1) & 63) & 1
            if p[0] == c',':
                p = after_space(c, p + 1)
                if is_object:
                    p = skip_key(c, p)
                    if p is NULL:
                        return NULL
                break
            if p[0] != (c'}' if is_object else c']'):
                return fail(c, p, SYNTAX)
            p += 1
            depth -= 1


cdef inline const char* skip_key(Cursor* c, const char* p) noexcept nogil:
    """A key with its colon, up to the value."""
    if p >= c.end or p[0] != c'"':
        return fail_syntax(c, p)
    p = skip_text(c, p + 1)
    if p is NULL:
        return NULL
    p = after_space(c, p)
    if p >= c.end or p[0] != c':':
        return fail_syntax(c, p)
    return after_space(c, p + 1)
