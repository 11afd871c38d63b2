"""Keys of JSON objects: the order that is expected, and members looked up by their keys.

See ``json_decode.pyx`` for the rules.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from kfast._native.built cimport copied
from kfast._native.endian cimport load_le64
from kfast._native.json_scan cimport (
    PATTERN_BYTES, after_space, begins_with, fail_syntax, lowest_bit, scan16,
)
from kfast._native.json_state cimport *
from kfast._native.json_values cimport read_text
from kfast._native.kinds cimport KIND_STRUCT


cdef enum:
    MOST_MISSES = 4     # objects, after which no order is expected
    UNORDERED = 64      # objects, until one is looked for again
    EXPECTED_KEYS = 64  # besides the members


cdef inline uint64_t first_bytes(const char* text, int64_t size) noexcept nogil:
    """Up to 8 bytes as a number; 8 are readable."""
    cdef uint64_t word = load_le64(text)
    return word if size >= 8 else word & (((<uint64_t> 1) << (8 * size)) - 1)


cdef inline uint64_t key_hash(const char* key, int64_t size, uint64_t word) noexcept nogil:
    """Of a member's key: only the schema's keys are in a table, so no data can make it slow."""
    cdef uint64_t mixed = (word ^ <uint64_t> size) * <uint64_t> 0x9E3779B97F4A7C15
    if size > 8:
        mixed ^= load_le64(key + size - 8) * <uint64_t> 0xC2B2AE3D27D4EB4F
    return mixed ^ mixed >> 32


cdef inline int32_t find_member(
        const State* s, const ObjectKeys* keys, const char* key, int64_t size) noexcept nogil:
    """The number of a key's member, or -1. 8 bytes of the key are readable."""
    cdef uint64_t word = first_bytes(key, size)
    cdef int32_t at = <int32_t> (key_hash(key, size, word) & <uint64_t> keys.mask)
    cdef int32_t number
    cdef const Member* member
    while True:
        number = keys.table[at]
        if number < 0:
            return -1
        if keys.words[number] == word:
            member = s.members + keys.first + number
            if member.size == size and (
                    size <= 8 or memcmp(s.keys + member.key + 8, key + 8, size - 8) == 0):
                return number
        at = (at + 1) & keys.mask


cdef inline bint is_key(const char* p, const ExpectedKey* expected) noexcept nogil:
    return begins_with(p, expected.pattern, expected.size, expected.mask)


cdef inline void note_order(ObjectKeys* keys, bint has_missed) noexcept nogil:
    """Decide after an object what is expected of the next one."""
    if keys.unordered > 0:
        keys.unordered -= 1
        keys.is_learning = keys.unordered == 0
    elif keys.is_learning or not has_missed:
        keys.is_learning = False
        if not has_missed:
            keys.misses = 0
    else:
        keys.misses += 1
        keys.is_learning = keys.misses < MOST_MISSES
        if not keys.is_learning:
            keys.misses = 0
            keys.unordered = UNORDERED


cdef inline void note_unknown(
        State* s, const ObjectKeys* keys, const char* key, int64_t size) noexcept nogil:
    """Keep the name of a field without a column, if it is one of the first. A name that is expected
    came by here before it was."""
    cdef int32_t node = s.ops[keys - s.objects].node
    cdef int32_t kept = <int32_t> min(size, <int64_t> UNKNOWN_BYTES)
    cdef int32_t i
    cdef UnknownName* name
    for i in range(s.name_count):
        name = &s.names[i]
        if name.node == node and name.size == kept and memcmp(name.text, key, kept) == 0:
            return
    name = &s.names[s.name_count]
    name.node = node
    name.size = kept
    memcpy(name.text, key, kept)
    s.name_count += 1


cdef inline bint count_unknown(State* s, Py_ssize_t row, Py_ssize_t rows) noexcept nogil:
    """Store how many fields of a row have no column; False without memory."""
    if s.unknown_counts is NULL:
        s.unknown_counts = <int32_t*> calloc(rows, 4)
        if s.unknown_counts is NULL:
            return False
    s.unknown_counts[row] = s.unknown
    return True


