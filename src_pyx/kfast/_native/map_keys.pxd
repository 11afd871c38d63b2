"""Keys of maps: those that are there again, and dropping the entries of all but the last of each.

The keys of one map are the last values of its node: text, or of a fixed width. What a producer
writes cannot make it slow: the hash has a seed of the call, and entries are moved once.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from kfast._native.builders cimport (
    BUILD_NO_MEMORY,
    BYTES,
    LIST,
    STRUCT,
    Builder,
    ColumnBuilders,
)
from kfast._native.byte_hash cimport hash_bytes


cdef enum:
    FEW_ENTRIES = 12    # of a map, compared with each other


# Memory of the search, kept from map to map; zeros at the begin, and `slots` is freed at the end.
cdef struct KeySlots:
    int32_t* slots
    int64_t room


cdef inline int64_t key_bytes(const Builder* n, int64_t value, const char** key) noexcept nogil:
    """Return the size of a key, and where it is."""
    if n.storage == BYTES:
        key[0] = n.data + n.offsets[value]
        return n.offsets[value + 1] - n.offsets[value]
    key[0] = n.data + value * n.width
    return n.width


cdef inline bint is_same_key(const Builder* n, int64_t one, int64_t other) noexcept nogil:
    cdef const char* a = NULL
    cdef const char* b = NULL
    cdef int64_t size = key_bytes(n, one, &a)
    return size == key_bytes(n, other, &b) and memcmp(a, b, size) == 0


cdef inline int find_repeated(
        KeySlots* known, ColumnBuilders b, int32_t node, int64_t first,
        char* is_dropped) noexcept nogil:
    """Look for keys of the map whose first key is ``first`` that are there again.

    Marks all but the last of each, or without ``is_dropped`` returns 1 for the first one; -1
    without memory.
    """
    cdef const Builder* keys = &b.nodes[node]
    cdef int64_t count = keys.length - first
    cdef int64_t entry, other, size, room = 16
    cdef uint64_t at, seed
    cdef const char* key = NULL
    cdef int32_t* larger
    if is_dropped is NULL and count <= FEW_ENTRIES:
        for entry in range(1, count):
            for other in range(entry):
                if is_same_key(keys, first + entry, first + other):
                    return 1
        return 0
    while room < 2 * count:
        room *= 2
    if room > known.room:
        larger = <int32_t*> realloc(known.slots, room * 4)
        if larger is NULL:
            return -1
        known.slots = larger
        known.room = room
    memset(known.slots, 0xFF, room * 4)
    # An address that changes with each process: who writes keys cannot make them collide.
    seed = <uint64_t> known.slots ^ <uint64_t> b.nodes
    for entry in range(count):
        size = key_bytes(keys, first + entry, &key)
        at = hash_bytes(key, size, seed) & <uint64_t> (room - 1)
        while known.slots[at] >= 0:
            if is_same_key(keys, first + entry, first + known.slots[at]):
                if is_dropped is NULL:
                    return 1
                is_dropped[known.slots[at]] = 1
                break
            at = (at + 1) & <uint64_t> (room - 1)
        known.slots[at] = <int32_t> entry
    return 0


cdef inline int keep_last_of_keys(
        KeySlots* known, ColumnBuilders b, int32_t node, int64_t first) noexcept nogil:
    """Drop the entries of the open map ``node`` whose key is there again; 0 or a code."""
    cdef int32_t keys = b.nodes[node].first_child
    cdef int64_t count = b.nodes[keys].length - first
    cdef int64_t entry = 0
    cdef int64_t kept = 0
    cdef int status = find_repeated(known, b, keys, first, NULL)
    cdef char* is_dropped
    cdef int64_t* runs
    if status == 0:
        return 0
    is_dropped = <char*> calloc(count, 1)
    runs = <int64_t*> malloc(2 * count * sizeof(int64_t))
    if (status < 0 or is_dropped is NULL or runs is NULL
            or find_repeated(known, b, keys, first, is_dropped) < 0):
        status = BUILD_NO_MEMORY
    else:
        # Runs of entries that stay: first one, and the one behind the last.
        while entry < count:
            if is_dropped[entry]:
                entry += 1
                continue
            runs[2 * kept] = first + entry
            while entry < count and not is_dropped[entry]:
                entry += 1
            runs[2 * kept + 1] = first + entry
            kept += 1
        status = keep_runs(b, keys, first, runs, kept)
        if status == 0:
            status = keep_runs(b, b.nodes[keys].next_sibling, first, runs, kept)
    free(is_dropped)
    free(runs)
    if status < 0:
        b.failure = status
    return status


cdef inline int keep_runs(
        ColumnBuilders b, int32_t node, int64_t to, const int64_t* runs,
        int64_t count) noexcept nogil:
    """Move runs of values of a node down to ``to`` and behind it; what is not in them goes."""
    cdef Builder* n = &b.nodes[node]
    cdef int32_t child = n.first_child
    cdef int64_t begin = to
    cdef int64_t run, value, size
    cdef int64_t* inner = NULL
    cdef int status = 0
    if n.nulls:
        for value in range(to, n.length):
            n.nulls -= n.validity[value] == 0
    if n.storage == LIST:
        inner = <int64_t*> malloc(2 * (count + 1) * sizeof(int64_t))
        if inner is NULL:
            return BUILD_NO_MEMORY
        for run in range(2 * count):
            inner[run] = n.offsets[runs[run]]
        while child >= 0 and status == 0:
            status = keep_runs(b, child, n.offsets[begin], inner, count)
            child = b.nodes[child].next_sibling
        free(inner)
    elif n.storage == STRUCT:
        while child >= 0 and status == 0:
            status = keep_runs(b, child, to, runs, count)
            child = b.nodes[child].next_sibling
    if status < 0:
        return status
    if n.storage == BYTES:
        n.used = n.offsets[to]
    for run in range(count):
        size = runs[2 * run + 1] - runs[2 * run]
        if n.validity is not NULL:
            memmove(n.validity + to, n.validity + runs[2 * run], size)
        if n.storage == BYTES or n.storage == LIST:
            if n.storage == BYTES:
                value = n.offsets[runs[2 * run + 1]] - n.offsets[runs[2 * run]]
                memmove(n.data + n.used, n.data + n.offsets[runs[2 * run]], value)
                n.used += value
            move_offsets(n, to, runs[2 * run], size)
        elif n.storage != STRUCT:
            memmove(n.data + to * n.width, n.data + runs[2 * run] * n.width, size * n.width)
        to += size
    n.length = to
    if n.nulls or n.validity is not NULL:
        for value in range(begin, to):
            n.nulls += n.validity[value] == 0
    return 0


cdef inline void move_offsets(
        Builder* n, int64_t to, int64_t begin, int64_t count) noexcept nogil:
    """Let values from ``begin`` on follow what is before ``to``, which is not behind it."""
    cdef int32_t moved = n.offsets[begin] - n.offsets[to]
    cdef int64_t value
    for value in range(count):
        n.offsets[to + value + 1] = n.offsets[begin + value + 1] - moved
