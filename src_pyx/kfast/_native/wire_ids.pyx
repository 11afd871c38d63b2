"""WireIds: the schema of each value of a column, found in the bytes in front of it.

Owns the framings; nothing is known of schemas here. `scan` compares each row with the one before,
so that a column with one schema costs a few nanoseconds per row, and returns *runs*: rows that
follow each other with the same key, payload offset and status.

==================  ===============================================================================
framing             in front of the payload
==================  ===============================================================================
confluent           ``00``, int32 schema id; or nothing, and the id in a record header:
                    ``01`` and 16 bytes of a GUID, or ``00`` and an int32 id. The header counts if
                    there is one; of several the last, as in the Java client
apicurio            ``00``, int64 global id
avro-single-object  ``C3 01``, 8 bytes of the CRC-64-AVRO fingerprint, little-endian
==================  ===============================================================================

Integers are big-endian but for the fingerprint. With message indexes (Protobuf) the path of a
message follows the id, in the same place: zigzag varints, a count and as many indexes; a count of 0
is the path ``[0]``. A value that begins with ``03``, a compression byte and 16 more is AWS Glue's,
which is recognized only.

Keys are ``(kind, value, path)`` in the order of their first row: kind ``"id"`` or ``"global_id"``
with an int, ``"guid"`` with 16 bytes, ``"fingerprint"`` with an int; the path is a tuple of ints,
or None without message indexes.

Must never: read outside of a value or header; use a Python object per row. Memory is bounded by the
number of rows. Threads: any; the scan runs without the GIL.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from kfast._native.buffers cimport OwnedBuffer, new_buffer
from kfast._native.builders cimport EMPTY, MAGIC, SCHEMA, TRUNCATED
from kfast._native.byte_hash cimport hash_bytes
from kfast._native.columns cimport (
    SpanSource,
    SpanTotals,
    Spans,
    open_checked,
    open_spans,
    span_start,
)
from kfast._native.endian cimport load_be32, load_be64, load_le64
from kfast._native.prefetch cimport prefetch_after
from kfast._native.reader cimport (
    ByteReader,
    read_span,
    read_u8,
    read_varint,
    reader_init,
    reader_left,
)


cdef enum:
    MAX_INDEXES = 32
    ID_BYTES = 4
    GLOBAL_ID_BYTES = 8
    GUID_BYTES = 16
    KEY_BYTES = 20              # of a key, in front of its path
    GLUE_BYTES = 18
    CONFLUENT = 0
    APICURIO = 1
    SINGLE_OBJECT = 2
    KIND_ID = 0
    KIND_GUID = 1
    KIND_GLOBAL_ID = 2
    KIND_FINGERPRINT = 3
    FIRST_ROOM = 16

FRAMINGS = {"confluent": CONFLUENT, "apicurio": APICURIO, "avro-single-object": SINGLE_OBJECT}
KINDS = ("id", "guid", "global_id", "fingerprint")
STATUSES = ("value", "null", "empty", "truncated", "magic", "glue", "indexes")

# Errors of rows by status; that of a null row is not looked at.
cdef int32_t[7] CODES = [0, EMPTY, EMPTY, TRUNCATED, MAGIC, MAGIC, SCHEMA]


cdef struct Key:
    uint8_t kind
    uint8_t indexes             # how many; 0: the format has none
    uint8_t nothing[2]          # zeros
    char value[GUID_BYTES]      # zeros behind the bytes that the kind has
    int32_t path[MAX_INDEXES]   # undefined behind the indexes


cdef struct Found:
    int32_t status
    int32_t offset
    Key key


cdef struct KeyTable:
    char* keys
    Py_ssize_t stride           # of a key: without message indexes it has no path
    Py_ssize_t count
    Py_ssize_t room
    int32_t* slots              # numbers of keys, -1 for none; a power of two of them
    Py_ssize_t mask
    uint64_t seed               # of their hash


# ---------------------------------------------------------------------------------------- the table

cdef inline size_t used_bytes(const Key* key) noexcept nogil:
    return KEY_BYTES + 4 * <size_t> key.indexes


cdef inline Key* key_at(const KeyTable* table, Py_ssize_t number) noexcept nogil:
    """Return a key; behind its indexes it must not be read."""
    return <Key*> (table.keys + number * table.stride)


cdef inline int32_t slot_of(const KeyTable* table, const Key* key) noexcept nogil:
    """Return the slot that has the key, or the free one where it belongs."""
    cdef uint64_t made = hash_bytes(<const char*> key, used_bytes(key), table.seed)
    cdef Py_ssize_t slot = <Py_ssize_t> (made & <uint64_t> table.mask)
    while table.slots[slot] >= 0:
        if memcmp(key_at(table, table.slots[slot]), key, used_bytes(key)) == 0:
            break
        slot = (slot + 1) & table.mask
    return <int32_t> slot


cdef bint grow_table(KeyTable* table) noexcept nogil:
    cdef Py_ssize_t room = max(<Py_ssize_t> FIRST_ROOM, 2 * table.room)
    cdef char* keys = <char*> realloc(table.keys, room * table.stride)
    cdef int32_t* slots
    cdef Py_ssize_t number
    if keys is NULL:
        return False
    table.keys = keys
    slots = <int32_t*> malloc(2 * room * sizeof(int32_t))
    if slots is NULL:
        return False
    free(table.slots)
    table.slots = slots
    table.room = room
    table.mask = 2 * room - 1
    memset(slots, 0xFF, 2 * room * sizeof(int32_t))
    for number in range(table.count):
        slots[slot_of(table, key_at(table, number))] = <int32_t> number
    return True


cdef int32_t number_of(KeyTable* table, const Key* key) noexcept nogil:
    """Return the number of a key, a new one if it is new; -1 without memory."""
    cdef int32_t slot
    if table.count == table.room and not grow_table(table):
        return -1
    slot = slot_of(table, key)
    if table.slots[slot] < 0:
        table.slots[slot] = <int32_t> table.count
        memcpy(key_at(table, table.count), key, used_bytes(key))
        table.count += 1
    return table.slots[slot]


# -------------------------------------------------------------------------------------- one framing

cdef inline void clear(Found* found) noexcept nogil:
    """Make it a value without a prefix and a key of zeros."""
    found.status = WIRE_VALUE
    found.offset = 0
    memset(&found.key, 0, KEY_BYTES)


cdef inline bint is_cut(const ByteReader* r) noexcept nogil:
    """Whether a varint goes on behind the last byte."""
    cdef const char* pos = r.pos
    while pos < r.end and (<const uint8_t*> pos)[0] >= 0x80:
        pos += 1
    return pos == r.end and pos - r.pos < 5


cdef bint read_index(ByteReader* r, Found* found, int32_t* index) noexcept nogil:
    """Read a count or an index; False, with the status, if there is none or it is negative."""
    cdef ByteReader before = r[0]
    index[0] = read_varint(r)
    if r.bad:
        # Cut off, or longer than any index.
        found.status = WIRE_TRUNCATED if is_cut(&before) else WIRE_INDEXES
        return False
    if index[0] < 0:
        found.status = WIRE_INDEXES
        return False
    return True


cdef bint read_indexes(ByteReader* r, Found* found) noexcept nogil:
    """Read a path of message indexes; False, with the status, if there is none."""
    cdef int32_t count, at
    if not read_index(r, found, &count):
        return False
    if count > MAX_INDEXES:
        found.status = WIRE_INDEXES
        return False
    found.key.indexes = <uint8_t> max(count, 1)
    found.key.path[0] = 0
    for at in range(count):
        if not read_index(r, found, &found.key.path[at]):
            return False
    return True


cdef void read_prefix(
        const char* value, int32_t length, int framing, bint has_indexes, Found* found
) noexcept nogil:
    """Read what is in front of a payload."""
    cdef ByteReader r
    cdef uint8_t magic
    cdef int size = ID_BYTES
    clear(found)
    if length == 0:
        found.status = WIRE_EMPTY
        return
    reader_init(&r, value, length)
    magic = read_u8(&r)
    if framing == SINGLE_OBJECT:
        found.key.kind = KIND_FINGERPRINT
        size = GLOBAL_ID_BYTES
        if magic != 0xC3 or (length > 1 and read_u8(&r) != 1):
            found.status = WIRE_MAGIC
            return
    elif magic != 0:
        found.status = WIRE_GLUE if is_glue(value, length) else WIRE_MAGIC
        return
    elif framing == APICURIO:
        found.key.kind = KIND_GLOBAL_ID
        size = GLOBAL_ID_BYTES
    if reader_left(&r) < size:
        found.status = WIRE_TRUNCATED
        return
    memcpy(found.key.value, read_span(&r, size), size)
    if has_indexes and not read_indexes(&r, found):
        return
    found.offset = <int32_t> (length - reader_left(&r))


cdef inline bint is_glue(const char* value, int32_t length) noexcept nogil:
    return length >= GLUE_BYTES and value[0] == 3 and (value[1] == 0 or value[1] == 5)


cdef void read_header(
        const char* value, int32_t length, bint has_indexes, Found* found) noexcept nogil:
    """Read the value of a record header with an id; the payload has no prefix then."""
    cdef ByteReader r
    cdef uint8_t magic
    cdef int size
    clear(found)
    found.status = WIRE_MAGIC
    if length == 0:
        return
    reader_init(&r, value, length)
    magic = read_u8(&r)
    if magic > 1:
        return
    size = GUID_BYTES if magic == 1 else ID_BYTES
    if reader_left(&r) < size:
        found.status = WIRE_TRUNCATED
        return
    found.key.kind = KIND_GUID if magic == 1 else KIND_ID
    memcpy(found.key.value, read_span(&r, size), size)
    if has_indexes:
        if reader_left(&r) == 0:
            found.status = WIRE_TRUNCATED
            return
        if not read_indexes(&r, found):
            return
    if reader_left(&r) == 0:
        found.status = WIRE_VALUE


cdef const char* last_header(
        const Spans* headers, Py_ssize_t row, const char* name, Py_ssize_t name_length,
        int32_t* length) noexcept nogil:
    """Return the value of a row's last header of that name; NULL for none, and for a null."""
    cdef ByteReader r
    cdef const char* found = NULL
    cdef const char* key
    cdef const char* value
    cdef int64_t start
    cdef int32_t _i, size, value_size
    if headers.lengths[row] <= 0:
        return NULL
    start = span_start(headers, row)
    if start < 0 or start > headers.size:
        return NULL
    reader_init(&r, headers.data + start, headers.size - start)
    for _i in range(headers.lengths[row]):
        size = read_varint(&r)
        key = read_span(&r, size)
        value_size = read_varint(&r)
        value = NULL
        if value_size != -1:
            value = read_span(&r, value_size)
        if r.bad:
            return NULL
        if size == name_length and memcmp(key, name, name_length) == 0:
            found = value
            length[0] = value_size
    return found


