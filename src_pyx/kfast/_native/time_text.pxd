"""Dates and times as RFC 3339 writes them, and epochs in other units.

Results are whole units; what is finer is an error unless it may be cut off. All of a text has to
be used. No locale and no zone database takes part.
"""

from libc.stdint cimport int32_t, int64_t

from kfast._native.number_text cimport POW10, is_digit


cdef extern from *:
    """
    #ifndef KFAST_TIME_TEXT_H
    #define KFAST_TIME_TEXT_H
    #include <stdint.h>
    /* Whether a * b + more is no 64-bit number; the smallest one is NumPy's "not a time". */
    static inline int kfast_sum_overflows(int64_t a, int64_t b, int64_t more, int64_t *sum) {
        __int128 exact = (__int128)a * b + more;
        *sum = (int64_t)exact;
        return exact > INT64_MAX || exact <= INT64_MIN;
    }
    #endif
    """
    bint sum_overflows "kfast_sum_overflows"(
        int64_t a, int64_t b, int64_t more, int64_t* sum) noexcept nogil


cdef enum TimeFault:
    TIME_OK = 0
    TIME_FORM = 1       # no text of this form, or one with a zone where there must be none
    TIME_RANGE = 2      # no such day or second, finer than the unit, or past 64 bits

cdef enum:
    DAY_SECONDS = 86400
    NANO_DIGITS = 9


cdef inline int two_digits(const char* p) noexcept nogil:
    """The number that two digits are, or -1."""
    if not is_digit(p[0]) or not is_digit(p[1]):
        return -1
    return 10 * (p[0] - c'0') + (p[1] - c'0')


cdef inline int read_date(const char* p, int64_t size, int64_t* days) noexcept nogil:
    """``YYYY-MM-DD``, the first 10 of ``size`` characters, as days since 1970."""
    cdef int century, year, month, day, last
    cdef int64_t y, era, of_era
    if size < 10 or p[4] != c'-' or p[7] != c'-':
        return TIME_FORM
    century = two_digits(p)
    year = two_digits(p + 2)
    month = two_digits(p + 5)
    day = two_digits(p + 8)
    if century < 0 or year < 0 or month < 0 or day < 0:
        return TIME_FORM
    year += 100 * century
    if month < 1 or month > 12 or day < 1:
        return TIME_RANGE
    if month == 2:
        last = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    else:
        last = 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31
    if day > last:
        return TIME_RANGE
    # Years begin in March here, so that the leap day is the last one; 400 of them have 146097 days.
    y = year - (month <= 2)
    era = (y if y >= 0 else y - 399) // 400
    of_era = y - era * 400
    days[0] = (
        era * 146097 + of_era * 365 + of_era // 4 - of_era // 100
        + (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1 - 719468)
    return TIME_OK


cdef inline int read_clock(
        const char* p, int64_t size, int32_t digits, bint may_cut, int64_t* units,
        int64_t* used) noexcept nogil:
    """``HH:MM:SS[.fraction]`` as units of ``10**-digits`` seconds; ``used`` characters are it."""
    cdef int hour, minute, second
    cdef int64_t at = 8, fraction = 0
    cdef int32_t count = 0
    if size < 8 or p[2] != c':' or p[5] != c':':
        return TIME_FORM
    hour = two_digits(p)
    minute = two_digits(p + 3)
    second = two_digits(p + 6)
    if hour < 0 or minute < 0 or second < 0:
        return TIME_FORM
    if at < size and p[at] == c'.':
        at += 1
        if at == size or not is_digit(p[at]):
            return TIME_FORM
        while at < size and is_digit(p[at]):
            if count < digits:
                fraction = fraction * 10 + (p[at] - c'0')
                count += 1
            elif p[at] != c'0' and not may_cut:
                return TIME_RANGE
            at += 1
    if hour > 23 or minute > 59 or second > 59:
        return TIME_RANGE
    fraction *= <int64_t> POW10[digits - count]
    units[0] = (hour * 3600 + minute * 60 + second) * <int64_t> POW10[digits] + fraction
    used[0] = at
    return TIME_OK


cdef inline int read_timestamp(
        const char* p, int64_t size, int32_t digits, bint is_utc, bint may_cut,
        int64_t* units) noexcept nogil:
    """Date and time as units since 1970, with a zone if ``is_utc`` and without otherwise."""
    cdef int64_t days, clock, used, seconds = 0
    cdef int fault = read_date(p, size, &days)
    cdef int hour, minute
    if fault != TIME_OK:
        return fault
    if size < 19 or (p[10] != c'T' and p[10] != c't' and p[10] != c' '):
        return TIME_FORM
    fault = read_clock(p + 11, size - 11, digits, may_cut, &clock, &used)
    if fault != TIME_OK:
        return fault
    used += 11
    if is_utc:
        if used == size:
            return TIME_FORM
        if p[used] == c'Z' or p[used] == c'z':
            used += 1
        elif p[used] == c'+' or p[used] == c'-':
            if size - used != 6 or p[used + 3] != c':':
                return TIME_FORM
            hour = two_digits(p + used + 1)
            minute = two_digits(p + used + 4)
            if hour < 0 or minute < 0:
                return TIME_FORM
            if hour > 23 or minute > 59:
                return TIME_RANGE
            seconds = hour * 3600 + minute * 60
            if p[used] == c'+':
                seconds = -seconds
            used += 6
    if used != size:
        return TIME_FORM
    return in_units(days * DAY_SECONDS + seconds, clock, digits, units)


cdef inline int in_units(
        int64_t seconds, int64_t more, int32_t digits, int64_t* units) noexcept nogil:
    """``seconds`` and ``more`` units of ``10**-digits`` seconds, if they fit in 64 bits."""
    if sum_overflows(seconds, <int64_t> POW10[digits], more, units):
        return TIME_RANGE
    return TIME_OK


cdef inline int rescaled(
        int64_t value, int32_t from_digits, int32_t to_digits, bint may_cut,
        int64_t* units) noexcept nogil:
    """Units of ``10**-from_digits`` seconds as those of ``10**-to_digits``; cut down, not to 0."""
    cdef int64_t factor
    if to_digits >= from_digits:
        return in_units(value, 0, to_digits - from_digits, units)
    factor = <int64_t> POW10[from_digits - to_digits]
    units[0] = value // factor
    if value % factor != 0:
        if not may_cut:
            return TIME_RANGE
        units[0] -= value < 0
    return TIME_OK
