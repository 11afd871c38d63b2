"""What builders have made as the buffers of columns: memory handed over, flags packed into bitmaps.

See ``builders.pyx`` for the result.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kfast._native.buffers cimport OwnedBuffer, adopt_block, give_slack_back, new_buffer
from kfast._native.builders cimport (
    BYTES,
    DATA,
    DICTIONARY,
    FIXED,
    LIST,
    OFFSETS,
    Builder,
    ColumnBuilders,
)
from kfast._native.endian cimport load_le64
from kfast._native.text_table cimport TextTable


cdef inline tuple finish_node(ColumnBuilders b, int32_t node):
    cdef Builder* n = &b.nodes[node]
    cdef int64_t length = n.length
    cdef int32_t child = n.first_child
    cdef list children = []
    cdef int64_t expected
    cdef OwnedBuffer validity = None
    cdef OwnedBuffer data = None
    cdef OwnedBuffer offsets = None
    if n.nulls:
        validity = packed_bits(n.validity, length)
    expected = n.offsets[length] if n.storage == LIST else length
    while child >= 0:
        if b.nodes[child].length != expected:
            raise SystemError(
                f"node {child} has {b.nodes[child].length} values, not {expected}: "
                "the decoder has left one out")
        children.append(finish_node(b, child))
        child = b.nodes[child].next_sibling
    if n.storage == FIXED or n.storage == DICTIONARY:
        data = take_over(&n.data, n.capacities[DATA], length * n.width)
    elif n.storage == BYTES:
        data = take_over(&n.data, n.capacities[DATA], n.used)
    if n.offsets is not NULL:
        offsets = take_over(<char**> &n.offsets, n.capacities[OFFSETS], (length + 1) * 4)
    dictionary = None if n.texts is NULL else finish_texts(n.texts)
    return n.storage, length, n.nulls, validity, data, offsets, dictionary, tuple(children)


cdef inline OwnedBuffer take_over(char** block, int64_t capacity, int64_t size):
    """Make a block an OwnedBuffer and give back what is not used of it."""
    cdef OwnedBuffer buffer = adopt_block(block[0], capacity)
    block[0] = NULL
    buffer.size = size
    give_slack_back(buffer, size + (size >> 2))
    return buffer


cdef inline tuple finish_texts(const TextTable* table):
    cdef int32_t nothing = 0
    cdef const int32_t* offsets = table.offsets if table.count else &nothing
    return (
        table.count,
        copied(offsets, (table.count + 1) * 4),
        copied(table.text, offsets[table.count]),
    )


cdef inline OwnedBuffer copied(const void* data, int64_t size):
    cdef OwnedBuffer made = new_buffer(size)
    made.size = size
    if size:
        memcpy(made.ptr, data, size)
    return made


cdef inline OwnedBuffer packed_bits(const uint8_t* flags, int64_t count):
    """Make a bitmap of bytes that are 0 or 1."""
    cdef OwnedBuffer bitmap = new_buffer((count + 7) // 8)
    cdef uint8_t* bits = <uint8_t*> bitmap.ptr
    cdef int64_t at = 0
    bitmap.size = (count + 7) // 8
    with nogil:
        # The product moves bit 0 of byte k to bit 56 + k, and no two meet.
        while at + 8 <= count:
            bits[at >> 3] = <uint8_t> (
                (load_le64(flags + at) * <uint64_t> 0x0102040810204080) >> 56)
            at += 8
        if at < count:
            bits[at >> 3] = 0
            while at < count:
                bits[at >> 3] |= <uint8_t> (flags[at] << (at & 7))
                at += 1
    return bitmap
