"""Protobuf messages to columns: reads fields by a plan (``kfast/schemas/protobuf_plan.py``).

Owns: the bytes of Protobuf's wire format. All rows of a call are decoded without the GIL.

A row of a message and of all messages in it that are not repeated is one value of each of their
columns. So fields need not come in order, once or together, and one pass does:

* The first byte of a tag is looked up in a table of its message, which has a field for each wire
  type; longer ones are expected in the order of their numbers.
* A column that has a value of this row already has got it from an earlier occurrence: the last one
  of a scalar wins. A message goes on where its last part ended, so that parts are merged. A member
  of a oneof drops what the others have, also a member that is not wanted.
* What has no value at the end of the row gets its default or null, and lists are ended, in one
  walk over the columns of the row. Only then are keys of a map compared: the last entry of each
  stays.

Rules for bytes:

* Varints have at most 10 bytes, those of tags and sizes at most 5 and 32 bits, else SYNTAX. Numbers
  of 32 bits are the lowest ones of a longer varint, as protoc's code has it; a bool is any number
  but 0. A size that goes past the end of the message around it is TRUNCATED.
* Repeated numbers are read packed and one by one, mixed. Another wire type than the field's is
  TYPE: it is not taken for an unknown field, for it shows a wrong schema.
* Fields that the plan does not have are skipped, groups too, no deeper than ``max_depth`` (DEPTH).
  Field number 0, wire types 6 and 7, and groups that do not end as they began are SYNTAX.
* A string is UTF-8. A number that an open enum does not have is its digits, in a closed one null.
* A Timestamp and a Duration are in nanoseconds, else RANGE, and so are nanoseconds of a second or
  more, and of another sign than the seconds. In a Timestamp they are not negative.
* A message that becomes raw bytes is checked for its fields and groups. A required field that is
  not there is MISSING. No byte at all is a message whose fields are absent.

An error ends the row, not the call: the row is rolled back and becomes null. Bytes are read inside
of the value only, apart from copies that read up to 15 bytes more of the same buffer. Messages have
a stack of ``MOST_FRAMES``; there is no recursion.

Threads: any; a call shares nothing.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from kfast._native.buffers cimport OwnedBuffer, new_buffer
from kfast._native.builders cimport (
    BUILD_NO_MEMORY,
    ERROR_INDEXES,
    LAYOUT_ITEMS,
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
from kfast._native.protobuf_fields cimport (
    FIELD_ITEMS,
    FINISH_ITEMS,
    MESSAGE_ITEMS,
    SMALL_TAGS,
    Field,
    FieldItem,
    Finish,
    FinishItem,
    Message,
    MessageItem,
    Plan,
    Run,
)
from kfast._native.protobuf_value cimport decode_value, finish_row, list_indexes, rare_field
from kfast._native.value_bytes cimport RowNumbers, number_of, row_numbers


cdef OwnedBuffer open_plan(
        Plan* plan, ColumnBuilders b, const int32_t[::1] fields, const int32_t[::1] messages,
        const int32_t[::1] finishes, const int32_t[::1] tables):
    """Fill a plan with pointers into builders and into the memory that is returned."""
    cdef Py_ssize_t field_count = fields.shape[0] // FIELD_ITEMS
    cdef Py_ssize_t message_count = messages.shape[0] // MESSAGE_ITEMS
    cdef Py_ssize_t finish_count = finishes.shape[0] // FINISH_ITEMS
    cdef OwnedBuffer memory
    cdef const FieldItem* of_field
    cdef const MessageItem* of_message
    cdef const FinishItem* of_finish
    cdef Field* field
    cdef Message* message
    cdef Finish* end
    cdef Py_ssize_t at, tag
    if not (field_count and message_count and finish_count and tables.shape[0]):
        raise ValueError("a plan has fields, messages, and what is done at the end of rows")
    memory = new_buffer(
        field_count * sizeof(Field) + message_count * sizeof(Message)
        + finish_count * sizeof(Finish))
    plan.messages = <Message*> memory.ptr
    plan.fields = <Field*> (plan.messages + message_count)
    plan.finishes = <Finish*> (plan.fields + field_count)
    plan.tables = &tables[0]
    for at in range(field_count):
        of_field, field = <const FieldItem*> &fields[at * FIELD_ITEMS], &plan.fields[at]
        field.n = &b.nodes[of_field.node]
        field.message = &plan.messages[of_field.message]
        field.code, field.node = of_field.code, of_field.node
        field.is_repeated, field.oneof = of_field.is_repeated, of_field.oneof
        field.table, field.item = of_field.table, of_field.item
    for at in range(finish_count):
        of_finish, end = <const FinishItem*> &finishes[at * FINISH_ITEMS], &plan.finishes[at]
        end.n = &b.nodes[of_finish.node]
        end.code, end.node = of_finish.code, of_finish.node
        end.constant = of_finish.constant
    for at in range(message_count):
        of_message, message = (
            <const MessageItem*> &messages[at * MESSAGE_ITEMS], &plan.messages[at])
        message.n = &b.nodes[of_message.node]
        message.finish = plan.finishes + of_message.finish
        message.finish_end = plan.finishes + of_message.finish_end
        message.numbers = plan.tables + of_message.numbers
        message.number_count = of_message.number_count
        message.short_numbers = of_message.short_numbers
        message.kind, message.node = of_message.kind, of_message.node
        for tag in range(SMALL_TAGS):
            message.tags[tag] = plan.fields + plan.tables[of_message.tags + tag]
    return memory


def decode(
    const int32_t[::1] layout, dict names, tuple plan, data, starts, lengths, int mode,
    const int32_t[::1] row_plans=None, const int32_t[::1] prefixes=None, int max_depth=64,
    int64_t most_bytes=(<int64_t> 1) << 62,
) -> tuple:
    """Decode all values, or those up to the first bad one with ``mode`` 0.

    ``plan`` has fields, messages, finishes, tables and constants, or is None where no row is
    decoded; ``names`` are those of enums, by node. ``row_plans``, int32 per row, is an error with
    the code that a negative one negates. What ``prefixes`` says, int32 per row, is passed over at
    the begin of each value. Either may be there once, for all rows. Values of length -1 are null.

    Returns the columns (``builders.finish``), and the rows that are bad or None. Fewer rows than
    values are decoded once the columns have more than ``most_bytes``, or one of them the most that
    fits.
    """
    cdef SpanTotals totals
    cdef SpanSource source = open_checked(data, starts, lengths, &totals)
    cdef Spans* spans = &source.spans
    cdef const int32_t[::1] tables
    cdef const unsigned char[::1] constants
    cdef RowNumbers codes = row_numbers(row_plans, spans.count, "plan")
    cdef RowNumbers skipped_bytes = row_numbers(prefixes, spans.count, "prefix")
    cdef ColumnBuilders b
    cdef OwnedBuffer _memory
    cdef Plan made
    cdef Run run
    cdef Py_ssize_t row = 0
    cdef int32_t indexes[ERROR_INDEXES]
    cdef int32_t length, skipped, known
    cdef const uint8_t* begin
    cdef int code
    memset(&made, 0, sizeof(made))
    if layout.shape[0] < LAYOUT_ITEMS:
        raise ValueError("a layout has nodes")
    if plan is None:
        for row in range(spans.count):
            if spans.lengths[row] >= 0 and number_of(&codes, row) >= 0:
                raise ValueError("there is no plan")
        row = 0
    b = new_builders(
        &layout[0], <int32_t> (layout.shape[0] // LAYOUT_ITEMS), spans.count, totals.bytes,
        most_bytes)
    if plan is not None:
        fields, messages, finishes, tables, constants = plan
        _memory = open_plan(&made, b, fields, messages, finishes, tables)
        made.constants = <const char*> &constants[0] if constants.shape[0] else NULL
        count_constants(b, constants.shape[0])
    for node, texts in names.items():
        set_categories(b, node, texts)
    run.c.buffer_end = <const uint8_t*> spans.data + spans.size
    run.c.most_depth = max_depth
    run.finish_row = finish_row
    run.rare_field = rare_field
    memset(&run.known_keys, 0, sizeof(run.known_keys))
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
            begin = <const uint8_t*> spans.data + (span_start(spans, row) if length else 0)
            skipped = number_of(&skipped_bytes, row)
            run.node = run.depth = 0
            run.is_item = False
            known = 0
            code = -number_of(&codes, row)
            if code > 0:
                run.c.at = begin
            elif skipped < 0 or skipped > length:
                code = TRUNCATED
                run.c.at = begin + length
            else:
                code = decode_value(b, &made, &run, begin + skipped, begin + length)
                if code == 0:
                    code = end_row(b, <int64_t> length + 1)  # one without bytes has defaults
                    if code == 0:
                        row += 1
                        continue
                    run.node = run.depth = 0
                    run.c.at = begin
                else:
                    known = list_indexes(b, &run, indexes)
            if not end_bad_row(
                    b, mode, row, code, run.node, run.c.at - begin, 0, indexes, known):
                break
            row += 1
    free(run.known_keys.slots)
    if b.failure == BUILD_NO_MEMORY:
        raise MemoryError("columns")
    return finish(b), finish_errors(b)