# ---------------------------------------------------------------------------------------- the scan

cdef bint add_row(WireIds self, Py_ssize_t row, int32_t key, const Found* found) noexcept nogil:
    """Add a row to the last run or to a new one; False without memory."""
    cdef WireRun* run
    cdef Py_ssize_t room
    if self.count:
        run = &self.runs[self.count - 1]
        if run.key == key and run.offset == found.offset and run.status == found.status:
            run.count += 1
            return True
    if self.count == self.room:
        room = max(<Py_ssize_t> FIRST_ROOM, 2 * self.room)
        run = <WireRun*> realloc(self.runs, room * sizeof(WireRun))
        if run is NULL:
            return False
        self.runs = run
        self.room = room
    run = &self.runs[self.count]
    run.row = row
    run.count = 1
    run.key = key
    run.offset = found.offset
    run.status = found.status
    self.count += 1
    return True


cdef inline bint is_same(const char* one, const char* other, int32_t length) noexcept nogil:
    if length == ID_BYTES + 1:     # nearly always
        return load_be32(one) == load_be32(other) and load_be32(one + 1) == load_be32(other + 1)
    return memcmp(one, other, length) == 0


cdef bint scan_rows(
        WireIds self, KeyTable* table, const Spans* spans, const Spans* headers, const char* name,
        Py_ssize_t name_length, int framing, bint has_indexes) noexcept nogil:
    """Fill the runs; False without memory."""
    cdef const char* before = NULL      # the bytes that the last key was read from
    cdef const char* older = NULL       # those of another prefix of the same size, before them
    cdef int32_t before_length = 0
    cdef bint before_is_header = False
    cdef const char* value
    cdef const char* header
    cdef int32_t length, header_length = 0, key = -1, older_key = -1
    cdef Py_ssize_t row
    cdef Found found
    for row in range(spans.count):
        length = spans.lengths[row]
        prefetch_after(spans, row)
        if length < 0:
            clear(&found)
            found.status = WIRE_NULL
            before = older = NULL
            if not add_row(self, row, -1, &found):
                return False
            continue
        header = NULL
        if headers is not NULL:
            header = last_header(headers, row, name, name_length, &header_length)
        if header is not NULL:
            if (before is not NULL and before_is_header and header_length == before_length
                    and is_same(header, before, before_length)):
                self.runs[self.count - 1].count += 1
                continue
            read_header(header, header_length, has_indexes, &found)
            older = NULL
            before, before_length, before_is_header = header, header_length, True
        else:
            # A start is added to the data pointer only for values that have bytes.
            value = spans.data + span_start(spans, row) if length else NULL
            if (before is not NULL and not before_is_header and length >= before_length
                    and is_same(value, before, before_length)):
                self.runs[self.count - 1].count += 1
                continue
            if older is not NULL and length >= before_length and (
                    is_same(value, older, before_length)):
                before, older, key, older_key = older, before, older_key, key
                found.status, found.offset = WIRE_VALUE, before_length
                if not add_row(self, row, key, &found):
                    return False
                continue
            read_prefix(value, length, framing, has_indexes, &found)
            older, older_key = before, key
            if before_is_header or before_length != found.offset:
                older = NULL
            before, before_length, before_is_header = value, found.offset, False
        key = -1
        if found.status == WIRE_VALUE:
            key = number_of(table, &found.key)
            if key < 0:
                return False
        else:
            before = older = NULL
            found.offset = 0
        if not add_row(self, row, key, &found):
            return False
    return True


