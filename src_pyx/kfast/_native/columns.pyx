"""Operations on byte columns: gather, pack, view, compare, list.

Owns: the loops over (start, length) pairs that address one data buffer. A column is three buffers:

========  =======================  =========================================================
data      bytes                    a received frame or a decompressed payload, shared, never copied
starts    int32[n] or int64[n]     position of each value in data (int64 only past 2 GiB)
lengths   int32[n]                 bytes of each value, -1 for null
========  =======================  =========================================================

Rules:

* Inputs are objects with the buffer protocol; outputs are OwnedBuffers. numpy is not imported.
* Every function compares all spans with the size of the data before it reads the first byte, in the
  pass that adds up the lengths (about half a nanosecond per record).
* The loops run without the GIL and use no Python object; lists are the exception.
* The start of a null or empty value is not read.

Threads: any; inputs are immutable and outputs are new.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from kfast._native.buffers cimport OwnedBuffer, new_buffer


cdef extern from *:
    """
    #include <string.h>

    #define KFAST_COPY_SLACK 32

    /* Copies len > 0 bytes. Short values go in blocks of 32 bytes that may run past the end: memcpy
       chooses by size class, and lengths that vary make it mispredict on every value (6 ns against
       1 to 4 ns for random lengths up to 8 to 64 bytes; no difference for a constant length).
       dst must have KFAST_COPY_SLACK bytes of room after len; src_left bytes may be read. */
    static inline void kfast_copy_span(char *dst, const char *src, Py_ssize_t len,
                                       Py_ssize_t src_left) {
        if (len <= 128 && ((len + 31) & ~(Py_ssize_t)31) <= src_left) {
            do {
                memcpy(dst, src, 32);
                dst += 32;
                src += 32;
                len -= 32;
            } while (len > 0);
            return;
        }
        memcpy(dst, src, (size_t)len);
    }
    """
    enum:
        COPY_SLACK "KFAST_COPY_SLACK"
    void copy_span "kfast_copy_span"(
        char* dst, const char* src, Py_ssize_t len, Py_ssize_t src_left) noexcept nogil


cdef enum:
    INT32_MAX = 0x7FFFFFFF
    VIEW_BYTES = 16
    VIEW_INLINE = 12


ctypedef fused start_t:
    int32_t
    int64_t


ctypedef fused offset_t:
    int32_t
    int64_t


# ------------------------------------------------------------------------------------ opening spans

@cython.final
@cython.freelist(8)
cdef class SpanSource:
    """The three buffers of a column, opened for one call."""

    def __dealloc__(self):
        if self.acquired > 0:
            PyBuffer_Release(&self.data)
        if self.acquired > 1:
            PyBuffer_Release(&self.starts)
        if self.acquired > 2:
            PyBuffer_Release(&self.lengths)


cdef SpanSource open_spans(object data, object starts, object lengths):
    cdef SpanSource source = SpanSource.__new__(SpanSource)
    cdef Py_ssize_t count
    PyObject_GetBuffer(data, &source.data, PyBUF_SIMPLE)
    source.acquired = 1
    PyObject_GetBuffer(starts, &source.starts, PyBUF_SIMPLE)
    source.acquired = 2
    PyObject_GetBuffer(lengths, &source.lengths, PyBUF_SIMPLE)
    source.acquired = 3
    count = source.lengths.len // 4
    if source.lengths.len != count * 4 or <size_t> source.lengths.buf & 3:
        raise ValueError("lengths must be an aligned int32 buffer")
    source.spans.data = <const char*> source.data.buf
    source.spans.size = source.data.len
    source.spans.lengths = <const int32_t*> source.lengths.buf
    source.spans.count = count
    source.spans.narrow = NULL
    source.spans.wide = NULL
    # The width of the starts follows from the two sizes; without rows it does not matter.
    if source.starts.len == count * 4 and not <size_t> source.starts.buf & 3:
        source.spans.narrow = <const int32_t*> source.starts.buf
    elif source.starts.len == count * 8 and not <size_t> source.starts.buf & 7:
        source.spans.wide = <const int64_t*> source.starts.buf
    else:
        raise ValueError(f"starts must be an aligned int32 or int64 buffer of {count} values")
    return source


cdef SpanTotals measure(const Spans* spans) noexcept nogil:
    """Count bytes and nulls, and check that every span is within the data."""
    cdef SpanTotals totals
    cdef bint outside
    if spans.wide is NULL and spans.size <= INT32_MAX:
        outside = measure_narrow(spans, &totals)
    else:
        outside = measure_any(spans, &totals)
    totals.outside = -1 if not outside else first_outside(spans)
    return totals


cdef bint measure_narrow(const Spans* spans, SpanTotals* totals) noexcept nogil:
    """``measure`` in 32 bits and without branches, which compilers vectorize.

    Every condition is the sign of a number. The arithmetic is unsigned because it may wrap: then
    another number of the same row is negative, and the row is refused.
    """
    cdef const int32_t* starts = spans.narrow
    cdef const int32_t* lengths = spans.lengths
    cdef uint32_t size = <uint32_t> spans.size
    cdef uint32_t start, length, room, present
    cdef uint32_t bad = 0
    cdef int32_t nulls = 0
    cdef int64_t total = 0
    cdef Py_ssize_t row
    for row in range(spans.count):
        start = <uint32_t> starts[row]
        length = <uint32_t> lengths[row]
        room = size - start
        present = -<uint32_t> (lengths[row] > 0)
        bad |= (length + 1) & length
        bad |= (start | room | (room - length)) & present
        nulls += lengths[row] < 0
        total += <int32_t> (length & present)
    totals.bytes = total
    totals.nulls = nulls
    return <int32_t> bad < 0


cdef bint measure_any(const Spans* spans, SpanTotals* totals) noexcept nogil:
    cdef Py_ssize_t row
    cdef int64_t start, total = 0, nulls = 0
    cdef int32_t length
    cdef int outside = 0
    for row in range(spans.count):
        length = spans.lengths[row]
        start = span_start(spans, row)
        nulls += length < 0
        total += length if length > 0 else 0
        # start + length would overflow for a start near the end of int64.
        outside |= (length < -1) | ((length > 0) & ((start < 0) | (start > spans.size - length)))
    totals.bytes = total
    totals.nulls = nulls
    return outside


cdef bint is_outside(const Spans* spans, Py_ssize_t row) noexcept nogil:
    cdef int64_t start = span_start(spans, row)
    cdef int32_t length = spans.lengths[row]
    return length < -1 or (length > 0 and (start < 0 or start > spans.size - length))


cdef Py_ssize_t first_outside(const Spans* spans) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(spans.count):
        if is_outside(spans, row):
            return row
    return -1


cdef SpanSource open_checked(object data, object starts, object lengths, SpanTotals* totals):
    cdef SpanSource source = open_spans(data, starts, lengths)
    with nogil:
        totals[0] = measure(&source.spans)
    if totals.outside >= 0:
        raise ValueError(
            f"row {totals.outside} is not inside its buffer of {source.spans.size} bytes")
    return source


cdef OwnedBuffer filled_buffer(Py_ssize_t size, Py_ssize_t slack=0):
    cdef OwnedBuffer buffer = new_buffer(size + slack)
    buffer.size = size
    return buffer


# ------------------------------------------------------------------------------ Arrow-shaped output

cdef OwnedBuffer validity_bits(const Spans* spans):
    """Make an Arrow validity bitmap: bit set where the value is not null."""
    cdef OwnedBuffer bitmap = filled_buffer((spans.count + 7) // 8)
    cdef uint8_t* bits = <uint8_t*> bitmap.ptr
    cdef Py_ssize_t row
    with nogil:
        memset(bits, 0, bitmap.size)
        for row in range(spans.count):
            bits[row >> 3] |= <uint8_t> ((spans.lengths[row] >= 0) << (row & 7))
    return bitmap


# One loop per width of the starts and of the offsets. The pointers are local variables because the
# compiler has to assume that a byte written to `out` changes the target of a pointer.

cdef void gather_rows(
    const Spans* spans, const start_t* starts, offset_t* offsets, char* out
) noexcept nogil:
    cdef const char* data = spans.data
    cdef const int32_t* lengths = spans.lengths
    cdef Py_ssize_t size = spans.size
    cdef Py_ssize_t count = spans.count
    cdef Py_ssize_t row, start
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t length
    for row in range(count):
        offsets[row] = <offset_t> at
        length = lengths[row]
        if length > 0:
            start = starts[row]
            copy_span(out + at, data + start, length, size - start)
            at += length
    offsets[count] = <offset_t> at


cdef void gather_spans(const Spans* spans, offset_t* offsets, char* out) noexcept nogil:
    if spans.wide is NULL:
        gather_rows(spans, spans.narrow, offsets, out)
    else:
        gather_rows(spans, spans.wide, offsets, out)


def gather(data, starts, lengths, bint wide=False) -> tuple:
    """Copy all values into contiguous memory, as Arrow's ``binary`` layout.

    Returns ``(offsets, payload, validity, null_count)``: int32 offsets, or int64 ones when ``wide``
    or when the values exceed 2 GiB (their size shows which); ``validity`` is None without nulls.
    """
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef OwnedBuffer offsets, payload
    payload = filled_buffer(totals.bytes, COPY_SLACK)
    if wide or totals.bytes > INT32_MAX:
        offsets = filled_buffer((spans.count + 1) * 8)
        with nogil:
            gather_spans(spans, <int64_t*> offsets.ptr, payload.ptr)
    else:
        offsets = filled_buffer((spans.count + 1) * 4)
        with nogil:
            gather_spans(spans, <int32_t*> offsets.ptr, payload.ptr)
    return offsets, payload, validity_bits(spans) if totals.nulls else None, totals.nulls


def binary_views(data, starts, lengths) -> tuple:
    """Make Arrow ``binary_view`` entries that refer to ``data`` as buffer 0, without copying it.

    Returns ``(views, validity, null_count)``; values up to 12 bytes are inside their entry. The
    data must not exceed 2 GiB, because a view has an int32 position.
    """
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef OwnedBuffer views
    cdef char* entry
    cdef const char* value
    cdef Py_ssize_t row
    cdef int32_t length, start
    if spans.size > INT32_MAX:
        raise ValueError("binary views cannot address more than 2 GiB")
    views = filled_buffer(spans.count * VIEW_BYTES)
    with nogil:
        memset(views.ptr, 0, views.size)
        for row in range(spans.count):
            entry = views.ptr + row * VIEW_BYTES
            length = spans.lengths[row]
            if length <= 0:
                continue
            start = <int32_t> span_start(spans, row)
            value = spans.data + start
            memcpy(entry, &length, 4)
            if length <= VIEW_INLINE:
                memcpy(entry + 4, value, length)
            else:
                memcpy(entry + 4, value, 4)
                memcpy(entry + 12, &start, 4)
    return views, validity_bits(spans) if totals.nulls else None, totals.nulls


def pack_bits(flags, bint invert=False) -> tuple:
    """Turn a buffer of booleans (one byte each) into Arrow bits.

    Returns ``(bits, count)`` where ``count`` is the number of bits set; ``invert`` makes a validity
    bitmap from a null mask.
    """
    cdef Py_buffer view
    cdef OwnedBuffer bitmap
    cdef uint8_t* bits
    cdef const uint8_t* values
    cdef Py_ssize_t row, count = 0
    cdef uint8_t bit
    PyObject_GetBuffer(flags, &view, PyBUF_SIMPLE)
    try:
        bitmap = filled_buffer((view.len + 7) // 8)
        bits = <uint8_t*> bitmap.ptr
        values = <const uint8_t*> view.buf
        with nogil:
            memset(bits, 0, bitmap.size)
            for row in range(view.len):
                bit = (values[row] != 0) != invert
                count += bit
                bits[row >> 3] |= <uint8_t> (bit << (row & 7))
    finally:
        PyBuffer_Release(&view)
    return bitmap, count


def repeat_value(bytes value, Py_ssize_t count, bint wide=False) -> tuple:
    """Arrow ``binary`` layout of one value repeated: ``(offsets, payload)``; int64 if ``wide``."""
    cdef Py_ssize_t size = len(value)
    cdef OwnedBuffer offsets, payload
    cdef const char* source = value
    cdef Py_ssize_t row, done, step
    if count < 0 or (size and count > (INT64_MAX if wide else INT32_MAX) // size):
        raise ValueError("a repeated value cannot exceed 2 GiB")
    offsets = filled_buffer((count + 1) * (8 if wide else 4))
    payload = filled_buffer(size * count)
    with nogil:
        for row in range(count + 1):
            if wide:
                (<int64_t*> offsets.ptr)[row] = row * size
            else:
                (<int32_t*> offsets.ptr)[row] = <int32_t> (row * size)
        if payload.size:
            memcpy(payload.ptr, source, size)
            done = size
            while done < payload.size:
                step = done if done <= payload.size - done else payload.size - done
                memcpy(payload.ptr + done, payload.ptr, step)
                done += step
    return offsets, payload


# --------------------------------------------------------------------- copies, views and comparison

def pack(list sources) -> tuple:
    """Copy the values of several ``(data, starts, lengths)`` columns into one buffer.

    Returns ``(payload, starts)`` with the starts of all rows of all sources in order: int32, or
    int64 when the payload exceeds 2 GiB. This is ``compact`` (several columns of one batch) and
    concatenation (one column of several batches).
    """
    cdef SpanTotals totals
    cdef SpanSource source
    cdef int64_t total = 0
    cdef int64_t at = 0
    cdef Py_ssize_t rows = 0
    cdef Py_ssize_t row, start
    cdef Spans* spans
    cdef int32_t length
    cdef bint wide
    cdef OwnedBuffer payload, starts
    cdef list opened = []
    for data, column_starts, lengths in sources:
        source = open_checked(data, column_starts, lengths, &totals)
        opened.append(source)
        total += totals.bytes
        rows += source.spans.count
    wide = total > INT32_MAX
    payload = filled_buffer(total, COPY_SLACK)
    starts = filled_buffer(rows * (8 if wide else 4))
    rows = 0
    for source in opened:
        spans = &source.spans
        with nogil:
            for row in range(spans.count):
                if wide:
                    (<int64_t*> starts.ptr)[rows] = at
                else:
                    (<int32_t*> starts.ptr)[rows] = <int32_t> at
                rows += 1
                length = spans.lengths[row]
                if length > 0:
                    start = span_start(spans, row)
                    copy_span(payload.ptr + at, spans.data + start, length, spans.size - start)
                    at += length
    return payload, starts


cdef struct Needle:
    const char* data
    Py_ssize_t size


cdef int compare_value(
        const char* value, Py_ssize_t size, const Needle* needle) noexcept nogil:
    """Order by length, then by bytes; an empty value is not read."""
    if size != needle.size:
        return -1 if size < needle.size else 1
    return memcmp(value, needle.data, size) if size else 0


cdef bint is_among(
        const char* value, Py_ssize_t size, const Needle* needles, Py_ssize_t count) noexcept nogil:
    """Binary search."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t middle
    cdef int order
    while low < count:
        middle = low + (count - low) // 2
        order = compare_value(value, size, &needles[middle])
        if order == 0:
            return True
        if order < 0:
            count = middle
        else:
            low = middle + 1
    return False