cdef inline tuple unknown_fields(const State* s, Py_ssize_t rows):
    """Return the number of fields without a column of each row, and the first names with the nodes
    of their structs; None without any."""
    cdef int32_t i
    if s.unknown_counts is NULL:
        return None
    names = [
        (s.names[i].node, s.names[i].text[:s.names[i].size]) for i in range(s.name_count)
    ]
    return copied(s.unknown_counts, rows * 4), names


cdef inline const char* unexpected_key(
        State* s, ObjectKeys* keys, const char* p, const ExpectedKey** next_key,
        const Op** op) noexcept nogil:
    """Read a key that is not the expected one, with its colon; learn it, or find its place. The
    operation of its member is NULL if it is not wanted."""
    cdef const char* start = p
    cdef const char* key
    cdef int64_t size
    cdef int32_t member
    cdef uint32_t stops, high
    cdef ExpectedKey* expected
    if p >= s.c.end or p[0] != c'"':
        return fail_syntax(&s.c, p)
    key = p + 1
    stops = scan16(key, &high)
    size = lowest_bit(stops | 1 << 16)
    if size < 16 and high == 0 and key[size] == c'"' and key + size < s.c.end:
        p = key + size + 1
    else:
        p = read_text(s, key, &key, &size)
        if p is NULL:
            return NULL
    member = find_member(s, keys, key, size)
    op[0] = s.ops + s.members[keys.first + member].op if member >= 0 else NULL
    if member < 0 and s.name_count < MOST_UNKNOWN:
        note_unknown(s, keys, key, size)
    if p < s.c.end and p[0] == c':':
        p += 1
    else:
        p = after_space(&s.c, p)
        if p >= s.c.end or p[0] != c':':
            return fail_syntax(&s.c, p)
        p += 1
        start = NULL  # with a space in it the block is not worth expecting
    if not keys.is_learning:
        if keys.unordered == 0 and member >= 0 and keys.places[member] >= 0:
            next_key[0] = keys.expected + keys.places[member] + 1
    elif start is not NULL and keys.known < keys.room and p - start <= PATTERN_BYTES:
        expected = keys.expected + keys.known
        expected.size = <int32_t> (p - start)
        expected.mask = <uint32_t> ((<uint64_t> 1 << expected.size) - 1)
        expected.op = op[0]
        memcpy(expected.pattern, start, p - start)
        if member >= 0:
            keys.places[member] = keys.known
        keys.known += 1
    return p


cdef inline int set_up_objects(State* s) except -1:
    """Make the tables of keys; `free_objects` gives them back."""
    cdef int32_t i, j, at, room
    cdef ObjectKeys* keys
    cdef const Op* op
    cdef const Member* member
    s.objects = <ObjectKeys*> calloc(s.op_count, sizeof(ObjectKeys))
    if s.objects is NULL:
        raise MemoryError()
    for i in range(s.op_count):
        op = s.ops + i
        if op.kind != KIND_STRUCT and op.kind != PATH_OBJECT:
            continue
        keys = s.objects + i
        keys.first = op.first
        keys.count = op.count
        keys.is_learning = True
        keys.room = op.count + EXPECTED_KEYS
        room = 4
        while room < 2 * op.count:
            room *= 2
        keys.mask = room - 1
        # Three entries more: they are looked at together.
        keys.expected = <ExpectedKey*> calloc(keys.room + 3, sizeof(ExpectedKey))
        keys.places = <int32_t*> malloc(op.count * 4)
        keys.table = <int32_t*> malloc(room * 4)
        keys.words = <uint64_t*> malloc(op.count * 8)
        if (keys.expected is NULL or keys.places is NULL or keys.table is NULL
                or keys.words is NULL):
            raise MemoryError()
        memset(keys.places, 0xFF, op.count * 4)
        memset(keys.table, 0xFF, room * 4)
        for j in range(op.count):
            member = s.members + op.first + j
            keys.words[j] = first_bytes(s.keys + member.key, member.size)
            at = <int32_t> (
                key_hash(s.keys + member.key, member.size, keys.words[j]) & <uint64_t> keys.mask)
            while keys.table[at] >= 0:
                at = (at + 1) & keys.mask
            keys.table[at] = j
    return 0


cdef inline void free_objects(State* s) noexcept:
    cdef int32_t i
    if s.objects is not NULL:
        for i in range(s.op_count):
            free(s.objects[i].expected)
            free(s.objects[i].places)
            free(s.objects[i].table)
            free(s.objects[i].words)
        free(s.objects)
