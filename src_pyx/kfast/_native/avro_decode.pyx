"""Avro values to columns: runs the instructions of plans (``kfast/schemas/avro_plan.py``).

Owns: the bytes of Avro's binary encoding. All rows of a call are decoded without the GIL into one
set of builders, whichever schemas they were written with: each row names its plan.

Rules for bytes:

* Varints have at most 5 bytes (int) or 10 (long); one that is longer or does not fit its type is
  RANGE. Padded ones are accepted, as Java does.
* An index of a union or an enum outside of it is UNION or ENUM, and so is one that the reader
  lacks. A bool is one byte, 0 or 1, else TYPE. A string is UTF-8, also one that was bytes.
* A negative count of a block is followed by its size in bytes: the items of a block have to end
  there (SYNTAX), and a list that is skipped goes there at once. A count is believed only as far as
  the bytes left go; items that have no bytes are at most ``MOST_EMPTY_ITEMS`` per row, also
  skipped ones, else TOO_LARGE.
* A decimal is in two's complement, big-endian, at least one byte; what has more digits than the
  type is RANGE, and so are a time of day outside of the day and the smallest timestamp, which is
  NumPy's "not a time". A uuid has 36 characters, else TYPE.
* Bytes left after the value are TRAILING: the schema is not the one it was written with. No byte
  at all is EMPTY, unless the schema has values without bytes.
* Text in skipped parts is not looked at.

An error ends the row, not the call: the row is rolled back and becomes null. Bytes are read inside
of the value only, apart from copies and varints that read up to 15 bytes more of the same buffer.
Lists and calls have a stack of ``MOST_FRAMES``; there is no recursion.

Threads: any; a call shares nothing.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kfast._native.avro_value cimport *
from kfast._native.buffers cimport OwnedBuffer, new_buffer
from kfast._native.builders cimport (
    BUILD_NO_MEMORY,
    EMPTY,
    ERROR_INDEXES,
    LAYOUT_ITEMS,
    TOO_LARGE,
    TRAILING,
    TRUNCATED,
    ColumnBuilders,
    append_null,
    begin_row,
    count_constants,
    end_bad_row,
    end_row,
    finish,
    finish_errors,
    new_builders,
    set_categories,
)
from kfast._native.columns cimport SpanSource, SpanTotals, Spans, open_checked, span_start
from kfast._native.value_bytes cimport RowNumbers, number_of, row_numbers


cdef int32_t list_indexes(ColumnBuilders b, const Run* run, int32_t* indexes) noexcept nogil:
    """Return in how many items of lists the bad place is, and their indexes, outermost first."""
    # Entries of maps, whose nodes have two children, are not numbered.
    cdef int32_t known = 0
    cdef int32_t place
    for place in range(run.depth):
        if (run.frames[place].node >= 0 and known < ERROR_INDEXES
                and b.nodes[run.frames[place].node].child_count == 1):
            indexes[known] = <int32_t> run.frames[place].index
            known += 1
    return known


cdef OwnedBuffer open_plan(Plan* plan, ColumnBuilders b, const int32_t[::1] ops):
    """Give a plan its instructions, with pointers into builders, in the memory that is returned."""
    cdef Py_ssize_t count = ops.shape[0] // INSTRUCTION
    cdef OwnedBuffer memory
    cdef Instruction* op
    cdef Py_ssize_t at
    if count == 0 or ops.shape[0] % INSTRUCTION:
        raise ValueError("a plan has instructions")
    memory = new_buffer(count * sizeof(Instruction))
    plan.ops = op = <Instruction*> memory.ptr
    for at in range(count):
        op[at].operation, op[at].node = ops[at * INSTRUCTION], ops[at * INSTRUCTION + 1]
        op[at].a, op[at].b = ops[at * INSTRUCTION + 2], ops[at * INSTRUCTION + 3]
        op[at].n = &b.nodes[op[at].node] if op[at].node >= 0 else NULL
    return memory


def decode(
    const int32_t[::1] layout, dict symbols, list plans, data, starts, lengths, int mode,
    const int32_t[::1] row_plans=None, const int32_t[::1] prefixes=None, int max_depth=64,
    int64_t most_bytes=(<int64_t> 1) << 62,
) -> tuple:
    """Decode all values, or those up to the first bad one with ``mode`` 0.

    ``plans`` are tuples of instructions, tables and constants. ``row_plans`` is the plan of each
    row as int32, by default the first for all; a negative one is an error with that code. What
    ``prefixes`` says, int32 per row, is passed over at the begin of each value. Either may be there
    once, for all rows. Values of length -1 are null.

    Returns the columns (``builders.finish``), and the rows that are bad or None; ``detail`` of an
    error is the number of the plan, -1 without one. Fewer rows than values are decoded once
    the columns have more than ``most_bytes``, or one of them the most that fits.
    """
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef const int32_t[::1] ops, tables
    cdef const unsigned char[::1] constants
    cdef RowNumbers plan_numbers = row_numbers(row_plans, spans.count, "plan")
    cdef RowNumbers skipped_bytes = row_numbers(prefixes, spans.count, "prefix")
    cdef ColumnBuilders b
    cdef list kept = []
    cdef OwnedBuffer memory = new_buffer((len(plans) + 1) * sizeof(Plan))
    cdef Plan* made = <Plan*> memory.ptr
    cdef Run run
    cdef Py_ssize_t row = 0
    cdef int32_t indexes[ERROR_INDEXES]
    cdef int32_t plan, length, skipped
    cdef const uint8_t* begin
    cdef const uint8_t* end
    cdef int64_t constant_bytes = 0
    cdef int code
    if layout.shape[0] < LAYOUT_ITEMS:
        raise ValueError("a layout has nodes")
    b = new_builders(
        &layout[0], <int32_t> (layout.shape[0] // LAYOUT_ITEMS), spans.count, totals.bytes,
        most_bytes)
    for plan in range(len(plans)):
        ops, tables, constants = plans[plan]
        kept.append((open_plan(&made[plan], b, ops), tables, constants))
        made[plan].tables = &tables[0] if tables.shape[0] else NULL
        constant_bytes = max(constant_bytes, constants.shape[0])
        made[plan].constants = <const char*> &constants[0] if constants.shape[0] else NULL
    if row_plans is not None:
        check_rows(row_plans, <int32_t> len(plans))
    elif not plans:
        raise ValueError("there is no plan")
    count_constants(b, constant_bytes)
    for node, texts in symbols.items():
        set_categories(b, node, texts)
    run.buffer_end = <const uint8_t*> spans.data + spans.size
    run.rare_operation = rare_operation
    run.most_depth = max_depth if 0 < max_depth < MOST_FRAMES else MOST_FRAMES
    with nogil:
        while row < spans.count and (row == 0 or not b.is_full):
            length = spans.lengths[row]
            begin_row(b)
            if length < 0:
                code = append_null(b, 0)
                if code < 0:
                    break
                row += 1
                continue
            plan = number_of(&plan_numbers, row)
            begin = <const uint8_t*> spans.data + (span_start(spans, row) if length else 0)
            end = begin + length
            skipped = number_of(&skipped_bytes, row)
            run.node = run.depth = 0
            run.at = begin
            if plan < 0:
                code = -plan
                plan = -1
            elif skipped < 0 or skipped > length:
                code = TRUNCATED
                run.at = end
            else:
                run.at = begin + skipped
                code = decode_value(b, &made[plan], &run, end)
                if code == 0:
                    # Items without bytes have columns, too, and so has a row without any.
                    if run.at == end and end_row(b, length + run.empty_items + 1) == 0:
                        row += 1
                        continue
                    code = TRAILING if run.at < end else TOO_LARGE
                    run.node = 0
                    run.depth = 0
                elif code == TRUNCATED and length == skipped:
                    code = EMPTY
                    run.node = run.depth = 0
            if not end_bad_row(
                    b, mode, row, code, run.node, run.at - begin, plan, indexes,
                    list_indexes(b, &run, indexes)):
                break
            row += 1
    if b.failure == BUILD_NO_MEMORY:
        raise MemoryError("columns")
    return finish(b), finish_errors(b)


cdef int check_rows(const int32_t[::1] row_plans, int32_t plans) except -1:
    cdef Py_ssize_t row
    for row in range(row_plans.shape[0]):
        if row_plans[row] >= plans:
            raise ValueError(f"row {row}: there are {plans} plans")
    return 0
