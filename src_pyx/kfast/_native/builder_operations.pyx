"""Column builders for Python: how tests reach what decoders use from C, as another module does.

Owns no data. Threads: any; one at a time per call.
"""

from libc.stdint cimport int32_t, int64_t

from kfast._native.builders cimport (
    ERROR_INDEXES,
    LAYOUT_ITEMS,
    ColumnBuilders,
    add_error,
    append_bytes,
    append_constant,
    append_fixed,
    append_index,
    append_null,
    append_struct,
    append_text_index,
    begin_row,
    drop_last,
    end_list,
    end_row,
    finish,
    finish_errors,
    new_builders,
    roll_back_row,
    set_categories,
)


cdef int64_t NO_LIMIT = (<int64_t> 1) << 62


def build(
    layout, operations, int64_t rows=0, int64_t value_bytes=0, most_row_bytes=None, most_items=None,
    most_bytes=None, categories=None,
) -> tuple:
    """Build columns by operations.

    ``operations`` are tuples of a name and arguments: ``("fixed", node, bytes)``, ``("bytes", node,
    bytes)``, ``("text", node, bytes)``, ``("index", node, int)``, ``("null", node)``, ``("struct",
    node)``, ``("list", node)``, ``("drop", node)``, ``("constant", node, bytes)``, ``("row",)``,
    ``("end", value_bytes)``, ``("roll_back",)`` and ``("error", row, code, node, position, detail,
    indexes)``.

    Returns columns, errors, the results of all operations, whether the builders were full, and how
    many bytes they had.
    """
    cdef const int32_t[::1] items = layout
    cdef ColumnBuilders b
    cdef list results = []
    cdef object columns, errors
    cdef bint is_full
    cdef int64_t memory_bytes
    b = new_builders(
        &items[0], <int32_t> (items.shape[0] // LAYOUT_ITEMS), rows, value_bytes,
        NO_LIMIT if most_bytes is None else most_bytes)
    if most_row_bytes is not None:
        b.most_row_bytes = most_row_bytes
    if most_items is not None:
        b.most_items = most_items
    for node, texts in (categories or {}).items():
        set_categories(b, node, texts)
    for operation in operations:
        results.append(apply_operation(b, operation[0], operation[1:]))
    is_full, memory_bytes = b.is_full, b.memory_bytes
    columns, errors = finish(b), finish_errors(b)
    return columns, errors, results, is_full, memory_bytes


cdef int apply_operation(ColumnBuilders b, str name, tuple arguments) except? -100:
    cdef int32_t node = arguments[0] if arguments and name != "error" else 0
    cdef bytes raw = b""
    cdef int32_t indexes[ERROR_INDEXES]
    cdef int32_t at
    if len(arguments) == 2 and isinstance(arguments[1], bytes):
        raw = arguments[1]
    if name == "fixed":
        return append_fixed(b, node, <const char*> raw)
    if name == "bytes":
        return append_bytes(b, node, raw, len(raw))
    if name == "text":
        return append_text_index(b, node, raw, len(raw))
    if name == "index":
        return append_index(b, node, arguments[1])
    if name == "null":
        return append_null(b, node)
    if name == "struct":
        return append_struct(b, &b.nodes[node])
    if name == "list":
        return end_list(b, node)
    if name == "constant":
        return append_constant(b, node, raw, 0)
    if name == "drop":
        drop_last(b, node)
    elif name == "row":
        begin_row(b)
    elif name == "end":
        return end_row(b, arguments[0])
    elif name == "roll_back":
        roll_back_row(b)
    elif name == "error":
        row, code, path, position, detail, given = arguments
        for at in range(min(len(given), ERROR_INDEXES)):
            indexes[at] = given[at]
        return add_error(b, row, code, path, position, detail, indexes, <int32_t> len(given))
    else:
        raise ValueError(name)
    return 0