cdef tuple key_of(const Key* key):
    cdef object value
    cdef object path = None
    cdef int at
    if key.kind == KIND_GUID:
        value = PyBytes_FromStringAndSize(key.value, GUID_BYTES)
    elif key.kind == KIND_ID:
        value = <int32_t> load_be32(key.value)
    elif key.kind == KIND_GLOBAL_ID:
        value = <int64_t> load_be64(key.value)
    else:
        value = load_le64(key.value)
    if key.indexes:
        path = tuple([key.path[at] for at in range(key.indexes)])
    return KINDS[key.kind], value, path


@cython.final
cdef class WireIds:
    """The runs of a column, made by `scan`; immutable.

    Attributes
    ----------
    count : int
        Number of runs.
    keys : list of tuple
        The distinct keys: kind, value, path.
    """

    def __init__(self):
        raise TypeError("WireIds is made by scan()")

    def __dealloc__(self):
        free(self.runs)

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t number) -> tuple:
        """A run: first row, number of rows, number of the key or -1, payload offset, status."""
        cdef WireRun* run
        if number < 0:
            number += self.count
        if not 0 <= number < self.count:
            raise IndexError("no such run")
        run = &self.runs[number]
        return run.row, run.count, run.key, run.offset, STATUSES[run.status]

    def key_rows(self) -> list:
        """How many rows each key has."""
        cdef list rows = [0] * len(self.keys)
        cdef Py_ssize_t number
        for number in range(self.count):
            if self.runs[number].key >= 0:
                rows[self.runs[number].key] += self.runs[number].count
        return rows

    def row_keys(self) -> OwnedBuffer:
        """The number of the key of each row, -1 without one: int32[n]."""
        cdef Py_ssize_t rows = 0, number, at
        cdef OwnedBuffer made
        cdef int32_t* out
        cdef WireRun* run
        if self.count:
            rows = self.runs[self.count - 1].row + self.runs[self.count - 1].count
        made = new_buffer(4 * rows)
        made.size = 4 * rows
        out = <int32_t*> made.ptr
        with nogil:
            for number in range(self.count):
                run = &self.runs[number]
                for at in range(run.row, run.row + run.count):
                    out[at] = run.key
        return made

    def __repr__(self):
        return f"<WireIds runs={self.count} keys={self.keys}>"


