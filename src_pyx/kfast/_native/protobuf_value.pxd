"""Protobuf messages: one value from bytes to builders, without recursion.

The rules are in ``protobuf_decode.pyx``, the plan in ``kfast/schemas/protobuf_plan.py``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfast._native.builders cimport (
    DEPTH,
    ERROR_INDEXES,
    LIST,
    MISSING,
    TRUNCATED,
    TYPE,
    Builder,
    ColumnBuilders,
    append_byte,
    append_constant,
    append_half_word,
    append_null,
    append_struct,
    append_word,
    end_list,
)
from kfast._native.map_keys cimport keep_last_of_keys
from kfast._native.protobuf_fields cimport *
from kfast._native.protobuf_wire cimport (
    check_fields,
    fail,
    read_size,
    read_small,
    read_time,
    read_varint,
    skip_field,
)
from kfast._native.value_bytes cimport copy_text, load_word


cdef inline int finish_row(
        ColumnBuilders b, const Plan* plan, Run* run, const Message* message,
        int64_t row) noexcept nogil:
    """Give each node that has no value of this row the one that it has then, and end its lists."""
    cdef const Finish* finish = message.finish
    cdef const Finish* end = message.finish_end
    cdef Builder* n
    cdef int code = 0
    while finish < end:
        n = finish.n
        # Members of a struct that is null have been padded with it.
        if n.length == row:
            if finish.code == FINISH_LIST:
                code = end_list(b, finish.node)
            elif finish.code == FINISH_NULL:
                code = append_null(b, finish.node)
            elif finish.code == FINISH_ZERO:
                code = append_zero(b, finish.node)
            elif finish.code == FINISH_CONSTANT:
                code = append_constant(b, finish.node, plan.constants, finish.constant)
            elif finish.code == FINISH_STRUCT:
                code = append_struct(b, n)
            elif finish.code == FINISH_MAP:
                if b.nodes[n.first_child].length - n.offsets[row] > 1:
                    code = keep_last_of_keys(
                        &run.known_keys, b, finish.node, n.offsets[row])
                if code == 0:
                    code = end_list(b, finish.node)
            else:
                code = MISSING
            if code:
                run.node = finish.node
                return code
        finish += 1
    return 0


cdef inline const Field* find_field(
        const Plan* plan, const Message* message, uint32_t tag, Frame* frame) noexcept nogil:
    """Return the field of a tag of several bytes; numbers are expected in order."""
    cdef const int32_t* numbers = message.numbers
    cdef int32_t number = <int32_t> (tag >> 3)
    cdef int32_t low = frame.next_number
    cdef int32_t high = message.number_count
    cdef int32_t middle
    if low >= high or numbers[NUMBER_ITEMS * low] != number:
        low = 0
        while low < high:
            middle = (low + high) // 2
            if numbers[NUMBER_ITEMS * middle] < number:
                low = middle + 1
            else:
                high = middle
        if low == message.number_count or numbers[NUMBER_ITEMS * low] != number:
            return plan.fields
    frame.next_number = low + 1
    return plan.fields if tag & 7 > 5 else plan.fields + numbers[NUMBER_ITEMS * low + 1 + (tag & 7)]


cdef inline int32_t list_indexes(ColumnBuilders b, const Run* run, int32_t* indexes) noexcept nogil:
    """Return in how many items of lists the bad place is, and their indexes, outermost first."""
    cdef int32_t known = 0
    cdef int32_t level
    for level in range(run.depth + 1):
        if run.frames[level].message.kind != MESSAGE_NESTED:
            known = add_index(
                b, run.frames[level].message.node, run.frames[level].row, indexes, known)
    if run.is_item:
        known = add_index(b, run.node, b.nodes[run.node].length, indexes, known)
    return known


cdef inline int32_t add_index(
        ColumnBuilders b, int32_t node, int64_t place, int32_t* indexes,
        int32_t known) noexcept nogil:
    """Add the index of a place in a list that is open. Entries of maps are not numbered."""
    cdef const Builder* above
    if b.nodes[node].parent < 0 or known == ERROR_INDEXES:
        return known
    above = &b.nodes[b.nodes[node].parent]
    if above.storage != LIST or above.child_count != 1:
        return known
    indexes[known] = <int32_t> (place - above.offsets[above.length])
    return known + 1


cdef inline const uint8_t* rare_field(
        ColumnBuilders b, const Plan* plan, Run* run, const Field* field, int64_t row,
        const uint8_t* begin, const uint8_t* at, const uint8_t* end,
        uint64_t tag) noexcept nogil:
    """Read a field whose kind is rare; NULL after an error, with code and place in ``run.c``."""
    cdef Builder* n = field.n
    cdef int64_t size = 0
    cdef int64_t time = 0
    cdef uint64_t raw = 0
    cdef int code = 0
    cdef int32_t operation = field.code
    if operation == FIELD_UNKNOWN or operation == FIELD_OTHER_MEMBER:
        at = skip_field(&run.c, begin, at, end, tag)
        if at is not NULL and operation == FIELD_OTHER_MEMBER:
            clear_members(b, plan, field.oneof, -1, row)
        return at
    if operation == FIELD_MISFIT:
        return fail(&run.c, begin, TYPE)
    if operation == FIELD_ENUM or operation == FIELD_SINT64 or operation == FIELD_SINT32:
        at = read_varint(&run.c, at, end, &raw)
        if at is NULL:
            return NULL
        if n.length != row or field.oneof:
            prepare(b, plan, field, row)
        code = append_number(b, plan.tables, field, operation, raw)
        return at if code == 0 else fail(&run.c, begin, code)
    if operation == FIELD_FIXED32:
        if end - at < 4:
            return fail(&run.c, end, TRUNCATED)
        if n.length != row or field.oneof:
            prepare(b, plan, field, row)
        code = append_half_word(b, n, load_half_word(at))
        return at + 4 if code == 0 else fail(&run.c, begin, code)
    at = read_size(&run.c, at, end, &size)
    if at is NULL:
        return NULL
    begin = at
    if operation == FIELD_BYTES:
        if n.length != row or field.oneof:
            prepare(b, plan, field, row)
        code = append_raw(b, field.node, at, size, False)
        at += size
    elif operation == FIELD_PACKED:
        code = append_packed(b, plan, field, run, at, at + size)
        begin = run.c.at
        at += size
    elif operation == FIELD_RAW:
        at = check_fields(&run.c, at, at + size)
        if at is NULL:
            return NULL
        if field.oneof:
            clear_members(b, plan, field.oneof, field.node, row)
        code = append_raw(
            b, field.node, begin, size, n.length != row and not field.is_repeated)
    else:
        # Parts of one moment are merged.
        if n.length != row and not field.is_repeated:
            memcpy(&time, n.data + row * 8, 8)
        at = read_time(&run.c, at, at + size, operation == FIELD_DURATION, &time)
        if at is NULL:
            return NULL
        if n.length != row or field.oneof:
            prepare(b, plan, field, row)
        code = append_word(b, n, <uint64_t> time)
    return at if code == 0 else fail(&run.c, begin, code)


cdef inline int decode_value(
        ColumnBuilders b, const Plan* plan, Run* run, const uint8_t* at,
        const uint8_t* end) noexcept nogil:
    """Append one row; 0, or an error with the bad place in ``run.c.at``, or a builders' code."""
    cdef const uint8_t* begin
    cdef const Message* message = plan.messages
    cdef const Field* field
    cdef Frame* frame = run.frames
    cdef Builder* n
    cdef int64_t row = b.nodes[0].length
    cdef int64_t size = 0
    cdef uint64_t raw = 0
    cdef uint64_t tag
    cdef int32_t operation
    cdef int code
    run.node = run.depth = 0
    run.is_item = False
    frame.end = end
    frame.row = row
    frame.message = message
    frame.next_number = message.short_numbers
    run.c.at = at
    code = append_struct(b, b.nodes)
    while code == 0:
        if at == end:
            run.c.at = at
            if message.kind == MESSAGE_ROW:
                code = run.finish_row(b, plan, run, message, row)
                if code or frame == run.frames:
                    return code
            elif message.kind == MESSAGE_WRAPPER and message.n.length == row:
                code = append_zero(b, message.node)
            run.depth -= 1
            frame -= 1
            message = frame.message
            row = frame.row
            end = frame.end
            continue
        begin = at
        tag = at[0]
        if tag < SMALL_TAGS:
            at += 1
            field = message.tags[tag]
        else:
            at = read_small(&run.c, at, end, &raw)
            if at is NULL:
                run.node = message.node
                return run.c.code
            tag = raw
            field = find_field(plan, message, <uint32_t> tag, frame)
        n = field.n
        # A plain name, so that this is one jump through a table.
        operation = field.code
        if operation == FIELD_INT64 or operation == FIELD_INT32 or operation == FIELD_BOOL:
            at = read_varint(&run.c, at, end, &raw)
            if at is not NULL:
                if n.length != row or field.oneof:
                    prepare(b, plan, field, row)
                if operation == FIELD_INT64:
                    code = append_word(b, n, raw)
                elif operation == FIELD_INT32:
                    code = append_half_word(b, n, <uint32_t> raw)
                else:
                    code = append_byte(b, n, raw != 0)
        elif operation == FIELD_STRING:
            at = read_size(&run.c, at, end, &size)
            if at is not NULL:
                if n.length != row or field.oneof:
                    prepare(b, plan, field, row)
                code = copy_text(b, n, at, size, run.c.buffer_end)
                begin = at
                at += size
        elif operation == FIELD_FIXED64:
            if end - at < 8:
                begin = end
                code = TRUNCATED
            else:
                if n.length != row or field.oneof:
                    prepare(b, plan, field, row)
                code = append_word(b, n, load_word(at))
                at += 8
        elif (operation == FIELD_MESSAGE or operation == FIELD_ITEM or operation == FIELD_ENTRY
                or operation == FIELD_WRAPPER):
            at = read_size(&run.c, at, end, &size)
            if at is not NULL and run.depth + 1 == MOST_FRAMES:
                code = DEPTH
            elif at is not NULL:
                if field.oneof:
                    clear_members(b, plan, field.oneof, field.node, row)
                if operation == FIELD_ITEM:
                    row = n.length
                    code = append_struct(b, n)
                elif operation == FIELD_MESSAGE:
                    # Parts of one message are merged: its members go on where they were.
                    if n.length == row:
                        code = append_struct(b, n)
                elif operation == FIELD_ENTRY:
                    row = b.nodes[n.first_child].length
                elif field.is_repeated:
                    row = n.length
                message = field.message
                end = at + size
                run.depth += 1
                frame += 1
                frame.end = end
                frame.row = row
                frame.message = message
                frame.next_number = message.short_numbers
                continue
        else:
            at = run.rare_field(b, plan, run, field, row, begin, at, end, tag)
        if at is NULL:
            code = run.c.code
            begin = run.c.at
        if code:
            run.c.at = begin
            run.node = field.node
            run.is_item = field.is_repeated
            if operation == FIELD_UNKNOWN or operation == FIELD_OTHER_MEMBER:
                run.node = message.node
    return code
