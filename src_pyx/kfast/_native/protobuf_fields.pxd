"""State of Protobuf decoding: fields of a plan, open messages, and values of one node.

The rules are in ``protobuf_decode.pyx``, the plan in ``kfast/schemas/protobuf_plan.py``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset

from kfast._native.builders cimport (
    BYTES,
    TRUNCATED,
    Builder,
    ColumnBuilders,
    append_byte,
    append_bytes,
    append_half_word,
    append_null,
    append_text_index,
    append_word,
    bytes_room,
    cut,
    end_bytes,
    fixed_slot,
    grow,
)
from kfast._native.map_keys cimport KeySlots
from kfast._native.protobuf_wire cimport Cursor, read_varint
from kfast._native.value_bytes cimport is_little_endian, load_word, unzigzag


cdef enum:
    MOST_FRAMES = 256
    FIELD_ITEMS = 7
    MESSAGE_ITEMS = 8
    FINISH_ITEMS = 3
    SMALL_TAGS = 128        # tags of one byte
    NUMBER_ITEMS = 7        # of a field number: itself, and a field per wire type
    ENUM_ITEMS = 4          # in front of the indexes of an enum

# The numbers of kfast.schemas.protobuf_plan.
cdef enum FieldCode:
    FIELD_UNKNOWN = 0
    FIELD_MISFIT = 1
    FIELD_OTHER_MEMBER = 2
    FIELD_INT64 = 3
    FIELD_INT32 = 4
    FIELD_SINT64 = 5
    FIELD_SINT32 = 6
    FIELD_BOOL = 7
    FIELD_ENUM = 8
    FIELD_FIXED64 = 9
    FIELD_FIXED32 = 10
    FIELD_STRING = 11
    FIELD_BYTES = 12
    FIELD_MESSAGE = 13
    FIELD_ITEM = 14
    FIELD_ENTRY = 15
    FIELD_WRAPPER = 16
    FIELD_TIMESTAMP = 17
    FIELD_DURATION = 18
    FIELD_RAW = 19
    FIELD_PACKED = 20

cdef enum MessageKind:
    MESSAGE_NESTED = 0      # of the row of the message around it
    MESSAGE_ROW = 1         # a row of its own: a value, an item of a list, an entry of a map
    MESSAGE_WRAPPER = 2

cdef enum FinishCode:
    FINISH_NULL = 0
    FINISH_ZERO = 1
    FINISH_CONSTANT = 2
    FINISH_STRUCT = 3
    FINISH_LIST = 4
    FINISH_MAP = 5
    FINISH_MISSING = 6


# A plan as Python has it: int32, as kfast/schemas/protobuf_plan.py says.
cdef struct FieldItem:
    int32_t code
    int32_t node
    int32_t is_repeated
    int32_t oneof
    int32_t message
    int32_t table
    int32_t item

cdef struct MessageItem:
    int32_t kind
    int32_t node
    int32_t tags
    int32_t numbers
    int32_t number_count
    int32_t short_numbers
    int32_t finish
    int32_t finish_end

cdef struct FinishItem:
    int32_t code
    int32_t node
    int32_t constant


# The same for one call, with pointers. What is done with a field of one wire type:
cdef struct Field:
    Builder* n
    const Message* message  # that it is
    int32_t code
    int32_t node            # its column, of repeated ones the item's; of others the message's
    int32_t is_repeated
    int32_t oneof           # place in the tables of the members' nodes; 0: none
    int32_t table           # ENUM: place of the enum
    int32_t item            # PACKED: code of an item

cdef struct Message:
    Builder* n
    const Finish* finish    # what is done at the end of its row
    const Finish* finish_end
    const int32_t* numbers  # all field numbers in order, with the fields of their wire types
    int32_t number_count
    int32_t short_numbers   # how many of them have tags of one byte
    int32_t kind
    int32_t node            # its struct, the map of an entry, the scalar of a wrapper
    const Field* tags[SMALL_TAGS]

# What a node gets that has no value when its row ends.
cdef struct Finish:
    Builder* n
    int32_t code
    int32_t node
    int32_t constant

cdef struct Plan:
    Field* fields
    Message* messages
    Finish* finishes
    const int32_t* tables
    const char* constants


# A message that is open.
cdef struct Frame:
    const uint8_t* end
    int64_t row             # values that its nodes have when it has none yet
    const Message* message
    int32_t next_number     # of its field numbers, the one that is expected


# Two functions are called by their pointers, which keeps them out of the loop over fields: its
# variables stay in registers.
ctypedef int (*FinishRow)(
    ColumnBuilders b, const Plan* plan, Run* run, const Message* message,
    int64_t row) noexcept nogil
ctypedef const uint8_t* (*RareField)(
    ColumnBuilders b, const Plan* plan, Run* run, const Field* field, int64_t row,
    const uint8_t* begin, const uint8_t* at, const uint8_t* end, uint64_t tag) noexcept nogil

cdef struct Run:
    Cursor c
    FinishRow finish_row
    RareField rare_field
    int32_t node                # of the error
    bint is_item                # whether that is an item of a list, not yet counted
    int32_t depth               # of the frames in use, less one
    KeySlots known_keys
    Frame frames[MOST_FRAMES]


# ------------------------------------------------------------------------------- values of one node

cdef inline void take_back(Builder* n) noexcept nogil:
    """Drop the last value of a node without children."""
    n.length -= 1
    if n.nulls:
        n.nulls -= n.validity[n.length] == 0
    if n.storage == BYTES:
        n.used = n.offsets[n.length]


cdef inline void clear_members(
        ColumnBuilders b, const Plan* plan, int32_t oneof, int32_t node,
        int64_t row) noexcept nogil:
    """Drop what the other members of a oneof have."""
    cdef const int32_t* member = plan.tables + oneof + 1
    cdef const int32_t* end = member + plan.tables[oneof]
    while member < end:
        if member[0] != node and b.nodes[member[0]].length > row:
            cut(b, member[0], row)
        member += 1


cdef inline void prepare(
        ColumnBuilders b, const Plan* plan, const Field* field, int64_t row) noexcept nogil:
    """Make a node without children ready for a value: the last one wins."""
    if field.n.length != row and not field.is_repeated:
        take_back(field.n)
    if field.oneof:
        clear_members(b, plan, field.oneof, field.node, row)


cdef inline uint32_t load_half_word(const uint8_t* at) noexcept nogil:
    return <uint32_t> at[0] | <uint32_t> at[1] << 8 | (
        <uint32_t> at[2] << 16 | <uint32_t> at[3] << 24)


cdef inline int append_zero(ColumnBuilders b, int32_t node) noexcept nogil:
    """Append zero, a text without bytes, or the first name of an enum."""
    cdef Builder* n = &b.nodes[node]
    cdef char* slot
    if n.storage == BYTES:
        return append_bytes(b, node, NULL, 0)
    slot = fixed_slot(b, node)
    if slot is NULL:
        return b.failure
    if n.width == 8:
        memset(slot, 0, 8)
    else:
        memset(slot, 0, n.width)
    return 0


cdef inline int32_t enum_index(const int32_t* table, int32_t number) noexcept nogil:
    """Return the index of the name of a number, -1 without one.

    The table: the lowest number, how many indexes follow, how many pairs of number and index follow
    them in order, and whether the enum is closed.
    """
    cdef uint32_t place = <uint32_t> number - <uint32_t> table[0]
    cdef const int32_t* pairs
    cdef int32_t low = 0
    cdef int32_t high = table[2]
    cdef int32_t middle
    if place < <uint32_t> table[1]:
        return table[ENUM_ITEMS + place]
    pairs = table + ENUM_ITEMS + table[1]
    while low < high:
        middle = (low + high) // 2
        if pairs[2 * middle] < number:
            low = middle + 1
        else:
            high = middle
    return pairs[2 * low + 1] if low < table[2] and pairs[2 * low] == number else -1


cdef inline int append_digits(ColumnBuilders b, int32_t node, int32_t number) noexcept nogil:
    cdef char text[16]
    cdef int size = snprintf(text, 16, "%d", number)
    return append_text_index(b, node, text, size)


cdef inline int append_raw(
        ColumnBuilders b, int32_t node, const uint8_t* at, int64_t size,
        bint goes_on) noexcept nogil:
    """Append the bytes of a message; what goes on with the last one is appended to it."""
    cdef Builder* n = &b.nodes[node]
    cdef char* room = bytes_room(b, n, size)
    if room is NULL:
        return b.failure
    if size:
        memcpy(room, at, size)
    if goes_on:
        n.length -= 1
    return end_bytes(b, n, size)


# -------------------------------------------------------------------------------------- packed ones

cdef inline int append_words(
        ColumnBuilders b, const Field* field, const uint8_t* at, int64_t size) noexcept nogil:
    """Append numbers of 4 or 8 bytes."""
    cdef Builder* n = field.n
    cdef int64_t left = size // n.width
    cdef int64_t count = 1
    cdef int status = 0
    while left:
        if is_little_endian():
            if n.length == n.room and grow(b, field.node) < 0:
                return b.failure
            count = min(n.room - n.length, left)
            memcpy(n.data + n.length * n.width, at, count * n.width)
            if n.validity is not NULL:
                memset(n.validity + n.length, 1, count)
            n.length += count
        else:
            status = append_word(b, n, load_word(at)) if n.width == 8 else append_half_word(
                b, n, load_half_word(at))
            if status:
                return status
        at += count * n.width
        left -= count
    return 0


cdef inline int append_number(
        ColumnBuilders b, const int32_t* tables, const Field* field, int32_t code,
        uint64_t raw) noexcept nogil:
    """Append what a varint stands for."""
    cdef int32_t number = <int32_t> <uint32_t> raw
    cdef int32_t index
    if code == FIELD_INT64:
        return append_word(b, field.n, raw)
    if code == FIELD_INT32:
        return append_half_word(b, field.n, <uint32_t> raw)
    if code == FIELD_ENUM:
        index = enum_index(tables + field.table, number)
        if index >= 0:
            return append_half_word(b, field.n, index)
        if tables[field.table + 3]:
            return append_null(b, field.node)
        return append_digits(b, field.node, number)
    if code == FIELD_BOOL:
        return append_byte(b, field.n, raw != 0)
    if code == FIELD_SINT64:
        return append_word(b, field.n, <uint64_t> unzigzag(raw))
    return append_half_word(b, field.n, <uint32_t> unzigzag(<uint32_t> raw))


cdef inline int append_packed(
        ColumnBuilders b, const Plan* plan, const Field* field, Run* run, const uint8_t* at,
        const uint8_t* end) noexcept nogil:
    """Append all numbers up to ``end``; 0, or an error, with the bad place in ``run.c.at``."""
    cdef uint64_t raw = 0
    cdef int code = 0
    if field.item == FIELD_FIXED64 or field.item == FIELD_FIXED32:
        run.c.at = end
        if (end - at) % field.n.width:
            return TRUNCATED
        return append_words(b, field, at, end - at)
    while at < end:
        at = read_varint(&run.c, at, end, &raw)
        if at is NULL:
            return run.c.code
        code = append_number(b, plan.tables, field, field.item, raw)
        if code:
            run.c.at = at
            return code
    return 0
