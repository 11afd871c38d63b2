"""TextWriter: decoded records as text, by a list of operations that is made once.

Owns the buffer that the text goes to: ``block_bytes``, or more for one record that needs more. It
always ends with a whole record. Undecodable keys and values are reported, nulled or left out.

An operation is ``(field, form, style, text, null)``:

==============  ====================================================================================
field           form
==============  ====================================================================================
literal         ``text`` as it is
separator       ``text``; before the first record of all ``null``
topic           in ``style``
partition       number
offset          number
leader_epoch    number, ``null`` if unknown
time            ``iso``, ``ms``, ``s``, ``day`` (time of day), ``pattern``: ``text`` as strftime's
time_type       in ``style``
key, value      a kind of ``FORMS``, in ``style``
key_length      number, -1 for null; so ``value_length``
column          a row of the typed column of number ``text``: ``json`` or ``text``, in ``style``
headers         pairs as JSON, in ``style``; ``list``: ``a=1,b=2``
header_count    number
end             ``text``, behind a line that is cut to ``line_width`` columns
==============  ====================================================================================

``null`` is what stands for a null, and for no time. A style is ``plain``, ``json`` (strings with
their quotes), ``csv``, ``tsv`` or ``line``. Of a typed column ``json`` in the style of JSON is
copied as it is.

Threads: one at a time; `write` runs without the GIL, but for floating numbers.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

from kfast._native.column_text cimport ColumnTexts, Texts
from kfast._native.record_index cimport IndexColumns, RecordIndex
from kfast._native.text_cells cimport (
    TIME_ROOM,
    Moment,
    floor_division,
    moment_of,
    put_bytes,
    put_day,
    put_int,
    put_padded,
    put_time_of_day,
    put_time_pattern,
)
from kfast._native.text_headers cimport HEADER_ROOM, Headers, headers_room, put_headers
from kfast._native.text_scan cimport TEXT_SLACK
from kfast._native.text_styles cimport (
    CSV,
    JSON,
    LINE,
    PLAIN,
    SHOW_BYTES,
    STYLES,
    TSV,
    Style,
    cut_line,
    fill_style,
)
from kfast._native.text_values cimport (
    AUTO, BASE64, BYTES, FLOAT32, FLOAT32LE, FLOAT64, FLOAT64LE, GROWTH, HEX, INT32, INT32LE,
    INT64, INT64LE, ISO, JSON_TEXT, JSON_VALUE, LIST, MS, NUMBER, OF_DAY, PATTERN, RAW, ROOM,
    SECONDS, TEXT, UUID, Escapes, put_ascii, put_kind, put_made_json, put_styled,
)


cdef enum Field:
    LITERAL
    SEPARATOR
    TOPIC
    PARTITION
    OFFSET
    LEADER_EPOCH
    TIME
    TIME_TYPE
    KEY
    VALUE
    KEY_LENGTH
    VALUE_LENGTH
    COLUMN
    HEADERS
    HEADER_COUNT
    END

cdef enum Policy:
    FAIL
    AS_NULL
    SKIP

cdef enum Status:
    GOOD
    BAD_VALUE
    NO_MEMORY

cdef enum:
    NO_TIME = -1

FIELDS = {
    "literal": LITERAL, "separator": SEPARATOR, "topic": TOPIC, "partition": PARTITION,
    "offset": OFFSET, "leader_epoch": LEADER_EPOCH, "time": TIME, "time_type": TIME_TYPE,
    "key": KEY, "value": VALUE, "key_length": KEY_LENGTH, "value_length": VALUE_LENGTH,
    "column": COLUMN, "headers": HEADERS, "header_count": HEADER_COUNT, "end": END,
}
FORMS = {
    "": NUMBER, "raw": RAW, "auto": AUTO, "text": TEXT, "bytes": BYTES, "base64": BASE64,
    "hex": HEX, "json": JSON_VALUE, "json_text": JSON_TEXT, "int32": INT32, "int64": INT64,
    "float32": FLOAT32, "float64": FLOAT64, "int32le": INT32LE, "int64le": INT64LE,
    "float32le": FLOAT32LE, "float64le": FLOAT64LE, "uuid": UUID, "iso": ISO, "ms": MS,
    "s": SECONDS, "day": OF_DAY, "pattern": PATTERN, "list": LIST,
}
_STYLES = {"plain": PLAIN, "json": JSON, "csv": CSV, "tsv": TSV, "line": LINE}
_POLICIES = {"fail": FAIL, "null": AS_NULL, "skip": SKIP}


cdef struct Operation:
    int field
    int form
    int style
    const char* text
    Py_ssize_t size
    const char* null
    Py_ssize_t null_size
    int number                # of a typed column
    const Texts* texts


cdef Style TABLES[2][STYLES]
# Of JSON that is there already, whose strings may have what a terminal acts on.
cdef Style SHOWN_JSON


cdef void fill_tables() noexcept:
    cdef int shown, name
    for shown in range(2):
        for name in range(STYLES):
            fill_style(&TABLES[shown][name], name, shown)
    fill_style(&SHOWN_JSON, PLAIN, True)
    SHOWN_JSON.is_json = True


fill_tables()


@cython.final
cdef class TextWriter:
    """Writes records as text into a buffer, which the caller empties.

    Parameters
    ----------
    operations : sequence of tuples
        See the module.
    on_error : {"fail", "null", "skip"}
        What becomes of a key or value that is not of its kind.
    is_terminal : bool
        Escape what a terminal acts on.
    block_bytes : int
        Size of the buffer.
    line_width : int
        Columns of an ``end``; 0 cuts nothing. A character past U+10FF counts as two.
    """

    cdef Operation* operations
    cdef Operation* plan                   # with what is the same in all rows of a call as literals
    cdef Py_ssize_t count, planned
    cdef char* constants                   # the texts of those
    cdef Py_ssize_t constants_room
    cdef object kept                       # owns the operations' texts
    cdef Escapes escapes
    cdef int policy
    cdef Py_ssize_t line_width
    cdef Py_ssize_t fixed_room, keys, values, headers, header_room, topics
    cdef Py_ssize_t typed                  # operations that write typed columns
    cdef char* buffer
    cdef Py_ssize_t used, capacity, block_bytes, exports
    cdef readonly Py_ssize_t records       # written so far
    cdef readonly Py_ssize_t nulled        # values that were not of their kind
    cdef readonly Py_ssize_t skipped       # records that had such values
    # The slice that is written, for the length of a call.
    cdef const IndexColumns* columns
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef const char* topic
    cdef Py_ssize_t topic_size
    cdef int partition
    cdef int32_t leader_epoch
    cdef int8_t uniform_type
    cdef Py_ssize_t first                  # the row that typed columns begin with
    cdef const uint8_t* left_out           # NULL for no row
    # The value that is not of its kind.
    cdef Status status
    cdef Py_ssize_t bad_row
    cdef bint is_key_bad
    # The last second that was written, whose text most records share.
    cdef int64_t second
    cdef bint has_second
    cdef char second_text[TIME_ROOM]
    cdef Py_ssize_t second_size

    def __cinit__(self):
        self.operations = self.plan = NULL
        self.buffer = self.constants = NULL

    def __init__(self, operations, *, on_error="fail", bint is_terminal=False,
                 Py_ssize_t block_bytes=1 << 20, Py_ssize_t line_width=0):
        cdef Operation* op
        if self.operations is not NULL:
            raise TypeError("a TextWriter is made once")
        self.kept = tuple(
            (FIELDS[field], FORMS[form], _STYLES[style], bytes(text), bytes(null))
            for field, form, style, text, null in operations
        )
        self.policy = _POLICIES[on_error]
        self.escapes.is_terminal = is_terminal
        self.escapes.styles = TABLES[is_terminal]
        self.escapes.of_json = &SHOWN_JSON
        self.block_bytes = max(block_bytes, 256)
        self.line_width = line_width
        self.operations = <Operation*> malloc(max(1, len(self.kept)) * sizeof(Operation))
        self.buffer = <char*> malloc(self.block_bytes)
        self.plan = <Operation*> malloc(max(1, len(self.kept)) * sizeof(Operation))
        if self.operations is NULL or self.plan is NULL or self.buffer is NULL:
            raise MemoryError
        self.capacity = self.block_bytes
        self.fixed_room = TEXT_SLACK
        for field, form, style, text, null in self.kept:
            op = &self.operations[self.count]
            op.field, op.form, op.style = field, form, style
            op.text, op.size = text, len(text)
            op.null, op.null_size = null, len(null)
            self.count += 1
            self.fixed_room += ROOM + op.size + op.null_size
            if op.field == TIME and op.form == PATTERN:
                self.fixed_room += TIME_ROOM * op.size
            self.keys += op.field == KEY
            self.values += op.field == VALUE
            self.topics += op.field == TOPIC
            if op.field == COLUMN:
                op.number = int(text)
                self.typed += 1
            if op.field == HEADERS:
                self.headers += 1
                self.header_room = max(self.header_room, HEADER_ROOM + op.null_size)

    def __dealloc__(self):
        free(self.operations)
        free(self.plan)
        free(self.constants)
        free(self.buffer)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.buffer, self.used, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1

    def __len__(self):
        return self.used

    def __repr__(self):
        return f"<TextWriter {self.count} operations, {self.records} records>"

    @property
    def bad(self):
        """The row, the column and the byte of what was not of its kind, where `write` stopped."""
        if self.status != BAD_VALUE:
            return None
        return self.bad_row, "key" if self.is_key_bad else "value", self.escapes.bad_byte

    def clear(self):
        """Forget the text: it is written. No view of it may be left."""
        cdef char* smaller
        if self.exports:
            raise BufferError("the text is still in use")
        self.used = 0
        if self.capacity > self.block_bytes:
            smaller = <char*> realloc(self.buffer, self.block_bytes)
            if smaller is not NULL:
                self.buffer = smaller
                self.capacity = self.block_bytes

    def write(self, RecordIndex index not None, bytes topic not None, int partition,
              Py_ssize_t start, Py_ssize_t stop, Py_ssize_t most=-1, *,
              list columns=None, Py_ssize_t first=0, const uint8_t[::1] left_out=None):
        """Write the rows from ``start`` to ``stop``, at most ``most``; return the next row.

        That is before ``stop`` when the buffer is full (empty it and call again), when there were
        enough, and at a row that is ``bad`` under ``on_error="fail"``. ``columns`` are the texts of
        typed columns, whose first row is row ``first``; of those rows the ones that ``left_out``
        marks are skipped.
        """
        cdef Py_ssize_t row
        if self.exports:
            raise BufferError("the text is still in use")
        if not 0 <= start <= stop <= index.columns.n:
            raise ValueError(f"rows {start} to {stop} of {index.columns.n}")
        self.take_typed(columns, start - first, stop - first)
        self.left_out = NULL
        if left_out is not None:
            if start < first or left_out.shape[0] < stop - first:
                raise ValueError(f"{left_out.shape[0]} marks for rows {start} to {stop}")
            if left_out.shape[0]:
                self.left_out = &left_out[0]
        self.first = first
        self.columns = &index.columns
        self.data = <const uint8_t*> index.data.ptr
        self.size = index.data.size
        self.topic, self.topic_size = topic, len(topic)
        self.partition = partition
        self.leader_epoch = index.leader_epoch
        self.uniform_type = index.uniform_type
        self.status = GOOD
        self.escapes.has_no_memory = False
        self.make_plan()
        with nogil:
            row = self.run(start, stop, most)
        if self.status == NO_MEMORY:
            raise MemoryError(f"no memory for the text of row {row}")
        return row

    cdef int take_typed(self, list columns, Py_ssize_t start, Py_ssize_t stop) except -1:
        """Take the typed columns that operations write, which have all rows, for one call."""
        cdef Py_ssize_t n
        cdef Operation* op
        cdef ColumnTexts texts
        for n in range(self.count if self.typed else 0):
            op = &self.operations[n]
            if op.field != COLUMN:
                continue
            if columns is None or op.number >= len(columns):
                raise ValueError(f"there is no column {op.number}")
            texts = columns[op.number]
            if start < 0 or stop > texts.texts.count:
                raise ValueError(f"rows {start} to {stop} of {texts.texts.count}")
            op.texts = &texts.texts
        return 0

    cdef int make_plan(self) except -1:
        """Make one literal of operations beside each other that are the same in all rows."""
        cdef Py_ssize_t room = self.fixed_room + self.topics * GROWTH * self.topic_size
        cdef char* p
        cdef const Operation* op
        cdef Operation* to = NULL
        cdef Py_ssize_t n
        if room > self.constants_room:
            p = <char*> realloc(self.constants, room)
            if p is NULL:
                raise MemoryError
            self.constants, self.constants_room = p, room
        p = self.constants
        self.planned = 0
        for n in range(self.count):
            op = &self.operations[n]
            if op.field != LITERAL and op.field != TOPIC and op.field != PARTITION:
                self.plan[self.planned] = op[0]
                self.planned += 1
                to = NULL
                continue
            if to is NULL:
                to = &self.plan[self.planned]
                self.planned += 1
                to.field, to.text = LITERAL, p
            if op.field == LITERAL:
                p = put_bytes(p, op.text, op.size)
            elif op.field == PARTITION:
                p = put_int(p, self.partition)
            else:
                p = put_styled(
                    &self.escapes, p, <const uint8_t*> self.topic, self.topic_size,
                    self.topic_size, op.style, SHOW_BYTES)
            to.size = p - to.text
        return 0

    cdef Py_ssize_t run(self, Py_ssize_t row, Py_ssize_t stop, Py_ssize_t most) noexcept nogil:
        cdef Py_ssize_t room
        cdef char* p
        while row < stop and most != 0:
            room = self.room_of(row)
            if self.used + room > self.capacity:
                if self.used:
                    break
                if not self.grow(room):
                    self.status = NO_MEMORY
                    break
            if self.left_out is not NULL and self.left_out[row - self.first]:
                self.skipped += 1
                row += 1
                continue
            p = self.put_row(self.buffer + self.used, row)
            if p is NULL:
                if self.status != BAD_VALUE or self.policy != SKIP:
                    break
                self.status = GOOD
                self.skipped += 1
            else:
                self.used = p - self.buffer
                self.records += 1
                most -= 1
            row += 1
        return row

    cdef bint grow(self, Py_ssize_t room) noexcept nogil:
        cdef char* larger = <char*> realloc(self.buffer, room)
        if larger is NULL:
            return False
        self.buffer = larger
        self.capacity = room
        return True

    cdef Py_ssize_t room_of(self, Py_ssize_t row) noexcept nogil:
        """Return how many bytes a row takes at most, with what is written on the way."""
        cdef Py_ssize_t room = self.fixed_room + self.topics * GROWTH * self.topic_size
        if self.columns.key_lengths[row] > 0:
            room += self.keys * (GROWTH + 1) * <Py_ssize_t> self.columns.key_lengths[row]
        if self.columns.value_lengths[row] > 0:
            room += self.values * (GROWTH + 1) * <Py_ssize_t> self.columns.value_lengths[row]
        if self.headers:
            room += 3 * self.headers * self.headers_size(row)
        if self.typed:
            room += self.typed_size(row - self.first)
        return room

    cdef Py_ssize_t typed_size(self, Py_ssize_t row) noexcept nogil:
        """Return how many bytes the typed columns of a row take at most."""
        cdef Py_ssize_t n, size = 0
        for n in range(self.planned):
            if self.plan[n].field == COLUMN:
                size += GROWTH * max(0, self.plan[n].texts.lengths[row])
        return size

    cdef int32_t header_count(self, Py_ssize_t row) noexcept nogil:
        return 0 if self.columns.header_counts is NULL else self.columns.header_counts[row]

    cdef Headers headers_of(self, Py_ssize_t row) noexcept nogil:
        cdef Headers headers
        cdef Py_ssize_t start
        headers.count = self.header_count(row)
        headers.text, headers.size = NULL, 0
        if headers.count:
            start = self.columns.header_starts[row]
            headers.text, headers.size = <const char*> self.data + start, self.size - start
        return headers

    cdef Py_ssize_t headers_size(self, Py_ssize_t row) noexcept nogil:
        cdef Headers headers = self.headers_of(row)
        return headers_room(&headers, self.header_room)

    # --- one row ----------------------------------------------------------------------------------

    cdef char* put_row(self, char* p, Py_ssize_t row) noexcept nogil:
        """Return the end of the row's text; NULL with a status that is not GOOD."""
        cdef char* begin = p
        cdef Headers headers
        cdef const Operation* op = self.plan
        cdef const Operation* end = op + self.planned
        while op < end:
            if op.field == LITERAL:
                p = put_bytes(p, op.text, op.size)
            elif op.field == SEPARATOR:
                if self.records:
                    p = put_bytes(p, op.text, op.size)
                else:
                    p = put_bytes(p, op.null, op.null_size)
            elif op.field == OFFSET:
                p = put_int(p, self.columns.offsets[row])
            elif op.field == LEADER_EPOCH:
                if self.leader_epoch < 0:
                    p = put_bytes(p, op.null, op.null_size)
                else:
                    p = put_int(p, self.leader_epoch)
            elif op.field == TIME:
                p = self.put_time(p, op, self.columns.timestamps[row])
            elif op.field == TIME_TYPE:
                p = self.put_time_type(p, op, row)
            elif op.field == KEY:
                p = self.put_value(
                    p, op, row, self.columns.key_starts[row], self.columns.key_lengths[row])
            elif op.field == VALUE:
                p = self.put_value(
                    p, op, row, self.columns.value_starts[row], self.columns.value_lengths[row])
            elif op.field == COLUMN:
                p = self.put_typed(p, op, row - self.first)
            elif op.field == HEADERS:
                headers = self.headers_of(row)
                p = put_headers(
                    &self.escapes, p, &headers, op.form, op.style, op.null, op.null_size,
                    headers_room(&headers, self.header_room))
            elif op.field == KEY_LENGTH:
                p = put_int(p, self.columns.key_lengths[row])
            elif op.field == VALUE_LENGTH:
                p = put_int(p, self.columns.value_lengths[row])
            elif op.field == HEADER_COUNT:
                p = put_int(p, self.header_count(row))
            else:
                p = put_bytes(cut_line(begin, p, self.line_width), op.text, op.size)
            if p is NULL:
                return NULL
            op += 1
        return p

    # --- times ------------------------------------------------------------------------------------

    cdef char* put_time(self, char* p, const Operation* op, int64_t ms) noexcept nogil:
        cdef Moment moment
        cdef int64_t second
        cdef char* end
        if ms == NO_TIME:
            return put_bytes(p, op.null, op.null_size)
        if op.form == MS:
            return put_int(p, ms)
        second = floor_division(ms, 1000)
        if op.form == SECONDS:
            return put_int(p, second)
        if op.form == PATTERN:
            moment_of(&moment, ms)
            return put_time_pattern(p, &moment, ms, op.text, op.size)
        if op.form == OF_DAY:
            moment_of(&moment, ms)
            p = put_time_of_day(p, &moment)
            p[0] = c'.'
            return put_padded(p + 1, moment.ms, 3)
        if not self.has_second or self.second != second:
            moment_of(&moment, ms)
            end = put_day(self.second_text, &moment)
            end[0] = c'T'
            end = put_time_of_day(end + 1, &moment)
            end[0] = c'.'
            self.second_size = end + 1 - self.second_text
            self.second = second
            self.has_second = True
        if op.style == JSON:
            p[0] = c'"'
            p += 1
        p = put_bytes(p, self.second_text, self.second_size)
        p = put_padded(p, ms - second * 1000, 3)
        p[0] = c'Z'
        p[1] = c'"'
        return p + (2 if op.style == JSON else 1)

    cdef char* put_time_type(self, char* p, const Operation* op, Py_ssize_t row) noexcept nogil:
        cdef int kind = self.uniform_type
        if self.columns.timestamp_types is not NULL:
            kind = self.columns.timestamp_types[row]
        if kind == 0:
            return put_ascii(&self.escapes, p, op.style, b"CreateTime", 10)
        if kind == 1:
            return put_ascii(&self.escapes, p, op.style, b"LogAppendTime", 13)
        return put_bytes(p, op.null, op.null_size)

    # --- keys and values --------------------------------------------------------------------------

    cdef char* put_value(
        self, char* p, const Operation* op, Py_ssize_t row, int32_t start, int32_t length
    ) noexcept nogil:
        cdef char* end
        if length < 0:
            return put_bytes(p, op.null, op.null_size)
        # The start of an empty value is undefined.
        if length == 0:
            start = 0
        end = put_kind(
            &self.escapes, p, op.form, op.style, self.data + start, length, self.size - start)
        if end is not NULL:
            return end
        if self.escapes.has_no_memory:
            self.status = NO_MEMORY
            return NULL
        if self.policy == AS_NULL:
            self.nulled += 1
            return put_bytes(p, op.null, op.null_size)
        self.status = BAD_VALUE
        self.bad_row = row
        self.is_key_bad = op.field == KEY
        return NULL

    cdef char* put_typed(self, char* p, const Operation* op, Py_ssize_t row) noexcept nogil:
        cdef const Texts* texts = op.texts
        cdef Py_ssize_t size = texts.lengths[row]
        cdef const uint8_t* text = <const uint8_t*> texts.text + texts.starts[row]
        cdef Py_ssize_t readable = texts.size - texts.starts[row]
        if size < 0:
            return put_bytes(p, op.null, op.null_size)
        if op.form == JSON_VALUE:
            return put_made_json(&self.escapes, p, op.style, text, size, readable)
        return put_styled(&self.escapes, p, text, size, readable, op.style, SHOW_BYTES)
