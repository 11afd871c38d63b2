"""Runs of plain text and characters of UTF-8, in C because Cython cannot express vectors.

``copy_plain`` copies bytes up to the first that is below 0x20, above 0x7F or one of three others,
16 at a time: as signed numbers the first two are one comparison. What it stops at is looked at by
the caller, byte by byte. ``copy_escaped`` goes on at two of the three others, with a backslash
before them: in JSON within JSON every eighth byte is a quotation mark.
"""

from libc.stdint cimport uint8_t, uint32_t


cdef extern from *:
    """
    #ifndef KFAST_TEXT_SCAN_H
    #define KFAST_TEXT_SCAN_H
    #include <stdint.h>
    #include <string.h>

    #if defined(__SSE2__) && (defined(__GNUC__) || defined(__clang__))
    #include <emmintrin.h>
    #define KFAST_TEXT_VECTORS 1
    #endif

    /* Bytes behind the end of its output that a copy may write. */
    #define KFAST_TEXT_SLACK 16

    /* How many of `size` bytes were copied. `readable` bytes (>= size) may be read from `from`. */
    static inline Py_ssize_t kfast_copy_plain(
            uint8_t *to, const uint8_t *from, Py_ssize_t size, Py_ssize_t readable,
            uint8_t a, uint8_t b, uint8_t c) {
        Py_ssize_t done = 0;
    #ifdef KFAST_TEXT_VECTORS
        const __m128i low = _mm_set1_epi8(0x20);
        const __m128i va = _mm_set1_epi8((char)a), vb = _mm_set1_epi8((char)b);
        const __m128i vc = _mm_set1_epi8((char)c);
        while (done < size && readable - done >= 16) {
            const __m128i block = _mm_loadu_si128((const __m128i *)(from + done));
            const __m128i found = _mm_or_si128(
                _mm_or_si128(_mm_cmplt_epi8(block, low), _mm_cmpeq_epi8(block, va)),
                _mm_or_si128(_mm_cmpeq_epi8(block, vb), _mm_cmpeq_epi8(block, vc)));
            unsigned stops = (unsigned)_mm_movemask_epi8(found);
            _mm_storeu_si128((__m128i *)(to + done), block);
            if (size - done < 16)
                stops |= 1u << (size - done);
            if (stops)
                return done + __builtin_ctz(stops);
            done += 16;
        }
    #else
        const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
        while (size - done >= 8) {
            uint64_t word, wa, wb, wc;
            memcpy(&word, from + done, 8);
            wa = word ^ (ones * a);
            wb = word ^ (ones * b);
            wc = word ^ (ones * c);
            if ((word | ((word - ones * 0x20) & ~word) | ((wa - ones) & ~wa) | ((wb - ones) & ~wb)
                    | ((wc - ones) & ~wc)) & tops)
                break;
            memcpy(to + done, &word, 8);
            done += 8;
        }
    #endif
        for (; done < size; done++) {
            const uint8_t byte = from[done];
            if (byte < 0x20 || byte > 0x7F || byte == a || byte == b || byte == c)
                break;
            to[done] = byte;
        }
        return done;
    }

    /* As kfast_copy_plain, but with a backslash before `a` and `b`; moves `to` behind the output.
       It may end before there is anything to stop at: near the end of what is readable, and
       without vectors. */
    static inline Py_ssize_t kfast_copy_escaped(
            uint8_t **to, const uint8_t *from, Py_ssize_t size, Py_ssize_t readable,
            uint8_t a, uint8_t b, uint8_t c) {
        Py_ssize_t done = 0;
    #ifdef KFAST_TEXT_VECTORS
        const __m128i low = _mm_set1_epi8(0x20);
        const __m128i va = _mm_set1_epi8((char)a), vb = _mm_set1_epi8((char)b);
        const __m128i vc = _mm_set1_epi8((char)c);
        uint8_t *p = *to;
        unsigned stops = 0;
        /* 16 bytes are read from each of the first 16. */
        while (!stops && done < size && readable - done >= 32) {
            const __m128i block = _mm_loadu_si128((const __m128i *)(from + done));
            unsigned escaped = (unsigned)_mm_movemask_epi8(
                _mm_or_si128(_mm_cmpeq_epi8(block, va), _mm_cmpeq_epi8(block, vb)));
            int length = 16;
            stops = (unsigned)_mm_movemask_epi8(
                _mm_or_si128(_mm_cmplt_epi8(block, low), _mm_cmpeq_epi8(block, vc)));
            if (size - done < 16)
                stops |= 1u << (size - done);
            if (stops) {
                length = __builtin_ctz(stops);
                escaped &= (1u << length) - 1;
            }
            _mm_storeu_si128((__m128i *)p, block);
            /* What follows is written once more, a place further. */
            for (; escaped; escaped &= escaped - 1) {
                const int at = __builtin_ctz(escaped);
                p[at] = '\\\\';
                p++;
                _mm_storeu_si128(
                    (__m128i *)(p + at), _mm_loadu_si128((const __m128i *)(from + done + at)));
            }
            p += length;
            done += length;
        }
        *to = p;
    #else
        (void)to, (void)from, (void)size, (void)readable, (void)a, (void)b, (void)c;
    #endif
        return done;
    }

    /* Bytes of the character at `from`, or, negative, of what is no character there: one, or those
       that could have begun one (the "maximal subpart" that Python replaces as one). `size` > 0. */
    static inline int kfast_utf8_character(
            const uint8_t *from, Py_ssize_t size, uint32_t *character) {
        const uint8_t lead = from[0];
        int length, at;
        uint8_t least = 0x80, most = 0xBF;
        uint32_t code;
        if (lead < 0x80) {
            *character = lead;
            return 1;
        }
        if (lead < 0xC2 || lead > 0xF4)
            return -1;
        if (lead < 0xE0) {
            length = 2;
            code = lead & 0x1F;
        } else if (lead < 0xF0) {
            length = 3;
            code = lead & 0x0F;
            if (lead == 0xE0) least = 0xA0;
            if (lead == 0xED) most = 0x9F;
        } else {
            length = 4;
            code = lead & 0x07;
            if (lead == 0xF0) least = 0x90;
            if (lead == 0xF4) most = 0x8F;
        }
        for (at = 1; at < length; at++) {
            if (at >= size || from[at] < least || from[at] > most)
                return -at;
            code = code << 6 | (from[at] & 0x3F);
            least = 0x80;
            most = 0xBF;
        }
        *character = code;
        return length;
    }
    #endif
    """
    enum:
        TEXT_SLACK "KFAST_TEXT_SLACK"
    Py_ssize_t copy_plain "kfast_copy_plain"(
        uint8_t* to, const uint8_t* text, Py_ssize_t size, Py_ssize_t readable,
        uint8_t a, uint8_t b, uint8_t c) noexcept nogil
    Py_ssize_t copy_escaped "kfast_copy_escaped"(
        uint8_t** to, const uint8_t* text, Py_ssize_t size, Py_ssize_t readable,
        uint8_t a, uint8_t b, uint8_t c) noexcept nogil
    int utf8_character "kfast_utf8_character"(
        const uint8_t* text, Py_ssize_t size, uint32_t* character) noexcept nogil
