"""Numbers as text: exact integers, correctly rounded floats, exact decimals.

Own code, so that no locale decides what a decimal point is. The text ends where no digit follows:
the caller makes sure that something else stands within 16 bytes after its end, which may be read.

A float has at most 19 digits ``w`` and a power of ten ``q``:

* ``w`` below 2^53 and ``q`` up to 22: both are exact doubles, and IEEE 754 rounds one operation
  correctly (Clinger).
* Otherwise ``w`` times a 128-bit approximation of ``5^q`` (Eisel and Lemire, "Number Parsing at a
  Gigabyte per Second", 2021; Mushtak and Lemire, 2023, prove that 128 bits always suffice).
* With more digits the 19 first ones and the same plus one are rounded; if they differ, all digits
  are compared with the number in the middle between the two, in integers of any length.

A float32 is rounded once, with the constants of its own format.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from *:
    """
    #ifndef KFAST_NUMBER_TEXT_H
    #define KFAST_NUMBER_TEXT_H
    #include <stdint.h>
    #include <string.h>

    static const uint64_t kfast_pow10[20] = {
        1ull, 10ull, 100ull, 1000ull, 10000ull, 100000ull, 1000000ull, 10000000ull, 100000000ull,
        1000000000ull, 10000000000ull, 100000000000ull, 1000000000000ull, 10000000000000ull,
        100000000000000ull, 1000000000000000ull, 10000000000000000ull, 100000000000000000ull,
        1000000000000000000ull, 10000000000000000000ull};
    static const double kfast_exact10[23] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    static const float kfast_exact10f[11] = {
        1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f, 1e8f, 1e9f, 1e10f};

    /* The value of 8 digits, as numbers from 0 to 9 in the bytes of a little-endian word: two, then
       four, then eight are joined in one multiplication each. */
    static inline uint64_t kfast_join_digits(uint64_t word) {
        word = word * 10 + (word >> 8);
        return ((word & 0x000000FF000000FFull) * 0x000F424000000064ull
                + ((word >> 16) & 0x000000FF000000FFull) * 0x0000271000000001ull) >> 32;
    }
    /* The number of digits at the start of 8 bytes, and their value. */
    static inline int kfast_digits8(const char *text, uint64_t *value) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        uint64_t word, other;
        int count;
        memcpy(&word, text, 8);
        word ^= 0x3030303030303030ull;
        other = ((word + 0x7676767676767676ull) | word) & 0x8080808080808080ull;
        count = other ? __builtin_ctzll(other) >> 3 : 8;
        if (count == 0) {
            *value = 0;
            return 0;
        }
        *value = kfast_join_digits(word << (64 - 8 * count));
        return count;
    #else
        int count = 0;
        uint64_t sum = 0;
        while (count < 8 && (unsigned char)(text[count] - '0') < 10)
            sum = sum * 10 + (uint64_t)(text[count++] - '0');
        *value = sum;
        return count;
    #endif
    }
    static inline void kfast_mul64(uint64_t a, uint64_t b, uint64_t *high, uint64_t *low) {
        unsigned __int128 product = (unsigned __int128)a * b;
        *high = (uint64_t)(product >> 64);
        *low = (uint64_t)product;
    }
    static inline int kfast_clz64(uint64_t word) { return __builtin_clzll(word); }
    #endif
    """
    const uint64_t POW10 "kfast_pow10"[20]
    const double EXACT10 "kfast_exact10"[23]
    const float EXACT10F "kfast_exact10f"[11]
    int digits8 "kfast_digits8"(const char* text, uint64_t* value) noexcept nogil
    void mul64 "kfast_mul64"(
        uint64_t a, uint64_t b, uint64_t* high, uint64_t* low) noexcept nogil
    int clz64 "kfast_clz64"(uint64_t word) noexcept nogil


cdef enum:
    SMALLEST_POWER = -342
    LARGEST_POWER = 308
    POWERS = 651
    LIMBS = 160             # of 32 bits: 770 digits, times a power of 5 below 1112 digits
    MOST_DIGITS = 770       # more never decide, but for one bit: whether any is not 0
    EXPONENT_LIMIT = 1000000000

# One number of JSON's grammar.
cdef struct Number:
    uint64_t digits         # the first 19 significant digits
    int64_t exponent        # of ten, for them
    const char* first       # the first digit
    const char* last        # behind the last digit of the fraction
    bint is_negative
    bint is_integer         # neither a fraction nor an exponent
    bint is_cut             # there are more than 19 digits


# The constants of one binary format.
cdef struct FloatFormat:
    int32_t mantissa_bits
    int32_t minimum_exponent
    int32_t infinite_power
    int32_t smallest_power
    int32_t largest_power
    int32_t even_from
    int32_t even_to


cdef inline FloatFormat double_format() noexcept nogil:
    return FloatFormat(52, -1023, 0x7FF, -342, 308, -4, 23)


cdef inline FloatFormat single_format() noexcept nogil:
    return FloatFormat(23, -127, 0xFF, -65, 38, -17, 10)


cdef inline bint is_digit(char letter) noexcept nogil:
    return <uint8_t> (letter - c'0') < 10


# ----------------------------------------------------------------------------------------- scanning

cdef inline const char* scan_number(const char* p, Number* number) noexcept nogil:
    """Read a number of RFC 8259; NULL if there is none. ``p`` is at the sign or first digit."""
    cdef uint64_t digits = 0, chunk = 0
    cdef int count
    cdef int64_t total
    cdef const char* start
    number.is_negative = p[0] == c'-'
    p += number.is_negative
    start = p
    count = digits8(p, &digits)
    if count == 0 or (p[0] == c'0' and count > 1):
        return NULL
    p += count
    if count == 8:
        count = digits8(p, &chunk)
        digits = digits * POW10[count] + chunk
        p += count
        while count == 8:
            count = digits8(p, &chunk)
            digits = digits * POW10[count] + chunk  # wrong past 19 digits, and counted again then
            p += count
    total = p - start
    number.first = start
    number.exponent = 0
    number.is_integer = True
    number.is_cut = False
    if p[0] == c'.':
        number.is_integer = False
        p += 1
        start = p
        count = digits8(p, &chunk)
        if count == 0:
            return NULL
        digits = digits * POW10[count] + chunk
        p += count
        while count == 8:
            count = digits8(p, &chunk)
            digits = digits * POW10[count] + chunk
            p += count
        number.exponent = start - p
        total += p - start
    number.last = p
    number.digits = digits
    if total > 19:
        cut_digits(number)
    if p[0] == c'e' or p[0] == c'E':
        number.is_integer = False
        p = scan_exponent(p + 1, number)
    return p


cdef inline const char* scan_exponent(const char* p, Number* number) noexcept nogil:
    cdef bint is_negative = p[0] == c'-'
    cdef int64_t exponent = 0
    if is_negative or p[0] == c'+':
        p += 1
    if not is_digit(p[0]):
        return NULL
    while is_digit(p[0]):
        if exponent < EXPONENT_LIMIT:
            exponent = exponent * 10 + (p[0] - c'0')
        p += 1
    number.exponent += -exponent if is_negative else exponent
    return p


cdef inline void cut_digits(Number* number) noexcept nogil:
    """Count the first 19 significant digits again; zeros before them do not count."""
    cdef const char* p = number.first
    cdef uint64_t digits = 0
    cdef int count = 0
    cdef int64_t exponent = 0
    cdef bint is_fraction = False
    number.is_cut = False
    while p < number.last:
        if p[0] == c'.':
            is_fraction = True
        elif count < 19:
            digits = digits * 10 + <uint64_t> (p[0] - c'0')
            count += digits != 0
            exponent -= is_fraction
        else:
            number.is_cut = number.is_cut or p[0] != c'0'
            exponent += not is_fraction
        p += 1
    number.digits = digits
    number.exponent = exponent


cdef inline const char* scan_integer(
        const char* p, uint64_t* magnitude, bint* overflows) noexcept nogil:
    """Read digits, without a zero before others; NULL if there are none."""
    cdef uint64_t digits = 0, chunk = 0
    cdef int count = digits8(p, &digits)
    overflows[0] = False
    if count == 0 or (p[0] == c'0' and count > 1):
        return NULL
    p += count
    if count == 8:
        count = digits8(p, &chunk)
        p += count
        digits = digits * POW10[count] + chunk
        if count == 8:
            count = digits8(p, &chunk)
            p += count
            if count <= 3:
                digits = digits * POW10[count] + chunk
            elif count == 4 and digits <= (<uint64_t> -1 - chunk) / 10000:
                digits = digits * 10000 + chunk
            else:
                overflows[0] = True
                while is_digit(p[0]):
                    p += 1
    magnitude[0] = digits
    return p


# ------------------------------------------------------------------------------------------- floats

cdef inline uint64_t rounded_bits(
        uint64_t w, int64_t q, const FloatFormat* f, const uint64_t* powers) noexcept nogil:
    """Bits of the float nearest to ``w * 10**q``, without a sign. ``powers`` has 128 bits of each
    power of five, high half first."""
    cdef uint64_t high, low, more, mantissa
    cdef int lead, upper, shift
    cdef int64_t power
    cdef const uint64_t* factor
    if w == 0 or q < f.smallest_power:
        return 0
    if q > f.largest_power:
        return <uint64_t> f.infinite_power << f.mantissa_bits
    lead = clz64(w)
    w <<= lead
    factor = powers + 2 * (q - SMALLEST_POWER)
    mul64(w, factor[0], &high, &low)
    if (high & (<uint64_t> -1 >> (f.mantissa_bits + 3))) == <uint64_t> -1 >> (f.mantissa_bits + 3):
        mul64(w, factor[1], &more, &mantissa)
        low += more
        high += low < more
    upper = <int> (high >> 63)
    shift = upper + 64 - f.mantissa_bits - 3
    mantissa = high >> shift
    # floor(log2(10**q)), exact in this range.
    power = ((217706 * q) >> 16) + 63 + upper - lead - f.minimum_exponent
    if power <= 0:
        if 1 - power >= 64:
            return 0
        mantissa >>= 1 - power
        mantissa += mantissa & 1
        return mantissa >> 1
    # Exactly in the middle: to even.
    if low <= 1 and f.even_from <= q <= f.even_to and (mantissa & 3) == 1:
        if mantissa << shift == high:
            mantissa &= ~(<uint64_t> 1)
    mantissa += mantissa & 1
    mantissa >>= 1
    if mantissa >= <uint64_t> 2 << f.mantissa_bits:
        mantissa = <uint64_t> 1 << f.mantissa_bits
        power += 1
    if power >= f.infinite_power:
        return <uint64_t> f.infinite_power << f.mantissa_bits
    mantissa &= ~(<uint64_t> 1 << f.mantissa_bits)
    return mantissa | <uint64_t> power << f.mantissa_bits


cdef inline uint64_t float_bits(
        const Number* number, const FloatFormat* f, const uint64_t* powers) noexcept nogil:
    """Bits of the nearest float, without the sign; those of infinity past the largest."""
    cdef uint64_t bits = rounded_bits(number.digits, number.exponent, f, powers)
    if number.is_cut and rounded_bits(
            number.digits + 1, number.exponent, f, powers) != bits:
        return bits + is_past_middle(number, bits, f)
    return bits


cdef inline double to_double(const Number* number, const uint64_t* powers) noexcept nogil:
    cdef double value
    cdef uint64_t bits
    cdef FloatFormat f
    if -22 <= number.exponent <= 22 and number.digits < <uint64_t> 1 << 53 and not number.is_cut:
        value = <double> number.digits
        if number.exponent < 0:
            value /= EXACT10[-number.exponent]
        else:
            value *= EXACT10[number.exponent]
        return -value if number.is_negative else value
    f = double_format()
    bits = float_bits(number, &f, powers) | <uint64_t> number.is_negative << 63
    return (<double*> &bits)[0]


cdef inline float to_single(const Number* number, const uint64_t* powers) noexcept nogil:
    cdef float value
    cdef uint32_t bits
    cdef FloatFormat f
    if -10 <= number.exponent <= 10 and number.digits < <uint64_t> 1 << 24 and not number.is_cut:
        value = <float> number.digits
        if number.exponent < 0:
            value /= EXACT10F[-number.exponent]
        else:
            value *= EXACT10F[number.exponent]
        return -value if number.is_negative else value
    f = single_format()
    bits = <uint32_t> float_bits(number, &f, powers) | <uint32_t> number.is_negative << 31
    return (<float*> &bits)[0]


# --------------------------------------------------------------------------- integers of any length

cdef struct Large:
    int32_t count
    uint32_t limbs[LIMBS]   # least significant first


cdef inline void multiply_add(Large* x, uint32_t factor, uint32_t more) noexcept nogil:
    cdef uint64_t carry = more
    cdef int32_t i
    for i in range(x.count):
        carry += <uint64_t> x.limbs[i] * factor
        x.limbs[i] = <uint32_t> carry
        carry >>= 32
    if carry and x.count < LIMBS:
        x.limbs[x.count] = <uint32_t> carry
        x.count += 1


cdef inline void multiply_power5(Large* x, int64_t power) noexcept nogil:
    while power >= 13:
        multiply_add(x, 1220703125, 0)
        power -= 13
    while power > 0:
        multiply_add(x, 5, 0)
        power -= 1


cdef inline void shift_left(Large* x, int64_t bits) noexcept nogil:
    cdef int32_t words = <int32_t> (bits >> 5)
    cdef int32_t i
    if bits & 31:
        multiply_add(x, <uint32_t> 1 << (bits & 31), 0)
    if words == 0 or x.count + words > LIMBS:
        return
    for i in range(x.count - 1, -1, -1):
        x.limbs[i + words] = x.limbs[i]
    for i in range(words):
        x.limbs[i] = 0
    x.count += words


cdef inline int compare_large(const Large* a, const Large* b) noexcept nogil:
    cdef int32_t i
    if a.count != b.count:
        return 1 if a.count > b.count else -1
    for i in range(a.count - 1, -1, -1):
        if a.limbs[i] != b.limbs[i]:
            return 1 if a.limbs[i] > b.limbs[i] else -1
    return 0


cdef inline bint is_past_middle(
        const Number* number, uint64_t bits, const FloatFormat* f) noexcept nogil:
    """Whether all digits are nearer to the float after ``bits`` than to that."""
    cdef Large digits, middle
    cdef const char* p = number.first
    cdef int64_t taken = 0, exponent, binary
    cdef uint64_t mantissa = bits & ((<uint64_t> 1 << f.mantissa_bits) - 1)
    cdef int order
    cdef bint has_more = False
    # The exponent of the digits taken here, from that of the first 19 of them.
    exponent = number.exponent + 19
    digits.count = 0
    while p < number.last and (p[0] == c'0' or p[0] == c'.'):
        p += 1
    while p < number.last:
        if p[0] != c'.':
            if taken < MOST_DIGITS:
                multiply_add(&digits, 10, <uint32_t> (p[0] - c'0'))
                taken += 1
            elif p[0] != c'0':
                has_more = True
        p += 1
    exponent -= taken
    binary = <int64_t> (bits >> f.mantissa_bits)
    if binary:
        mantissa |= <uint64_t> 1 << f.mantissa_bits
    else:
        binary = 1
    binary += f.minimum_exponent - f.mantissa_bits - 1
    mantissa = 2 * mantissa + 1
    middle.count = 0
    multiply_add(&middle, 1, <uint32_t> (mantissa >> 32))
    if middle.count:
        shift_left(&middle, 32)
        middle.limbs[0] = <uint32_t> mantissa
    else:
        multiply_add(&middle, 1, <uint32_t> mantissa)
    if exponent >= 0:
        multiply_power5(&digits, exponent)
    else:
        multiply_power5(&middle, -exponent)
    if exponent > binary:
        shift_left(&digits, exponent - binary)
    else:
        shift_left(&middle, binary - exponent)
    order = compare_large(&digits, &middle)
    if order == 0:
        return has_more or bits & 1
    return order > 0


# ----------------------------------------------------------------------------------------- decimals

cdef inline bint unscaled_value(
        const Number* number, int32_t precision, int32_t scale, uint64_t* words) noexcept nogil:
    """Write ``number * 10**scale`` as 256 bits in two's complement, least significant word first;
    False if that is no integer of at most ``precision`` digits."""
    cdef const char* p = number.first
    cdef int64_t fraction = 0, left, exponent, _zero
    cdef int32_t taken = 0
    cdef uint64_t carry, high, low
    cdef int i
    cdef bint is_zero = True
    cdef bint is_fraction = False
    while p < number.last:  # digits behind the point, and whether all are zeros
        if p[0] == c'.':
            is_fraction = True
        else:
            fraction += is_fraction
            is_zero = is_zero and p[0] == c'0'
        p += 1
    words[0] = words[1] = words[2] = words[3] = 0
    if is_zero:
        return True
    # `exponent` counts for the first 19 digits, or for all if there are not more of them.
    exponent = number.exponent
    if number.last - number.first - is_fraction > 19:
        exponent = last_exponent(number, fraction)
    # So many digits at the end have to be zeros, or so many zeros follow.
    left = exponent + scale
    p = number.last
    while left < 0:
        p -= 1
        if p < number.first:
            return False
        if p[0] == c'.':
            continue
        if p[0] != c'0':
            return False
        left += 1
    number_digits(number.first, p, words, &taken)
    if taken < 0 or taken + left > precision:
        return False
    for _zero in range(left):
        carry = 0
        for i in range(4):
            mul64(words[i], 10, &high, &low)
            low += carry
            high += low < carry
            words[i] = low
            carry = high
    if number.is_negative:
        carry = 1
        for i in range(4):
            words[i] = ~words[i] + carry
            carry = carry and words[i] == 0
    return True


cdef inline int64_t last_exponent(const Number* number, int64_t fraction) noexcept nogil:
    """The exponent of ten that counts for the last digit that stands there."""
    cdef const char* p = number.last
    cdef int64_t exponent = 0
    cdef bint is_negative
    if p[0] == c'e' or p[0] == c'E':
        p += 1
        is_negative = p[0] == c'-'
        if is_negative or p[0] == c'+':
            p += 1
        while is_digit(p[0]):
            if exponent < EXPONENT_LIMIT:
                exponent = exponent * 10 + (p[0] - c'0')
            p += 1
        if is_negative:
            exponent = -exponent
    return exponent - fraction


cdef inline void number_digits(
        const char* p, const char* end, uint64_t* words, int32_t* taken) noexcept nogil:
    """Add up digits; ``taken`` is how many, -1 for more than 76."""
    cdef uint64_t carry, high, low
    cdef int i
    taken[0] = 0
    while p < end:
        if p[0] != c'.' and (taken[0] or p[0] != c'0'):
            if taken[0] == 76:
                taken[0] = -1
                return
            taken[0] += 1
            carry = <uint64_t> (p[0] - c'0')
            for i in range(4):
                mul64(words[i], 10, &high, &low)
                low += carry
                high += low < carry
                words[i] = low
                carry = high
        p += 1
