"""Keys of JSON objects: members looked up by their keys.

See ``json_decode.pyx`` for the rules.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kfast._native.endian cimport load_le64
from kfast._native.json_scan cimport (
    PATTERN_BYTES, after_space, fail_syntax, lowest_bit, scan16,
)
from kfast._native.json_state cimport *
from kfast._native.json_values cimport read_text


cdef enum:
    MOST_MISSES = 4     # objects, after which no order is expected
    UNORDERED = 64      # objects, until one is looked for again


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


cdef inline const char* unexpected_key(
        State* s, ObjectKeys* keys, const char* p, int32_t* next_key,
        int32_t* member) noexcept nogil:
    """Read a key that is not the expected one, with its colon; learn it, or find its place."""
    cdef const char* start = p
    cdef const char* key
    cdef int64_t size
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
    member[0] = find_member(s, keys, key, size)
    if p < s.c.end and p[0] == c':':
        p += 1
    else:
        p = after_space(&s.c, p)
        if p >= s.c.end or p[0] != c':':
            return fail_syntax(&s.c, p)
        p += 1
        start = NULL  # with a space in it the block is not worth expecting
    if not keys.is_learning:
        if keys.unordered == 0 and member[0] >= 0 and keys.places[member[0]] >= 0:
            next_key[0] = keys.places[member[0]] + 1
    elif start is not NULL and keys.known < keys.room and p - start <= PATTERN_BYTES:
        expected = keys.expected + keys.known
        expected.size = <int32_t> (p - start)
        expected.member = member[0]
        memcpy(expected.pattern, start, p - start)
        if member[0] >= 0:
            keys.places[member[0]] = keys.known
        keys.known += 1
    return p