def scan(
    str framing, data, starts, lengths, *, headers=None, bytes header_name=b"",
    bint has_indexes=False,
) -> WireIds:
    """Find the schema of each value.

    ``data``, ``starts``, ``lengths`` are the values as in ``columns.pyx``, ``headers`` data, starts
    and counts of the rows' record headers as in ``headers.pyx``, for ``confluent`` only.
    ``header_name`` is ``__value_schema_id`` or ``__key_schema_id``; with ``has_indexes`` message
    indexes follow the id.
    """
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef SpanSource header_source
    cdef const Spans* header_spans = NULL
    cdef WireIds self = WireIds.__new__(WireIds)
    cdef KeyTable table
    cdef int code = FRAMINGS[framing]
    cdef const char* name = header_name
    cdef Py_ssize_t name_length = len(header_name), number
    cdef bint is_done
    self.keys = []
    if headers is not None and code == CONFLUENT:
        header_data, header_starts, counts = headers
        header_source = open_spans(header_data, header_starts, counts)
        if header_source.spans.count != source.spans.count:
            raise ValueError("values and headers differ in length")
        header_spans = &header_source.spans
    memset(&table, 0, sizeof(KeyTable))
    table.stride = sizeof(Key) if has_indexes else KEY_BYTES
    # Where objects are changes with each process: no producer knows which keys share a slot.
    table.seed = <uint64_t> <void*> self ^ <uint64_t> &table << 24
    try:
        with nogil:
            is_done = scan_rows(
                self, &table, &source.spans, header_spans, name, name_length, code,
                has_indexes and code != SINGLE_OBJECT)
        if not is_done:
            raise MemoryError("no memory for the schema ids of a column")
        for number in range(table.count):
            self.keys.append(key_of(key_at(&table, number)))
    finally:
        free(table.keys)
        free(table.slots)
    return self


