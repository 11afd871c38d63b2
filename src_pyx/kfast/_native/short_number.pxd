"""Short numbers of JSON, which most are: up to 15 digits in 16 bytes that are looked at together.

Where the digits end is known after one comparison of all bytes, however many there are; so what
stands behind the number need not wait for one group of digits after the other. In C because of the
vectors. Whatever is not short, or no number, is left to ``number_text``.
"""

cimport kfast._native.number_text  # whose C code is used here, and has to come first
from libc.stdint cimport int64_t, uint64_t


cdef extern from *:
    """
    #ifndef KFAST_SHORT_NUMBER_H
    #define KFAST_SHORT_NUMBER_H
    #include <stdint.h>
    #include <string.h>
    /* Always inlined: a function that calls nothing need not save registers for each value. */
    #define KFAST_SHORT static inline __attribute__((always_inline))

    /* A bit for each of 16 bytes that is no digit, as far as it matters: up to the first byte that
       neither is one nor a sign or a point. Further bits are 1. */
    #if defined(__SSE2__) && (defined(__GNUC__) || defined(__clang__))
    #include <emmintrin.h>
    KFAST_SHORT uint32_t kfast_no_digits(const char *text) {
        const __m128i digits = _mm_sub_epi8(
            _mm_loadu_si128((const __m128i *)text), _mm_set1_epi8('0'));
        return ~(uint32_t)_mm_movemask_epi8(
            _mm_cmpeq_epi8(_mm_min_epu8(digits, _mm_set1_epi8(9)), digits));
    }
    #elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    KFAST_SHORT uint32_t kfast_no_digits8(const char *text) {
        uint64_t word;
        memcpy(&word, text, 8);
        word ^= 0x3030303030303030ull;
        word = ((word + 0x7676767676767676ull) | word) >> 7 & 0x0101010101010101ull;
        return (uint32_t)((word * 0x0102040810204080ull) >> 56);
    }
    KFAST_SHORT uint32_t kfast_no_digits(const char *text) {
        return 0xFFFF0000u | kfast_no_digits8(text + 8) << 8 | kfast_no_digits8(text);
    }
    #else  /* no number is short */
    KFAST_SHORT uint32_t kfast_no_digits(const char *text) { (void)text; return ~(uint32_t)0; }
    #endif

    /* The digits of 8 bytes, as numbers from 0 to 9. */
    KFAST_SHORT uint64_t kfast_load_digits(const char *text) {
        uint64_t word;
        memcpy(&word, text, 8);
        return word ^ 0x3030303030303030ull;
    }
    /* The value of 1 to 15 digits. */
    KFAST_SHORT uint64_t kfast_digits_value(const char *text, int count) {
        const uint64_t first = kfast_load_digits(text);
        if (count <= 8)
            return kfast_join_digits(first << (64 - 8 * count));
        return kfast_join_digits(first << (128 - 8 * count)) * 100000000u
             + kfast_join_digits(kfast_load_digits(text + count - 8));
    }
    KFAST_SHORT int kfast_count_digits(const char *text) {
        return __builtin_ctz(kfast_no_digits(text));
    }
    KFAST_SHORT int kfast_short_integer(const char *text, int64_t *value) {
        uint32_t stops = kfast_no_digits(text);
        const uint32_t is_negative = stops & 1;
        const char *digits = text + is_negative;
        int count;
        stops >>= is_negative;
        count = __builtin_ctz(stops);
        if (count == 0 || count > 15 - (int)is_negative || (text[0] == '-') != is_negative
                || (digits[0] == '0' && count > 1)
                || digits[count] == '.' || (digits[count] | 0x20) == 'e')
            return 0;
        *value = ((int64_t)kfast_digits_value(digits, count) ^ -(int64_t)is_negative) + is_negative;
        return count + (int)is_negative;
    }
    KFAST_SHORT int kfast_short_decimal(const char *text, uint64_t *bits) {
        uint32_t stops = kfast_no_digits(text);
        const uint32_t is_negative = stops & 1;
        const char *digits = text + is_negative;
        int count, size, places = 0;
        uint64_t value;
        double exact;
        stops >>= is_negative;
        size = count = __builtin_ctz(stops);
        if (count == 0 || count > 15 - (int)is_negative || (text[0] == '-') != is_negative
                || (digits[0] == '0' && count > 1))
            return 0;
        if (digits[count] == '.') {
            places = __builtin_ctz(stops >> (count + 1));
            size += 1 + places;
            if (places == 0 || size > 15 - (int)is_negative)
                return 0;
            if (size <= 9) {
                /* The point is left out: all digits are joined at once. */
                const uint64_t before = ((uint64_t)1 << 8 * count) - 1;
                value = kfast_load_digits(digits + 1);
                value ^= (value ^ kfast_load_digits(digits)) & before;
                value = kfast_join_digits(value << (72 - 8 * size));
            } else {
                value = kfast_digits_value(digits, count) * kfast_pow10[places]
                      + kfast_digits_value(digits + count + 1, places);
            }
        } else {
            value = kfast_digits_value(digits, count);
        }
        if ((digits[size] | 0x20) == 'e')
            return 0;
        /* Both are exact, and IEEE 754 rounds one operation correctly. */
        exact = (double)(int64_t)value / kfast_exact10[places];
        memcpy(bits, &exact, 8);
        *bits |= (uint64_t)is_negative << 63;
        return size + (int)is_negative;
    }
    #endif
    """
    # Digits at `text`, up to 16 of them.
    int count_digits "kfast_count_digits"(const char* text) noexcept nogil
    # Bytes of the number at `text`, of which 32 are readable; 0 if it is not short.
    int short_integer "kfast_short_integer"(const char* text, int64_t* value) noexcept nogil
    # The same for the bits of the nearest double.
    int short_decimal "kfast_short_decimal"(const char* text, uint64_t* bits) noexcept nogil