def equal_to_any(
    data, starts, lengths, needles, bint invert=False, bint match_nulls=False
) -> OwnedBuffer:
    """Compare all values with some ``bytes``: one byte per row, 1 where the value is among them.

    ``invert`` marks the other values instead. Null rows have ``match_nulls`` in either case.
    """
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef list ordered = sorted(sorted(set(needles)), key=len)
    cdef Py_ssize_t count = len(ordered)
    cdef OwnedBuffer table = new_buffer(count * sizeof(Needle))
    cdef OwnedBuffer flags = filled_buffer(spans.count)
    cdef Needle* wanted = <Needle*> table.ptr
    cdef char* flag = flags.ptr
    cdef const char* value
    cdef bytes needle
    cdef Py_ssize_t row
    cdef int32_t length
    for row, needle in enumerate(ordered):
        wanted[row].data = needle
        wanted[row].size = len(needle)
    with nogil:
        for row in range(spans.count):
            length = spans.lengths[row]
            if length < 0:
                flag[row] = match_nulls
                continue
            # The start is added to the data pointer only for values that have bytes.
            value = spans.data + span_start(spans, row) if length else NULL
            flag[row] = is_among(value, length, wanted, count) != invert
    return flags


cdef void copy_fixed(const Spans* spans, Py_ssize_t width, char* out) noexcept nogil:
    """Copy values that all have ``width`` bytes; the usual widths get a constant-size copy."""
    cdef Py_ssize_t row
    if width == 4:
        for row in range(spans.count):
            memcpy(out + row * 4, spans.data + span_start(spans, row), 4)
    elif width == 8:
        for row in range(spans.count):
            memcpy(out + row * 8, spans.data + span_start(spans, row), 8)
    elif width == 16:
        for row in range(spans.count):
            memcpy(out + row * 16, spans.data + span_start(spans, row), 16)
    else:
        for row in range(spans.count):
            copy_span(out + row * width, spans.data + span_start(spans, row), width,
                      spans.size - span_start(spans, row))


