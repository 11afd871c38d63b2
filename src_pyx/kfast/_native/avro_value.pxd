"""Instructions of Avro plans: one value from bytes to builders, without recursion.

The rules are in ``avro_decode.pyx``, the instructions in ``kfast/schemas/avro_plan.py``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfast._native.avro_bytes cimport (
    append_decimal,
    read_branch,
    read_int,
    read_long,
    read_size,
    unlikely,
)
from kfast._native.builders cimport (
    DEPTH,
    ENUM,
    RANGE,
    SYNTAX,
    TOO_LARGE,
    TRUNCATED,
    TYPE,
    UNION,
    Builder,
    ColumnBuilders,
    append_byte,
    append_constant,
    append_fixed,
    append_half_word,
    append_index,
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


# An instruction of a plan, for one call.
cdef struct Instruction:
    Builder* n          # of the node, NULL without one
    int32_t operation
    int32_t node
    int32_t a
    int32_t b


cdef struct Plan:
    const Instruction* ops
    const int32_t* tables
    const char* constants


# A list, or a call of instructions, that is under way.
cdef struct Frame:
    int64_t left                # items of the block
    const uint8_t* block_end    # NULL if the block did not say it
    int64_t index               # of the item
    const Instruction* begin    # of an item, behind STRUCT; of a call: where it returns to
    const Instruction* end      # behind NEXT
    Builder* item               # of its STRUCT, NULL without one
    int32_t node                # -1: skipped
    int32_t item_size           # bytes of an item at least


# Called by its pointer, which keeps it out of the loop over instructions: what that does most is
# in place then, and its variables stay in registers.
ctypedef int (*RareOperation)(
    ColumnBuilders b, const Plan* plan, const Instruction* op, Run* run,
    const uint8_t* end) noexcept nogil


cdef struct Run:
    RareOperation rare_operation
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
        code = read_branch(&run.at, end, &raw)
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
            code = read_size(&run.at, end, run.buffer_end, &size)
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


cdef inline int rare_operation(
        ColumnBuilders b, const Plan* plan, const Instruction* op, Run* run,
        const uint8_t* end) noexcept nogil:
    """Read a value at ``run.at``, and move it; at the bad byte after an error."""
    cdef const uint8_t* begin = run.at
    cdef const uint8_t* buffer_end = run.buffer_end
    cdef int32_t operation = op.operation
    cdef uint64_t raw = 0
    cdef int64_t size = 0
    cdef int64_t whole
    cdef int32_t index = -1
    cdef int32_t number32
    cdef float single
    cdef double real
    cdef char word[8]       # a number in the width of its column
    cdef char* slot
    cdef int code = 0
    if operation == OP_NULL:
        return append_null(b, op.node)
    if operation == OP_CONSTANT:
        return append_constant(b, op.node, plan.constants, op.a)
    # What they begin with is read in one place each, so that it is in place in the loop, too.
    if operation in (OP_ENUM, OP_TIME_MS, OP_INT_FLOAT, OP_INT_DOUBLE, OP_SKIP_ENUM) or (
            operation == OP_TIME_US and op.b):
        code = read_int(&run.at, end, buffer_end, &raw)
    elif operation in (OP_TIME_US, OP_LONG_FLOAT, OP_LONG_DOUBLE):
        code = read_long(&run.at, end, buffer_end, &raw)
    elif operation in (OP_BYTES, OP_UUID) or (operation == OP_DECIMAL and op.b == 0):
        code = read_size(&run.at, end, buffer_end, &size)
    else:
        size = 4
        if operation == OP_FIXED:
            size = op.n.width
        elif operation == OP_DECIMAL:
            size = op.b
        elif operation == OP_SKIP_BOOL:
            size = 1
        if size > end - run.at:
            run.at = end
            return TRUNCATED
    if code:
        return code
    whole = unzigzag(raw)
    if operation == OP_ENUM:
        if raw & 1 == 0 and raw >> 1 < <uint64_t> op.b:
            index = plan.tables[op.a + <int32_t> (raw >> 1)]
        code = ENUM if index < 0 else append_index(b, op.node, index)
        if code == ENUM:
            run.at = begin
        return code
    if operation == OP_SKIP_ENUM:
        if raw & 1 or raw >> 1 >= <uint64_t> op.a:
            run.at = begin
            return ENUM
        return 0
    if operation == OP_TIME_MS or operation == OP_TIME_US:
        if not 0 <= whole < (DAY_MS if operation == OP_TIME_MS else <int64_t> 1000 * DAY_MS):
            run.at = begin
            return RANGE
        number32 = <int32_t> whole
        memcpy(word, &whole, 8)
        if operation == OP_TIME_MS:
            memcpy(word, &number32, 4)
        return append_fixed(b, op.node, word)
    if operation == OP_INT_DOUBLE or operation == OP_LONG_DOUBLE:
        real = <double> whole
        return append_fixed(b, op.node, &real)
    if operation == OP_INT_FLOAT or operation == OP_LONG_FLOAT:
        single = <float> whole
        memcpy(word, &single, 4)
        return append_fixed(b, op.node, word)
    # There are `size` bytes.
    if operation == OP_BYTES:
        slot = bytes_room(b, op.n, size)
        if slot is NULL:
            return b.failure
        memcpy(slot, run.at, size)
        code = end_bytes(b, op.n, size)
    elif operation == OP_DECIMAL:
        code = append_decimal(b, op.node, run.at, size, plan.tables + op.a)
        if code:
            run.at = begin
    elif operation == OP_FIXED or operation == OP_UUID:
        slot = fixed_slot(b, op.node)
        if slot is NULL:
            return b.failure
        if operation == OP_FIXED:
            memcpy(slot, run.at, size)
        elif size != UUID_TEXT or not parse_uuid(<const char*> run.at, slot):
            run.at = begin
            return TYPE
    elif operation == OP_SKIP_BOOL:
        if run.at[0] > 1:
            return TYPE
    else:  # OP_FLOAT, OP_FLOAT_DOUBLE
        number32 = <int32_t> load_le32(run.at)
        memcpy(word, &number32, 4)
        if operation == OP_FLOAT_DOUBLE:
            memcpy(&single, &number32, 4)
            real = single
            memcpy(word, &real, 8)
        code = append_fixed(b, op.node, word)
    if code == 0:
        run.at += size
    return code


cdef inline int decode_value(
        ColumnBuilders b, const Plan* plan, Run* run, const uint8_t* end) noexcept nogil:
    """Append one row from ``run.at`` on; 0, an error of the row, or a code of the builders."""
    cdef const Instruction* op = plan.ops
    cdef const uint8_t* at = run.at
    cdef const uint8_t* begin
    cdef Frame* frame
    cdef uint64_t raw = 0
    cdef int64_t size = 0
    cdef int32_t index
    cdef const uint8_t* buffer_end = run.buffer_end
    cdef int code = 0
    cdef int32_t operation
    run.depth = 0
    run.empty_items = 0
    while True:
        # A plain name, so that this is one jump through a table.
        operation = op.operation
        if operation == OP_INT or operation == OP_INT_LONG or operation == OP_SKIP_INT:
            code = read_int(&at, end, buffer_end, &raw)
            if code == 0 and operation == OP_INT:
                code = append_half_word(b, op.n, <uint32_t> unzigzag(raw))
            elif code == 0 and operation == OP_INT_LONG:
                code = append_int64(b, op.node, unzigzag(raw))
        elif operation == OP_LONG or operation == OP_SKIP_LONG:
            begin = at
            code = read_long(&at, end, buffer_end, &raw)
            if code == 0 and operation == OP_LONG:
                if unlikely(raw == <uint64_t> 0xFFFFFFFFFFFFFFFF and op.a):
                    at = begin
                    code = RANGE
                else:
                    code = append_word(b, op.n, <uint64_t> unzigzag(raw))
        elif operation == OP_STRING or operation == OP_SKIP_BYTES:
            code = read_size(&at, end, buffer_end, &size)
            if code == 0:
                if operation == OP_STRING:
                    code = copy_text(b, op.n, at, size, buffer_end)
                if code == 0:
                    at += size
        elif operation == OP_DOUBLE:
            if end - at < 8:
                at = end
                code = TRUNCATED
            else:
                code = append_word(b, op.n, load_word(at))
                if code == 0:
                    at += 8
        elif operation == OP_STRUCT:
            code = append_struct(b, op.n)
        elif operation == OP_NULLABLE or operation == OP_SKIP_NULLABLE:
            begin = at
            code = read_branch(&at, end, &raw)
            if code == 0:
                if raw > 2 or raw & 1:
                    at = begin
                    code = UNION
                elif <int32_t> (raw >> 1) == op.a:
                    if operation == OP_NULLABLE:
                        code = append_null(b, op.node)
                    if code == 0:
                        op = plan.ops + op.b
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
                frame.begin = op + 1
                frame.item = NULL
                if frame.begin.operation == OP_STRUCT:
                    frame.item = frame.begin.n
                    frame.begin += 1
                frame.end = plan.ops + op.a
                frame.node = op.node if operation == OP_LIST else -1
                frame.item_size = op.b
                op = frame.end - 1
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
                        op = frame.end
                        continue
            if code == 0:
                op = frame.begin
                if frame.item is NULL:
                    continue
                code = append_struct(b, frame.item)
                if code == 0:
                    continue
                op -= 1
        elif operation == OP_UNION:
            begin = at
            code = read_branch(&at, end, &raw)
            if code == 0:
                index = -1
                if raw & 1 == 0 and raw >> 1 < <uint64_t> op.b:
                    index = plan.tables[op.a + <int32_t> (raw >> 1)]
                if index >= 0:
                    op = plan.ops + index
                    continue
                at = begin
                code = UNION
        elif operation == OP_JUMP:
            op = plan.ops + op.a
            continue
        elif operation == OP_BOOL:
            if at == end:
                code = TRUNCATED
            elif at[0] > 1:
                code = TYPE
            else:
                code = append_byte(b, op.n, at[0])
                if code == 0:
                    at += 1
        elif operation == OP_SKIP_FIXED:
            if end - at < op.a:
                at = end
                code = TRUNCATED
            else:
                at += op.a
        elif operation == OP_CALL:
            if run.depth >= run.most_depth:
                code = DEPTH
            else:
                frame = &run.frames[run.depth]
                run.depth += 1
                frame.begin = op + 1
                frame.node = -1
                op = plan.ops + op.a
                continue
        elif operation == OP_RETURN:
            run.depth -= 1
            op = run.frames[run.depth].begin
            continue
        else:
            run.at = at
            code = run.rare_operation(b, plan, op, run, end)
            at = run.at
        if code:
            run.at = at
            run.node = op.node
            return code
        op += 1
