"""UTF-8 in text that lies in a larger buffer, 16 bytes at a time, in C because of the vectors.

`is_utf8` of ``deserialize`` is the rule, and decides what the blocks here do not: characters of
four bytes, and text that is none.
"""

from libc.stdint cimport uint8_t

from kfast._native.deserialize cimport is_utf8


cdef extern from *:
    """
    #ifndef KFAST_UTF8_H
    #define KFAST_UTF8_H
    #include <stdint.h>
    #include <string.h>

    /* Bytes that are read and written behind the end of a text. */
    #define KFAST_UTF8_SLACK 16

    #if defined(__SSE2__) && (defined(__GNUC__) || defined(__clang__))
    #include <emmintrin.h>

    /* One bit for each byte of a block that is not ASCII. */
    static inline uint32_t kfast_utf8_high(const uint8_t *text, int64_t size) {
        uint32_t high = (uint32_t)_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)text));
        return size >= 16 ? high : high & (((uint32_t)1 << size) - 1);
    }
    static inline int kfast_copy_text(const uint8_t *text, char *to, int64_t size) {
        uint32_t high = 0;
        for (; size > 16; size -= 16) {
            high |= (uint32_t)_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)text));
            _mm_storeu_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)text));
            text += 16;
            to += 16;
        }
        if (size > 0) {
            high |= kfast_utf8_high(text, size);
            _mm_storeu_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)text));
        }
        return high != 0;
    }
    /* 1 if the text is UTF-8 of characters of up to three bytes; 0 says nothing. */
    static inline int kfast_utf8_blocks(const uint8_t *text, int64_t size) {
        uint32_t due = 0;  /* one bit for each byte that has to continue a character */
        while (size > 0) {
            const __m128i block = _mm_loadu_si128((const __m128i *)text);
            const uint32_t within = size >= 16 ? 0xFFFF : ((uint32_t)1 << size) - 1;
            const uint32_t high = (uint32_t)_mm_movemask_epi8(block) & within;
            due >>= 16;
            if (high | due) {
                /* As signed numbers: 0x80 is the lowest, 0xC0 is -64, 0xE0 is -32, 0xF0 -16. */
                const uint32_t tails = within & (uint32_t)_mm_movemask_epi8(
                    _mm_cmplt_epi8(block, _mm_set1_epi8(-64)));
                const uint32_t leads = within & (uint32_t)_mm_movemask_epi8(_mm_and_si128(
                    _mm_cmpgt_epi8(block, _mm_set1_epi8(-63)),
                    _mm_cmplt_epi8(block, _mm_set1_epi8(-16))));
                const uint32_t three = leads & (uint32_t)_mm_movemask_epi8(
                    _mm_cmpgt_epi8(block, _mm_set1_epi8(-33)));
                const uint32_t e0 = three & (uint32_t)_mm_movemask_epi8(
                    _mm_cmpeq_epi8(block, _mm_set1_epi8(-32)));
                const uint32_t ed = three & (uint32_t)_mm_movemask_epi8(
                    _mm_cmpeq_epi8(block, _mm_set1_epi8(-19)));
                /* Behind E0 0xA0 is the least, behind ED 0x9F the most. */
                const uint32_t upper = (uint32_t)_mm_movemask_epi8(_mm_slli_epi16(block, 2));
                due |= leads << 1 | three << 2;
                if ((tails | leads) != high || (due & 0xFFFF) != tails
                        || (e0 << 1 & ~upper) || (ed << 1 & (upper | 0x10000)))
                    return 0;
            }
            text += 16;
            size -= 16;
        }
        return due >> 16 == 0;
    }
    #else
    static inline int kfast_copy_text(const uint8_t *text, char *to, int64_t size) {
        uint64_t high = 0, word = 0;
        for (; size >= 8; size -= 8, text += 8, to += 8) {
            memcpy(&word, text, 8);
            memcpy(to, &word, 8);
            high |= word;
        }
        word = 0;
        memcpy(&word, text, (size_t)size);
        memcpy(to, &word, 8);
        return ((high | word) & 0x8080808080808080u) != 0;
    }
    static inline int kfast_utf8_blocks(const uint8_t *text, int64_t size) {
        (void)text;
        return size == 0;
    }
    #endif
    #endif
    """
    enum:
        UTF8_SLACK "KFAST_UTF8_SLACK"
    # Copies a text; whether it is more than ASCII.
    bint copy_text_blocks "kfast_copy_text"(
        const uint8_t* text, char* to, Py_ssize_t size) noexcept nogil
    bint utf8_blocks "kfast_utf8_blocks"(const uint8_t* text, Py_ssize_t size) noexcept nogil


cdef inline bint is_utf8_within(const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """Whether a text is UTF-8. `UTF8_SLACK` bytes behind it are readable."""
    return utf8_blocks(text, size) or is_utf8(text, size)
