"""Instructions of Avro plans: one value from bytes to builders, without recursion.

The rules are in ``avro_decode.pyx``, the instructions in ``kfast/schemas/avro_plan.py``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfast._native.avro_bytes cimport append_decimal, read_int, read_long, read_size
from kfast._native.builders cimport (
    DEPTH,
    ENUM,
    RANGE,
    SYNTAX,
    TOO_LARGE,
    TRUNCATED,
    TYPE,
    UNION,
    ColumnBuilders,
    append_constant,
    append_float64,
    append_half_word,
    append_index,
    append_int32,
    append_int64,
    append_null,
    append_struct,
    append_word,
    bytes_room,
    end_bytes,
    end_list,
    fixed_slot,
)
from kfast._native.deserialize cimport parse_uuid
from kfast._native.endian cimport load_le32
from kfast._native.value_bytes cimport copy_text, load_word, unzigzag


cdef enum:
    MOST_FRAMES = 256
    MOST_EMPTY_ITEMS = 1 << 20
    INSTRUCTION = 4
    DAY_MS = 86_400_000
    UUID_TEXT = 36

# The numbers of kfast.schemas.avro_plan.Op.
cdef enum Op:
    OP_END = 0
    OP_STRUCT = 1
    OP_NULL = 2
    OP_CONSTANT = 3
    OP_LIST = 4
    OP_NEXT = 5
    OP_NULLABLE = 6
    OP_UNION = 7
    OP_JUMP = 8
    OP_ENUM = 9
    OP_DECIMAL = 10
    OP_FIXED = 11
    OP_BOOL = 12
    OP_INT = 13
    OP_LONG = 14
    OP_FLOAT = 15
    OP_DOUBLE = 16
    OP_BYTES = 17
    OP_STRING = 18
    OP_UUID = 19
    OP_TIME_MS = 20
    OP_TIME_US = 21
    OP_INT_LONG = 22
    OP_INT_FLOAT = 23
    OP_INT_DOUBLE = 24
    OP_LONG_FLOAT = 25
    OP_LONG_DOUBLE = 26
    OP_FLOAT_DOUBLE = 27
    OP_SKIP_INT = 28
    OP_SKIP_LONG = 29
    OP_SKIP_BOOL = 30
    OP_SKIP_BYTES = 31
    OP_SKIP_FIXED = 32
    OP_SKIP_ENUM = 33
    OP_SKIP_LIST = 34
    OP_SKIP_NULLABLE = 35
    OP_CALL = 36
    OP_RETURN = 37


cdef struct Plan:
    const int32_t* ops
    const int32_t* tables
    const char* constants


# A list, or a call of instructions (`is_call`), that is under way.
cdef struct Frame:
    int64_t left                # items of the block
    const uint8_t* block_end    # NULL if the block did not say it
    int64_t index               # of the item
    int32_t begin               # of the instructions of an item; of a call: where it returns to
    int32_t end                 # behind NEXT
    int32_t node                # -1: skipped
    int32_t item_size           # bytes of an item at least
    bint is_call


cdef struct Run:
    const uint8_t* at           # where the value ended, or the bad byte
    const uint8_t* buffer_end   # copies may read up to here
    int32_t node                # of the error
    int32_t depth               # of the frames in use
    int32_t most_depth
    int64_t empty_items
    Frame frames[MOST_FRAMES]


cdef inline int next_block(Run* run, Frame* frame, const uint8_t* end) noexcept nogil:
    """Read the head of a block of a list, and pass over what need not be read."""
    cdef uint64_t raw = 0
    cdef const uint8_t* begin
    cdef int64_t count, size
    cdef int code
    if frame.block_end is not NULL and run.at != frame.block_end:
        return SYNTAX
    while True:
        begin = run.at
        frame.block_end = NULL
        code = read_long(&run.at, end, &raw)
        if code:
            return code
        count = unzigzag(raw)
        if count == 0:
            frame.left = 0
            return 0
        if count < 0:
            if raw == <uint64_t> 0xFFFFFFFFFFFFFFFF:  # its magnitude is no int64
                run.at = begin
                return RANGE
            count = -count
            code = read_size(&run.at, end, &size)
            if code:
                return code
            frame.block_end = run.at + size
        if frame.item_size == 0:
            if count > MOST_EMPTY_ITEMS - run.empty_items:
                run.at = begin
                return TOO_LARGE
            run.empty_items += count
        elif count > (end - run.at) // frame.item_size:
            run.at = end
            return TRUNCATED
        if frame.node >= 0 or (frame.item_size and frame.block_end is NULL):
            frame.left = count
            return 0
        if frame.block_end is not NULL:
            run.at = frame.block_end


cdef inline int decode_value(
        ColumnBuilders b, const Plan* plan, Run* run, const uint8_t* end) noexcept nogil:
    """Append one row from ``run.at`` on; 0, an error of the row, or a code of the builders."""
    cdef const int32_t* op = plan.ops
    cdef const uint8_t* at = run.at
    cdef const uint8_t* begin
    cdef Frame* frame
    cdef uint64_t raw = 0
    cdef int64_t size = 0
    cdef int64_t whole
    cdef int32_t index
    cdef int32_t number32
    cdef uint32_t bits32
    cdef float single
    cdef double real
    cdef char* slot
    cdef int code = 0
    cdef int32_t operation
    run.depth = 0
    run.empty_items = 0
    while True:
        # A plain name, so that this is one jump through a table.
        operation = op[0]
        if operation == OP_INT:
            code = read_int(&at, end, &raw)
            if code == 0:
                code = append_half_word(b, &b.nodes[op[1]], <uint32_t> unzigzag(raw))
        elif operation == OP_LONG:
            code = read_long(&at, end, &raw)
            if code == 0:
                code = append_word(b, &b.nodes[op[1]], <uint64_t> unzigzag(raw))
        elif operation == OP_STRING:
            code = read_size(&at, end, &size)
            if code == 0:
                code = copy_text(b, op[1], at, size, run.buffer_end)
                if code == 0:
                    at += size
        elif operation == OP_DOUBLE:
            if end - at < 8:
                at = end
                code = TRUNCATED
            else:
                code = append_word(b, &b.nodes[op[1]], load_word(at))
                at += 8
        elif operation == OP_STRUCT:
            code = append_struct(b, op[1])
        elif operation == OP_NULLABLE or operation == OP_SKIP_NULLABLE:
            begin = at
            code = read_long(&at, end, &raw)
            if code == 0:
                if raw > 2 or raw & 1:
                    at = begin
                    code = UNION
                elif <int32_t> (raw >> 1) == op[2]:
                    if operation == OP_NULLABLE:
                        code = append_null(b, op[1])
                    if code == 0:
                        op = plan.ops + op[3] * INSTRUCTION
                        continue
        elif operation == OP_END:
            run.at = at
            return 0
        elif operation == OP_LIST or operation == OP_SKIP_LIST:
            if run.depth >= run.most_depth:
                code = DEPTH
            else:
                frame = &run.frames[run.depth]
                run.depth += 1
                frame.left = 0
                frame.block_end = NULL
                frame.index = 0
                frame.begin = <int32_t> ((op - plan.ops) // INSTRUCTION) + 1
                frame.end = op[2]
                frame.node = op[1] if operation == OP_LIST else -1
                frame.item_size = op[3]
                frame.is_call = False
                op = plan.ops + (op[2] - 1) * INSTRUCTION
                continue
        elif operation == OP_NEXT:
            frame = &run.frames[run.depth - 1]
            if frame.left > 0:
                frame.left -= 1
                frame.index += 1
            if frame.left == 0:
                run.at = at
                code = next_block(run, frame, end)
                at = run.at
                if code == 0 and frame.left == 0:
                    run.depth -= 1
                    if frame.node >= 0:
                        code = end_list(b, frame.node)
                    if code == 0:
                        op = plan.ops + frame.end * INSTRUCTION
                        continue
            if code == 0:
                op = plan.ops + frame.begin * INSTRUCTION
                continue
        elif operation == OP_NULL:
            code = append_null(b, op[1])
        elif operation == OP_CONSTANT:
            code = append_constant(b, op[1], plan.constants, op[2])
        elif operation == OP_UNION:
            begin = at
            code = read_long(&at, end, &raw)
            if code == 0:
                index = -1
                if raw & 1 == 0 and raw >> 1 < <uint64_t> op[3]:
                    index = plan.tables[op[2] + <int32_t> (raw >> 1)]
                if index >= 0:
                    op = plan.ops + index * INSTRUCTION
                    continue
                at = begin
                code = UNION
        elif operation == OP_JUMP:
            op = plan.ops + op[2] * INSTRUCTION
            continue
        elif operation == OP_ENUM:
            begin = at
            code = read_int(&at, end, &raw)
            if code == 0:
                index = -1
                if raw & 1 == 0 and raw >> 1 < <uint64_t> op[3]:
                    index = plan.tables[op[2] + <int32_t> (raw >> 1)]
                if index >= 0:
                    code = append_index(b, op[1], index)
                else:
                    at = begin
                    code = ENUM
        elif operation == OP_BYTES:
            code = read_size(&at, end, &size)
            if code == 0:
                slot = bytes_room(b, op[1], size)
                if slot is NULL:
                    code = b.failure
                else:
                    memcpy(slot, at, size)
                    at += size
                    code = end_bytes(b, op[1], size)
        elif operation == OP_DECIMAL:
            begin = at
            size = op[3]
            if size == 0:
                code = read_size(&at, end, &size)
            elif size > end - at:
                at = end
                code = TRUNCATED
            if code == 0:
                code = append_decimal(b, op[1], at, size, plan.tables + op[2])
                at = begin if code else at + size
        elif operation == OP_BOOL:
            if at == end:
                code = TRUNCATED
            elif at[0] > 1:
                code = TYPE
            else:
                slot = fixed_slot(b, op[1])
                if slot is NULL:
                    code = b.failure
                else:
                    slot[0] = <char> at[0]
                    at += 1
        elif operation == OP_FLOAT:
            if end - at < 4:
                at = end
                code = TRUNCATED
            else:
                bits32 = load_le32(at)
                memcpy(&number32, &bits32, 4)
                code = append_int32(b, op[1], number32)
                at += 4
        elif operation == OP_FIXED:
            size = b.nodes[op[1]].width
            if end - at < size:
                at = end
                code = TRUNCATED
            else:
                slot = fixed_slot(b, op[1])
                if slot is NULL:
                    code = b.failure
                else:
                    memcpy(slot, at, size)
                    at += size
        elif operation == OP_UUID:
            begin = at
            code = read_size(&at, end, &size)
            if code == 0:
                slot = fixed_slot(b, op[1])
                if slot is NULL:
                    code = b.failure
                elif size != UUID_TEXT or not parse_uuid(<const char*> at, slot):
                    at = begin
                    code = TYPE
                else:
                    at += size
        elif operation == OP_TIME_MS:
            begin = at
            code = read_int(&at, end, &raw)
            if code == 0:
                whole = unzigzag(raw)
                if 0 <= whole < DAY_MS:
                    code = append_int32(b, op[1], <int32_t> whole)
                else:
                    at = begin
                    code = RANGE
        elif operation == OP_TIME_US:
            begin = at
            code = read_int(&at, end, &raw) if op[3] else read_long(&at, end, &raw)
            if code == 0:
                whole = unzigzag(raw)
                if 0 <= whole < <int64_t> 86_400_000_000:
                    code = append_int64(b, op[1], whole)
                else:
                    at = begin
                    code = RANGE
        elif operation == OP_INT_LONG:
            code = read_int(&at, end, &raw)
            if code == 0:
                code = append_int64(b, op[1], unzigzag(raw))
        elif operation == OP_INT_FLOAT or operation == OP_LONG_FLOAT:
            code = read_int(&at, end, &raw) if operation == OP_INT_FLOAT else (
                read_long(&at, end, &raw))
            if code == 0:
                single = <float> unzigzag(raw)
                memcpy(&number32, &single, 4)
                code = append_int32(b, op[1], number32)
        elif operation == OP_INT_DOUBLE or operation == OP_LONG_DOUBLE:
            code = read_int(&at, end, &raw) if operation == OP_INT_DOUBLE else (
                read_long(&at, end, &raw))
            if code == 0:
                code = append_float64(b, op[1], <double> unzigzag(raw))
        elif operation == OP_FLOAT_DOUBLE:
            if end - at < 4:
                at = end
                code = TRUNCATED
            else:
                bits32 = load_le32(at)
                memcpy(&single, &bits32, 4)
                real = single
                code = append_float64(b, op[1], real)
                at += 4
        elif operation == OP_SKIP_INT:
            code = read_int(&at, end, &raw)
        elif operation == OP_SKIP_LONG:
            code = read_long(&at, end, &raw)
        elif operation == OP_SKIP_BOOL:
            if at == end:
                code = TRUNCATED
            elif at[0] > 1:
                code = TYPE
            else:
                at += 1
        elif operation == OP_SKIP_BYTES:
            code = read_size(&at, end, &size)
            if code == 0:
                at += size
        elif operation == OP_SKIP_FIXED:
            if end - at < op[2]:
                at = end
                code = TRUNCATED
            else:
                at += op[2]
        elif operation == OP_SKIP_ENUM:
            begin = at
            code = read_int(&at, end, &raw)
            if code == 0 and (raw & 1 or raw >> 1 >= <uint64_t> op[2]):
                at = begin
                code = ENUM
        elif operation == OP_CALL:
            if run.depth >= run.most_depth:
                code = DEPTH
            else:
                frame = &run.frames[run.depth]
                run.depth += 1
                frame.begin = <int32_t> ((op - plan.ops) // INSTRUCTION) + 1
                frame.node = -1
                frame.is_call = True
                op = plan.ops + op[2] * INSTRUCTION
                continue
        else:  # OP_RETURN
            run.depth -= 1
            op = plan.ops + run.frames[run.depth].begin * INSTRUCTION
            continue
        if code:
            run.at = at
            run.node = op[1]
            return code
        op += INSTRUCTION