def plans_of_rows(WireIds wire not None, const int32_t[::1] key_plans) -> tuple:
    """Return the plan of each row and the offset of its payload, as buffers of int32.

    ``key_plans`` has the plan of each key of ``wire``, or a negated error code; rows without a key
    have the code of their framing, nulls any. One of each stands for all rows that are alike.
    """
    cdef Py_ssize_t rows = 0, number, at
    cdef OwnedBuffer plans, prefixes
    cdef const WireRun* run
    cdef const WireRun* first = NULL
    cdef bint is_same = True
    cdef int32_t plan
    if key_plans.shape[0] < len(wire.keys):
        raise ValueError("one plan per key")
    for number in range(wire.count):
        run = &wire.runs[number]
        rows = run.row + run.count
        if run.key >= 0 and first is NULL:
            first = run
        is_same = is_same and (run.status == WIRE_NULL or (
            run.key >= 0 and run.key == first.key and run.offset == first.offset))
    is_same = is_same and first is not NULL
    rows = 1 if is_same else rows
    plans, prefixes = new_buffer(4 * rows), new_buffer(4 * rows)
    plans.size = prefixes.size = 4 * rows
    with nogil:
        for number in range(wire.count):
            run = first if is_same else &wire.runs[number]
            plan = key_plans[run.key] if run.key >= 0 else -CODES[run.status]
            for at in range(0 if is_same else run.row, 1 if is_same else run.row + run.count):
                (<int32_t*> plans.ptr)[at] = plan
                (<int32_t*> prefixes.ptr)[at] = run.offset
    return plans, prefixes


# ------------------------------------------------------------------------------------- fingerprints

cdef uint64_t[256] CRC_TABLE


cdef void fill_table() noexcept:
    cdef int byte, _i
    cdef uint64_t value
    for byte in range(256):
        value = <uint64_t> byte
        for _i in range(8):
            value = (value >> 1) ^ (<uint64_t> 0xC15D213AA4D7A795 & (0 - (value & 1)))
        CRC_TABLE[byte] = value


fill_table()


def fingerprint(const unsigned char[::1] text not None) -> int:
    """CRC-64-AVRO of bytes: of the parsing canonical form of a schema, its fingerprint."""
    cdef uint64_t value = <uint64_t> 0xC15D213AA4D7A795
    cdef Py_ssize_t at
    for at in range(text.shape[0]):
        value = (value >> 8) ^ CRC_TABLE[(value ^ text[at]) & 0xFF]
    return value