def view_fixed(data, starts, lengths, Py_ssize_t width) -> tuple:
    """Values of exactly ``width`` bytes each as one block.

    Returns ``(block, first_bad)``. ``first_bad`` is the first row of another length (null counts),
    else -1. ``block`` is None when the values are contiguous in ``data`` already (from the first
    start on), and when ``first_bad`` is set.
    """
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef OwnedBuffer block
    cdef Py_ssize_t row, expected
    cdef bint contiguous = True
    if width <= 0:
        raise ValueError("a fixed width must be positive")
    with nogil:
        expected = span_start(spans, 0) if spans.count else 0
        for row in range(spans.count):
            if spans.lengths[row] != width:
                with gil:
                    return None, row
            contiguous &= span_start(spans, row) == expected
            expected += width
    if contiguous:
        return None, -1
    block = filled_buffer(spans.count * width, COPY_SLACK)
    with nogil:
        copy_fixed(spans, width, block.ptr)
    return block, -1


def gather_padded(data, starts, lengths, Py_ssize_t width) -> OwnedBuffer:
    """Values truncated or zero-padded to ``width`` bytes, null as zeros: NumPy's ``S`` layout."""
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef OwnedBuffer block
    cdef Py_ssize_t row
    cdef Py_ssize_t length
    if width < 0 or (width and spans.count > (<Py_ssize_t> 1 << 62) // width):
        raise ValueError("bad width")
    block = filled_buffer(spans.count * width)
    with nogil:
        memset(block.ptr, 0, block.size)
        for row in range(spans.count):
            length = spans.lengths[row]
            if length > width:
                length = width
            if length > 0:
                memcpy(block.ptr + row * width, spans.data + span_start(spans, row), length)
    return block


cdef inline object value_at(const Spans* spans, Py_ssize_t row):
    cdef int32_t length = spans.lengths[row]
    if length < 0:
        return None
    if length == 0:
        return b""
    return PyBytes_FromStringAndSize(spans.data + span_start(spans, row), length)


def bytes_list(data, starts, lengths) -> list:
    """All values as ``bytes`` objects, None for null."""
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef list values = PyList_New(spans.count)
    cdef Py_ssize_t row
    cdef object value
    for row in range(spans.count):
        value = value_at(spans, row)
        Py_INCREF(value)
        PyList_SET_ITEM(values, row, value)
    return values


def bytes_at(data, starts, lengths, Py_ssize_t row) -> object:
    """One value as ``bytes``, None for null; only this row is checked."""
    cdef SpanSource source = open_spans(data, starts, lengths)
    cdef Spans* spans = &source.spans
    if not 0 <= row < spans.count or is_outside(spans, row):
        raise ValueError(f"row {row} is not inside its buffer of {spans.size} bytes")
    return value_at(spans, row)


def text_list(data, starts, lengths, str errors="strict") -> list:
    """All values decoded from UTF-8 as ``str`` objects, None for null."""
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef list values = [None] * spans.count
    cdef bytes mode = errors.encode()
    cdef const char* c_mode = mode
    cdef Py_ssize_t row
    cdef int32_t length
    for row in range(spans.count):
        length = spans.lengths[row]
        if length == 0:
            values[row] = ""
        elif length > 0:
            values[row] = PyUnicode_DecodeUTF8(
                <char*> spans.data + span_start(spans, row), length, c_mode)
    return values
