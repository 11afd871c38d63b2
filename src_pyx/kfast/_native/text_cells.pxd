"""Numbers, times and bytes as text. Inline and nogil; each writes at ``p`` and returns the new end.

The caller has made room. Times are UTC, in the proleptic Gregorian calendar; a year has at least
four digits, with a sign before the year 0.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef enum:
    MS_PER_DAY = 86_400_000
    NUMBER_ROOM = 24     # of a number, quoted or not
    TIME_ROOM = 48       # of a whole time, quoted or not


cdef extern from *:
    """
    static const char kfast_hex[] = "0123456789abcdef";
    static const char kfast_base64[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char kfast_pairs[] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243"
        "4445464748495051525354555657585960616263646566676869707172737475767778798081828384858687"
        "888990919293949596979899";
    """
    const char* HEX "kfast_hex"
    const char* BASE64 "kfast_base64"
    const char* PAIRS "kfast_pairs"


cdef inline char* put_bytes(char* p, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size


cdef inline char* put_int(char* p, int64_t number) noexcept nogil:
    if number >= 0:
        return put_unsigned(p, <uint64_t> number)
    p[0] = c'-'
    return put_unsigned(p + 1, 0 - <uint64_t> number)


cdef inline char* put_unsigned(char* p, uint64_t left) noexcept nogil:
    cdef char digits[20]
    cdef int at = 20
    while left >= 100:
        at -= 2
        memcpy(digits + at, PAIRS + 2 * (left % 100), 2)
        left //= 100
    if left >= 10:
        at -= 2
        memcpy(digits + at, PAIRS + 2 * left, 2)
    else:
        at -= 1
        digits[at] = <char> (c'0' + left)
    memcpy(p, digits + at, 20 - at)
    return p + 20 - at


cdef inline char* put_padded(char* p, int64_t number, int width) noexcept nogil:
    """A number that is not negative, with zeros before it."""
    cdef int at = width
    while at:
        at -= 1
        p[at] = <char> (c'0' + number % 10)
        number //= 10
    return p + width


cdef inline char* put_hex(char* p, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(size):
        p[2 * at] = HEX[data[at] >> 4]
        p[2 * at + 1] = HEX[data[at] & 15]
    return p + 2 * size


cdef inline char* put_base64(char* p, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t three
    while size >= 3:
        three = <uint32_t> data[0] << 16 | <uint32_t> data[1] << 8 | data[2]
        p[0] = BASE64[three >> 18]
        p[1] = BASE64[three >> 12 & 63]
        p[2] = BASE64[three >> 6 & 63]
        p[3] = BASE64[three & 63]
        p += 4
        data += 3
        size -= 3
    if size:
        three = <uint32_t> data[0] << 16 | (<uint32_t> data[1] << 8 if size == 2 else 0)
        p[0] = BASE64[three >> 18]
        p[1] = BASE64[three >> 12 & 63]
        p[2] = BASE64[three >> 6 & 63] if size == 2 else c'='
        p[3] = c'='
        p += 4
    return p


cdef inline char* put_uuid(char* p, const uint8_t* data) noexcept nogil:
    cdef int group, at = 0
    cdef int[5] sizes = [4, 2, 2, 2, 6]
    for group in range(5):
        if group:
            p[0] = c'-'
            p += 1
        p = put_hex(p, data + at, sizes[group])
        at += sizes[group]
    return p


# --- times ----------------------------------------------------------------------------------------

cdef struct Moment:
    int64_t year
    int month, day, day_of_year, weekday     # from 1; Monday is 0
    int hour, minute, second, ms


cdef inline int64_t floor_division(int64_t number, int64_t by) noexcept nogil:
    cdef int64_t whole = number // by
    return whole - 1 if number % by < 0 else whole


cdef inline bint is_leap(int64_t year) noexcept nogil:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


cdef inline void moment_of(Moment* moment, int64_t ms) noexcept nogil:
    """Take a time in ms since 1970 apart; years are counted from March within it."""
    cdef int64_t days = floor_division(ms, MS_PER_DAY)
    cdef int64_t rest = ms % MS_PER_DAY + (MS_PER_DAY if ms % MS_PER_DAY < 0 else 0)
    cdef int64_t from_march = days + 719_468
    cdef int64_t era = floor_division(from_march, 146_097)
    cdef int64_t of_era = from_march - era * 146_097
    cdef int64_t year_of_era = (
        of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    cdef int64_t of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef int march = <int> ((5 * of_year + 2) // 153)
    moment.day = <int> (of_year - (153 * march + 2) // 5 + 1)
    moment.month = march + 3 if march < 10 else march - 9
    moment.year = year_of_era + era * 400 + (moment.month <= 2)
    # January and February are days 306 to 365 of a year that begins in March.
    if of_year >= 306:
        moment.day_of_year = <int> of_year - 305
    else:
        moment.day_of_year = <int> of_year + 60 + is_leap(moment.year)
    moment.weekday = <int> (days + 3 - 7 * floor_division(days + 3, 7))
    moment.ms = <int> (rest % 1000)
    rest //= 1000
    moment.second = <int> (rest % 60)
    moment.minute = <int> (rest // 60 % 60)
    moment.hour = <int> (rest // 3600)


cdef inline char* put_year(char* p, int64_t year) noexcept nogil:
    if year < 0:
        p[0] = c'-'
        p += 1
        year = -year
    return put_padded(p, year, 4) if year < 10_000 else put_int(p, year)


cdef inline char* put_day(char* p, const Moment* moment) noexcept nogil:
    p = put_year(p, moment.year)
    p[0] = c'-'
    p = put_padded(p + 1, moment.month, 2)
    p[0] = c'-'
    return put_padded(p + 1, moment.day, 2)


cdef inline char* put_time_of_day(char* p, const Moment* moment) noexcept nogil:
    """Hours to seconds."""
    p = put_padded(p, moment.hour, 2)
    p[0] = c':'
    p = put_padded(p + 1, moment.minute, 2)
    p[0] = c':'
    return put_padded(p + 1, moment.second, 2)


cdef inline char* put_time_pattern(
    char* p, const Moment* moment, int64_t ms, const char* pattern, Py_ssize_t size
) noexcept nogil:
    """A pattern of strftime, whose letters the caller has checked; at most TIME_ROOM per letter."""
    cdef const char* end = pattern + size
    cdef const char* days = "MonTueWedThuFriSatSun"
    cdef const char* months = "JanFebMarAprMayJunJulAugSepOctNovDec"
    cdef char letter
    while pattern < end:
        letter = pattern[0]
        pattern += 1
        if letter != c'%' or pattern == end:
            p[0] = letter
            p += 1
            continue
        letter = pattern[0]
        pattern += 1
        if letter == c'Y':
            p = put_year(p, moment.year)
        elif letter == c'y':
            p = put_padded(p, (moment.year % 100 + 100) % 100, 2)
        elif letter == c'm':
            p = put_padded(p, moment.month, 2)
        elif letter == c'd':
            p = put_padded(p, moment.day, 2)
        elif letter == c'H':
            p = put_padded(p, moment.hour, 2)
        elif letter == c'M':
            p = put_padded(p, moment.minute, 2)
        elif letter == c'S':
            p = put_padded(p, moment.second, 2)
        elif letter == c'f':
            p = put_padded(p, moment.ms * 1000, 6)
        elif letter == c'j':
            p = put_padded(p, moment.day_of_year, 3)
        elif letter == c'F':
            p = put_day(p, moment)
        elif letter == c'T':
            p = put_time_of_day(p, moment)
        elif letter == c's':
            p = put_int(p, floor_division(ms, 1000))
        elif letter == c'a':
            p = put_bytes(p, days + 3 * moment.weekday, 3)
        elif letter == c'b':
            p = put_bytes(p, months + 3 * (moment.month - 1), 3)
        elif letter == c'z':
            p = put_bytes(p, b"+0000", 5)
        elif letter == c'Z':
            p = put_bytes(p, b"UTC", 3)
        else:
            p[0] = letter    # "%%"
            p += 1
    return p
