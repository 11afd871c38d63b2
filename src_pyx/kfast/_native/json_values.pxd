"""Scalar values of JSON: texts, numbers, times and what a text may stand for.

Each function begins at the value, or behind the quote of a string, and appends one value to the
operation's column. See ``json_decode.pyx`` for the rules.
"""

from libc.stdint cimport (
    INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.string cimport memcpy

from kfast._native.builders cimport (
    RANGE, TRUNCATED, TYPE, Builder, ColumnBuilders, append_bytes, append_fixed, append_float64,
    append_int32, append_int64, append_text_index, bytes_room, end_bytes, fixed_slot,
)
from kfast._native.json_scan cimport (
    HAS_ESCAPES, HAS_HIGH, SCAN_SLACK, after_number, bad_utf8, copy16, fail, hex4, lowest_bit,
    skip_value, skip_word, text_end, unescaped, unlikely,
)
from kfast._native.json_state cimport *
from kfast._native.kinds cimport *
from kfast._native.number_text cimport (
    Number, is_digit, scan_integer, scan_number, to_double, to_single, unscaled_value,
)
from kfast._native.time_text cimport (
    DAY_SECONDS, TIME_FORM, TIME_OK, TIME_RANGE, read_clock, read_date, read_timestamp, rescaled,
)
from kfast._native.utf8 cimport is_utf8_within


cdef enum:
    LONG_REST = 1 << 20     # bytes of a document


cdef inline const char* read_text(
        State* s, const char* p, const char** text, int64_t* size) noexcept nogil:
    """From the first character of a string to behind it: its text, in place or in the scratch."""
    cdef int flags
    cdef char* to
    cdef const char* end = text_end(&s.c, p, &flags)
    if end is NULL:
        return NULL
    text[0] = p
    size[0] = end - p
    if flags == 0:
        return end + 1
    if flags & HAS_HIGH and not is_utf8_within(<const uint8_t*> p, end - p):
        return bad_utf8(&s.c, p, end)
    if flags & HAS_ESCAPES:
        to = scratch(s, end - p)
        if to is NULL:
            return NULL
        text[0] = to
        size[0] = unescaped(&s.c, p, end, to)
        if size[0] < 0:
            return NULL
    return end + 1


cdef inline bint make_text_room(
        State* s, ColumnBuilders b, Builder* n, const char* p) noexcept nogil:
    """Make room for a string: what the rest of the document has, or what the string has if that
    is long, and may be more than a row may have."""
    cdef int flags
    cdef const char* end = s.c.end
    if end - p > LONG_REST:
        end = text_end(&s.c, p, &flags)
        if end is NULL:
            return False
    if bytes_room(b, n, end - p) is NULL:
        fail_build(s, p, b.failure)
        return False
    return True


cdef inline const char* rest_of_string(
        State* s, ColumnBuilders b, Builder* n, const char* start, const char* p,
        bint has_high) noexcept nogil:
    """A string with escapes, the first of which is at ``p``, or with letters past ASCII."""
    cdef int flags
    cdef int status
    cdef int64_t size
    cdef const char* end = text_end(&s.c, p, &flags)
    if end is NULL:
        return NULL
    if (has_high or flags & HAS_HIGH) and not is_utf8_within(<const uint8_t*> start, end - start):
        return bad_utf8(&s.c, start, end)
    size = end - start
    if flags & HAS_ESCAPES:
        size = unescaped(&s.c, start, end, n.data + n.used)
    if size < 0:
        return NULL
    status = end_bytes(b, n, size)
    return end + 1 if status == 0 else fail_build(s, start, status)


cdef inline const char* string_value(
        State* s, ColumnBuilders b, int32_t node, const char* p) noexcept nogil:
    """From the first character of a string to behind it; copied while its end is looked for."""
    cdef Builder* n = &b.nodes[node]
    cdef const char* start = p
    cdef uint32_t stops, high
    cdef uint32_t all_high = 0
    cdef int count
    cdef char* to
    # A string has no more bytes than the document has from here on: room for these is there at
    # once.
    if unlikely(s.c.end - p > n.data_room - n.used) and not make_text_room(s, b, n, p):
        return NULL
    to = n.data + n.used
    stops = copy16(p, to, &high)
    while stops == 0:
        all_high |= high
        p += 16
        to += 16
        if p >= s.c.end:
            return fail(&s.c, p, TRUNCATED)
        stops = copy16(p, to, &high)
    count = lowest_bit(stops)
    all_high |= high & ((<uint32_t> 1 << count) - 1)
    p += count
    if unlikely(p >= s.c.end or p[0] != c'"' or all_high):
        return rest_of_string(s, b, n, start, p, all_high != 0)
    if unlikely(end_bytes(b, n, p - start) < 0):
        return fail_build(s, start, b.failure)
    return p + 1


cdef inline int hex_value(uint8_t letter) noexcept nogil:
    if c'0' <= letter <= c'9':
        return letter - c'0'
    letter |= 0x20
    return letter - c'a' + 10 if c'a' <= letter <= c'f' else -1


cdef inline int base64_value(uint8_t letter, bint is_url) noexcept nogil:
    if c'A' <= letter <= c'Z':
        return letter - c'A'
    if c'a' <= letter <= c'z':
        return letter - c'a' + 26
    if c'0' <= letter <= c'9':
        return letter - c'0' + 52
    if letter == (c'-' if is_url else c'+'):
        return 62
    if letter == (c'_' if is_url else c'/'):
        return 63
    return -1


cdef inline int64_t decoded_binary(
        const Op* op, const char* text, int64_t size, char* out) noexcept nogil:
    """Write the bytes that a text stands for, never more than it has letters; -1 if it is none."""
    cdef const uint8_t* p = <const uint8_t*> text
    cdef int64_t i, written = 0
    cdef int high, low, j, value
    cdef uint32_t group
    if op.flags & PLAIN_TEXT:
        memcpy(out, text, size)
        return size
    if op.flags & HEX:
        if size & 1:
            return -1
        for i in range(size >> 1):
            high = hex_value(p[2 * i])
            low = hex_value(p[2 * i + 1])
            if high < 0 or low < 0:
                return -1
            out[i] = <char> (high << 4 | low)
        return size >> 1
    if size & 3:
        return -1
    if size and p[size - 1] == c'=':
        size -= 2 if p[size - 2] == c'=' else 1
    for i in range(0, size, 4):
        group = 0
        for j in range(4):
            value = base64_value(p[i + j], op.flags & BASE64URL != 0) if i + j < size else 0
            if value < 0:
                return -1
            group = group << 6 | <uint32_t> value
        # Bits that belong to no byte are zeros.
        if (size - i == 2 and group & 0xFFFF) or (size - i == 3 and group & 0xFF):
            return -1
        out[written] = <char> (group >> 16)
        out[written + 1] = <char> (group >> 8)
        out[written + 2] = <char> group
        written += 3 if size - i >= 4 else size - i - 1
    return written


cdef inline const char* text_form(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """A string that stands for a value of another kind. ``p`` is at its quote."""
    cdef const char* start = p
    cdef const char* text
    cdef int64_t size, used = 0, number = 0
    cdef int status = 0, fault = TIME_OK
    cdef char* out
    cdef uint8_t uuid[16]
    cdef int i, j, pair
    cdef bint may_cut = op.flags & TRUNCATE_TIME != 0
    p = read_text(s, p + 1, &text, &size)
    if p is NULL:
        return NULL
    if op.kind == KIND_DICTIONARY:
        status = append_text_index(b, op.node, text, size)
    elif op.kind == KIND_TIMESTAMP:
        fault = read_timestamp(
            text, size, op.unit, op.flags & IS_UTC != 0, may_cut, &number)
        if fault == TIME_OK:
            status = append_int64(b, op.node, number)
    elif op.kind == KIND_DATE32:
        fault = read_date(text, size, &number) if size == 10 else TIME_FORM
        if fault == TIME_OK:
            status = append_int32(b, op.node, <int32_t> number)
    elif op.kind == KIND_TIME32 or op.kind == KIND_TIME64:
        fault = read_clock(text, size, op.unit, may_cut, &number, &used)
        if fault == TIME_OK and used != size:
            fault = TIME_FORM
        if fault == TIME_OK and op.kind == KIND_TIME32:
            status = append_int32(b, op.node, <int32_t> number)
        elif fault == TIME_OK:
            status = append_int64(b, op.node, number)
    elif op.kind == KIND_UUID:
        fault = TIME_OK if size == 36 else TIME_FORM
        if fault == TIME_OK:
            j = 0
            for i in range(8):
                if i == 2 or i == 3 or i == 4 or i == 5:
                    if text[j] != c'-':
                        fault = TIME_FORM
                        break
                    j += 1
                pair = hex4(text + j)
                if pair < 0:
                    fault = TIME_FORM
                    break
                uuid[2 * i] = <uint8_t> (pair >> 8)
                uuid[2 * i + 1] = <uint8_t> pair
                j += 4
        if fault == TIME_OK:
            status = append_fixed(b, op.node, uuid)
    elif op.kind == KIND_BINARY:
        out = bytes_room(b, &b.nodes[op.node], size)
        if out is NULL:
            return fail_build(s, start, b.failure)
        size = decoded_binary(op, text, size, out)
        if size < 0:
            fault = TIME_FORM
        else:
            status = end_bytes(b, &b.nodes[op.node], size)
    else:  # fixed-size binary, decoded behind the text in the scratch
        out = scratch(s, 2 * size)
        if out is NULL:
            return NULL
        if text < s.c.begin or text >= s.c.end:
            text = out
        number = decoded_binary(op, text, size, out + size)
        fault = TIME_FORM if number < 0 else TIME_OK if number == op.unit else TIME_RANGE
        if fault == TIME_OK:
            status = append_fixed(b, op.node, out + size)
    if fault != TIME_OK:
        s.c.detail = FOUND_TEXT
        return fail(&s.c, start, TYPE if fault == TIME_FORM else RANGE)
    return p if status == 0 else fail_build(s, start, status)


# ------------------------------------------------------------------------------------------ numbers

cdef inline bint integral(
        const Op* op, const char* p, uint64_t* magnitude, bint* overflows,
        const char** end) noexcept nogil:
    """Whether a number that is no integer literal may be one: ``1.0``, ``1e3``."""
    cdef Number number
    cdef uint64_t words[4]
    end[0] = scan_number(p, &number)
    if end[0] is NULL or not op.flags & INTEGRAL_FLOAT:
        return False
    number.is_negative = False
    overflows[0] = False
    if not unscaled_value(&number, 20, 0, words):
        overflows[0] = number.exponent > 0 or unscaled_value(&number, 76, 0, words)
        return overflows[0]
    overflows[0] = words[1] != 0
    magnitude[0] = words[0]
    return True


cdef inline int integer_of(
        const Op* op, const char* p, int64_t low, uint64_t high, const char** end,
        int64_t* value) noexcept nogil:
    """An integer between ``low`` and ``high``: 0, or the code of the error. ``end`` is behind it,
    NULL if there is no number."""
    cdef bint is_negative = p[0] == c'-'
    cdef bint overflows
    cdef uint64_t magnitude
    p += is_negative
    end[0] = scan_integer(p, &magnitude, &overflows)
    if end[0] is NULL:
        return TYPE
    if end[0][0] == c'.' or (end[0][0] | 0x20) == c'e':
        if not integral(op, p, &magnitude, &overflows, end):
            return TYPE
    if is_negative:
        if overflows or magnitude > <uint64_t> 0 - <uint64_t> low:
            return RANGE
        value[0] = <int64_t> (<uint64_t> 0 - magnitude)
        return 0
    if overflows or magnitude > high:
        return RANGE
    value[0] = <int64_t> magnitude
    return 0


cdef inline const char* number_text(State* s, const char* p, const char** text) noexcept nogil:
    """The string at ``p``, as a number with a zero behind it; `s.text_size` is its size."""
    cdef const char* found
    cdef int64_t size
    cdef char* to
    p = read_text(s, p + 1, &found, &size)
    if p is NULL:
        return NULL
    to = scratch(s, size)
    if to is NULL:
        return NULL
    if found >= s.c.begin and found < s.c.end:
        memcpy(to, found, size)
    to[size] = 0
    text[0] = to
    s.text_size = size
    return p


cdef inline int append_narrow(ColumnBuilders b, int32_t node, int64_t value) noexcept nogil:
    """An integer of one or two bytes."""
    cdef int16_t value16 = <int16_t> value
    cdef char* slot = fixed_slot(b, node)
    if slot is NULL:
        return b.failure
    if b.nodes[node].width == 2:
        memcpy(slot, &value16, 2)
    else:
        slot[0] = <char> value
    return 0


cdef inline const char* integer_value(
        State* s, ColumnBuilders b, const Op* op, const char* p, int64_t low,
        uint64_t high) noexcept nogil:
    cdef const char* start = p
    cdef const char* text = p
    cdef const char* end
    cdef int64_t value = 0
    cdef int code, status
    cdef bint is_text = p[0] == c'"' and op.flags & NUMBER_TEXT
    if is_text:
        p = number_text(s, p, &text)
        if p is NULL:
            return NULL
    code = integer_of(op, text, low, high, &end, &value)
    if is_text:
        if end is NULL or end != text + s.text_size:
            code = TYPE
    elif end is NULL:
        return other_value(s, b, op, p)
    else:
        p = end
    if code:
        s.c.detail = FOUND_TEXT if is_text else FOUND_NUMBER
        if not is_text and after_number(&s.c, start, p) is NULL:
            return NULL
        return fail(&s.c, start, code)
    if op.kind == KIND_INT64 or op.kind == KIND_UINT64 or op.kind == KIND_DURATION or (
            op.kind == KIND_TIME64):
        status = append_int64(b, op.node, value)
    elif op.kind == KIND_INT16 or op.kind == KIND_UINT16 or op.kind == KIND_INT8 or (
            op.kind == KIND_UINT8):
        status = append_narrow(b, op.node, value)
    else:
        status = append_int32(b, op.node, <int32_t> value)
    return p if status == 0 else fail_build(s, start, status)


cdef inline const char* int64_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """The usual case first: up to 18 digits."""
    cdef uint64_t magnitude
    cdef bint overflows
    cdef bint is_negative = p[0] == c'-'
    cdef const char* end = scan_integer(p + is_negative, &magnitude, &overflows)
    if (end is NULL or overflows or magnitude > <uint64_t> INT64_MAX or end[0] == c'.'
            or (end[0] | 0x20) == c'e'):
        return integer_value(s, b, op, p, -INT64_MAX - 1, <uint64_t> INT64_MAX)
    if append_int64(b, op.node, -<int64_t> magnitude if is_negative else <int64_t> magnitude) < 0:
        return fail_build(s, p, b.failure)
    return end


cdef inline int append_single(ColumnBuilders b, int32_t node, float value) noexcept nogil:
    cdef int32_t bits
    memcpy(&bits, &value, 4)
    return append_int32(b, node, bits)


cdef inline const char* float_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    cdef const char* start = p
    cdef const char* text = p
    cdef const char* end
    cdef Number number
    cdef bint is_text = p[0] == c'"' and op.flags & NUMBER_TEXT
    cdef double wide = 0
    cdef float narrow = 0
    cdef int status
    if is_text:
        p = number_text(s, p, &text)
        if p is NULL:
            return NULL
    elif not is_digit(p[0]) and p[0] != c'-':
        if not s.c.allow_nan or (p[0] != c'N' and p[0] != c'I'):
            return other_value(s, b, op, p)
    end = scan_number(text, &number)
    if end is NULL and s.c.allow_nan and not is_text:
        return not_a_number(s, b, op, p)
    if is_text:
        if end != text + s.text_size:
            s.c.detail = FOUND_TEXT
            return fail(&s.c, start, TYPE)
    elif end is NULL:
        return after_number(&s.c, start, NULL)
    else:
        p = end
    if op.kind == KIND_FLOAT64:
        wide = to_double(&number, s.powers)
        if wide - wide != 0:
            return fail(&s.c, start, RANGE)
        status = append_float64(b, op.node, wide)
    else:
        narrow = to_single(&number, s.powers)
        if narrow - narrow != 0:
            return fail(&s.c, start, RANGE)
        status = append_single(b, op.node, narrow)
    return p if status == 0 else fail_build(s, start, status)


cdef inline const char* not_a_number(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """``NaN``, ``Infinity`` or ``-Infinity``."""
    cdef uint64_t bits = <uint64_t> 0x7FF0000000000000
    cdef double wide
    cdef float narrow
    cdef const char* start = p
    cdef int status
    if p[0] == c'N':
        bits |= <uint64_t> 1 << 51
        p = skip_word(&s.c, p, "NaN", 3)
    else:
        bits |= <uint64_t> (p[0] == c'-') << 63
        p = skip_word(&s.c, p + (p[0] == c'-'), "Infinity", 8)
    if p is NULL:
        return NULL
    wide = (<double*> &bits)[0]
    if op.kind == KIND_FLOAT64:
        status = append_float64(b, op.node, wide)
    else:
        narrow = <float> wide
        status = append_single(b, op.node, narrow)
    return p if status == 0 else fail_build(s, start, status)


cdef inline const char* decimal_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """A number, or a string that is one; exact."""
    cdef const char* start = p
    cdef const char* text = p
    cdef const char* end
    cdef Number number
    cdef uint64_t words[4]
    cdef bint is_text = p[0] == c'"'
    if is_text:
        p = number_text(s, p, &text)
        if p is NULL:
            return NULL
    elif not is_digit(p[0]) and p[0] != c'-':
        return other_value(s, b, op, p)
    end = scan_number(text, &number)
    if is_text:
        if end != text + s.text_size:
            s.c.detail = FOUND_TEXT
            return fail(&s.c, start, TYPE)
    elif end is NULL:
        return after_number(&s.c, start, NULL)
    else:
        p = end
    if not unscaled_value(&number, op.unit, op.scale, words):
        return fail(&s.c, start, RANGE)
    # In the machine's byte order as a whole: the most significant word comes first on big-endian.
    if append_wide(b, op.node, words) < 0:
        return fail_build(s, start, b.failure)
    return p


cdef inline int append_wide(ColumnBuilders b, int32_t node, uint64_t* words) noexcept nogil:
    cdef uint16_t one = 1
    cdef int32_t count = b.nodes[node].width >> 3
    cdef int32_t i
    cdef uint64_t swapped[4]
    if (<char*> &one)[0] == 1:
        return append_fixed(b, node, words)
    for i in range(count):
        swapped[i] = words[count - 1 - i]
    return append_fixed(b, node, swapped)


# -------------------------------------------------------------------------------------------- times

cdef inline bint is_epoch(const Op* op) noexcept nogil:
    """Whether an integer is a timestamp in the unit of its column."""
    return (op.scale < 0 or op.scale == op.unit) and not op.flags & TEXT_ONLY


cdef inline const char* time_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """Timestamps, dates, times of day: a text of RFC 3339, or a number of units."""
    cdef int64_t low = -INT64_MAX - 1, value = 0
    cdef uint64_t high = <uint64_t> INT64_MAX
    cdef const char* end
    cdef int code
    if p[0] == c'"' and not op.flags & EPOCH_ONLY:
        return text_form(s, b, op, p)
    if op.flags & TEXT_ONLY or (not is_digit(p[0]) and p[0] != c'-'):
        return other_value(s, b, op, p)
    if op.kind == KIND_TIMESTAMP:
        code = integer_of(op, p, low, high, &end, &value)
        if end is NULL:
            return after_number(&s.c, p, NULL)
        if code == 0 and rescaled(
                value, op.unit if op.scale < 0 else op.scale, op.unit,
                op.flags & TRUNCATE_TIME != 0, &value) != TIME_OK:
            code = RANGE
        if code:
            s.c.detail = FOUND_NUMBER
            if after_number(&s.c, p, end) is NULL:
                return NULL
            return fail(&s.c, p, code)
        return end if append_int64(b, op.node, value) == 0 else fail_build(s, p, b.failure)
    if op.kind == KIND_DATE32:
        low = -<int64_t> 0x80000000
        high = 0x7FFFFFFF
    else:
        low = 0
        high = DAY_SECONDS - 1
        if op.unit == 3:
            high = DAY_SECONDS * 1000 - 1
        elif op.unit == 6:
            high = DAY_SECONDS * <uint64_t> 1000000 - 1
        elif op.unit == 9:
            high = DAY_SECONDS * <uint64_t> 1000000000 - 1
    return integer_value(s, b, op, p, low, high)


cdef inline const char* bool_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    cdef const char* start = p
    cdef uint8_t value = p[0] == c't'
    if value:
        p = skip_word(&s.c, p, "true", 4)
    elif p[0] == c'f':
        p = skip_word(&s.c, p, "false", 5)
    else:
        return other_value(s, b, op, p)
    if p is NULL:
        return NULL
    if append_fixed(b, op.node, &value) < 0:
        return fail_build(s, start, b.failure)
    return p


cdef inline const char* document_value(
        State* s, ColumnBuilders b, const Op* op, const char* p) noexcept nogil:
    """A part of the document as its text; null stays null."""
    cdef const char* start = p
    if p[0] == c'n':
        return other_value(s, b, op, p)
    p = skip_value(&s.c, p, True)
    if p is NULL:
        return NULL
    if append_bytes(b, op.node, start, p - start) < 0:
        return fail_build(s, start, b.failure)
    return p
