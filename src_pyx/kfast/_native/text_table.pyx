"""Tables of texts: the dictionary of a column, each text once, found by its hash.

Owns: the texts one after the other with int32 offsets, and an open-addressing table of their
numbers. The hash has a seed of the process, so that no producer can write texts that all collide.

Threads: no GIL; one at a time per table.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from kfast._native.buffers cimport release_block, resized_block
from kfast._native.byte_hash cimport hash_bytes


cdef enum:
    FIRST_ROOM = 16
    FIRST_SLOTS = 64

# Where an object is changes with each process, also where Python's hashes do not.
cdef uint64_t hash_seed = <uint64_t> <int64_t> hash("texts of a column") ^ <uint64_t> id(object())


cdef int32_t slot_of(const TextTable* table, const char* text, int64_t n) noexcept nogil:
    """Return the slot of the text, or the free one where it belongs; one is free."""
    cdef uint64_t last = <uint64_t> (table.slot_count - 1)
    cdef uint64_t slot = hash_bytes(text, n, hash_seed) & last
    cdef int32_t index, start
    while True:
        index = table.slots[slot]
        if index < 0:
            return <int32_t> slot
        start = table.offsets[index]
        if table.offsets[index + 1] - start == n and (
                n == 0 or memcmp(table.text + start, text, n) == 0):
            return <int32_t> slot
        slot = (slot + 1) & last


cdef int32_t find_text(const TextTable* table, const char* text, int64_t n) noexcept nogil:
    return table.slots[slot_of(table, text, n)] if table.slot_count else -1


cdef bint put_text(TextTable* table, const char* text, int64_t n) noexcept nogil:
    cdef int64_t used = table.offsets[table.count] if table.count else 0
    cdef int32_t slot
    if not make_room(table, used, used + n):
        return False
    if 2 * (table.count + 1) > table.slot_count and not grow_slots(table):
        return False
    slot = slot_of(table, text, n)
    if table.slots[slot] < 0:
        table.slots[slot] = table.count
    if n:
        memcpy(table.text + used, text, n)
    table.count += 1
    table.offsets[table.count] = <int32_t> (used + n)
    return True


cdef bint make_room(TextTable* table, int64_t used, int64_t needed) noexcept nogil:
    """Make room for one more offset, and ``needed`` bytes of text."""
    cdef Py_ssize_t capacity = table.offsets_capacity
    cdef char* block
    if (table.count + 2) * 4 > capacity:
        block = resized_block(
            <char*> table.offsets, (table.count + 1) * 4 if capacity else 0, &capacity,
            capacity + (capacity >> 1) + FIRST_ROOM * 4)
        if block is NULL:
            return False
        table.offsets = <int32_t*> block
        table.offsets[0] = 0
        table.memory_bytes += capacity - table.offsets_capacity
        table.offsets_capacity = capacity
    capacity = table.text_capacity
    if table.text is NULL or needed > capacity:
        if needed < capacity + (capacity >> 1):
            needed = capacity + (capacity >> 1)
        block = resized_block(table.text, used, &capacity, needed)
        if block is NULL:
            return False
        table.text = block
        table.memory_bytes += capacity - table.text_capacity
        table.text_capacity = capacity
    return True


cdef bint grow_slots(TextTable* table) noexcept nogil:
    cdef int32_t count = table.slot_count * 2 if table.slot_count else FIRST_SLOTS
    cdef int32_t* slots = <int32_t*> malloc(<size_t> count * 4)
    cdef int32_t index, slot
    if slots is NULL:
        return False
    memset(slots, 0xFF, <size_t> count * 4)
    free(table.slots)
    table.memory_bytes += (count - table.slot_count) * 4
    table.slots = slots
    table.slot_count = count
    for index in range(table.count):
        slot = slot_of(
            table, table.text + table.offsets[index],
            table.offsets[index + 1] - table.offsets[index])
        if slots[slot] < 0:
            slots[slot] = index
    return True


cdef void forget_texts(TextTable* table) noexcept nogil:
    # From the last one on: so no text that stays was placed behind one that goes, and the slot can
    # simply be freed.
    cdef int32_t slot, start
    while table.count > table.mark:
        start = table.offsets[table.count - 1]
        slot = slot_of(table, table.text + start, table.offsets[table.count] - start)
        table.count -= 1
        if table.slots[slot] == table.count:
            table.slots[slot] = -1


cdef void drop_table(TextTable* table) noexcept nogil:
    if table.offsets is not NULL:
        release_block(<char*> table.offsets, table.offsets_capacity)
    if table.text is not NULL:
        release_block(table.text, table.text_capacity)
    free(table.slots)
    memset(table, 0, sizeof(TextTable))
