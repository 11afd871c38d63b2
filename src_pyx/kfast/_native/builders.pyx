"""Column builders: where the decoders of JSON, Avro and Protobuf write their columns.

Owns: the memory of all columns of one decoding, as a tree of nodes in preorder, and the rows that
could not be decoded. A node has a storage:

==========  ========================================================================================
FIXED       ``width`` bytes per value, native byte order
BYTES       the bytes of all values, and int32 offsets
LIST        int32 offsets into its child; a map has two children of one length, key and value
STRUCT      nothing of its own: its children have one value per value of it
DICTIONARY  int32 numbers of texts, each of which is kept once
==========  ========================================================================================

Rules:

* A row is atomic. ``begin_row`` remembers one number, the rows so far; the lengths of all columns
  follow from it (members of a struct are as long as the struct, a list's items end at its last
  offset), so ``roll_back_row`` needs no other marks, and good rows pay nothing for it.
* Nulls are one byte per value while decoding, from the first null of a node on; ``finish`` packs
  them into Arrow's bits. Memory that was reserved and not used is given back there.
* Memory is reserved by the rows and bytes that are there, and grows by what the rows so far have
  used: never by a count that a message claims. ``memory_bytes`` is the size of all blocks.
* Text begins with little room, and the rows so far say how much all of it needs: a block that is
  about as large as its text need not be cut when it is finished, and fits the next decoding as it
  is, out of the pool of ``buffers.pyx``.
* A row over ``most_row_bytes`` is BUILD_TOO_LARGE: where a column grows, and at the end of the row.
  Where the rows so far leave too little of the 32-bit offsets it is BUILD_FULL: the row is rolled
  back, and decoded by other builders.

Threads: the appends need no GIL, and one thread at a time uses the builders.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kfast._native.built cimport copied, finish_node
from kfast._native.buffers cimport (
    OwnedBuffer,
    release_block,
    resized_block,
)
from kfast._native.text_table cimport (
    MOST_TEXTS,
    TextTable,
    drop_table,
    find_text,
    forget_texts,
    put_text,
)


cdef enum:
    OFFSET_MAX = 0x7FFFFFFF
    ROW_BYTES = 64 << 20
    FIRST_ROOM = 16


@cython.final
cdef class ColumnBuilders:
    """The columns of one decoding under way; see the C interface."""

    def __cinit__(self):
        self.nodes = NULL
        self.errors = NULL
        self.most_bytes = (<int64_t> 1) << 62
        self.most_row_bytes = ROW_BYTES
        self.most_items = OFFSET_MAX

    def __init__(self):
        raise TypeError("builders are made by the decoders")

    def __dealloc__(self):
        cdef int32_t node
        if self.nodes is not NULL:
            for node in range(self.count):
                drop_blocks(&self.nodes[node])
            free(self.nodes)
        if self.errors is not NULL:
            release_block(<char*> self.errors, self.error_room * sizeof(ErrorRow))


cdef void drop_blocks(Builder* n) noexcept nogil:
    if n.data is not NULL:
        release_block(n.data, n.capacities[DATA])
    if n.offsets is not NULL:
        release_block(<char*> n.offsets, n.capacities[OFFSETS])
    if n.validity is not NULL:
        release_block(<char*> n.validity, n.capacities[VALIDITY])
    n.data = NULL
    n.offsets = NULL
    n.validity = NULL
    if n.texts is not NULL:
        drop_table(n.texts)
        free(n.texts)
        n.texts = NULL


# ------------------------------------------------------------------------------------- construction

cdef ColumnBuilders new_builders(
        const int32_t* layout, int32_t nodes, int64_t rows, int64_t value_bytes,
        int64_t most_bytes):
    cdef ColumnBuilders b = ColumnBuilders.__new__(ColumnBuilders)
    cdef int64_t per_row = 0
    cdef int32_t node
    if nodes < 1 or rows < 0 or value_bytes < 0:
        raise ValueError("builders need a root, and sizes that are not negative")
    b.nodes = <Builder*> calloc(nodes, sizeof(Builder))
    if b.nodes is NULL:
        raise MemoryError()
    b.count = nodes
    read_layout(b, layout)
    b.rows = rows
    b.value_bytes = value_bytes
    b.most_bytes = most_bytes = max(most_bytes, 0)
    for node in range(nodes):
        per_row += value_width(&b.nodes[node])
    # A byte of a value makes one value of each node at most, and a byte of text.
    b.most_per_byte = per_row + 2 * nodes
    rows = min(rows, most_bytes // (2 * per_row + 1))
    value_bytes = min(value_bytes, most_bytes)
    for node in range(nodes):
        if not reserve_node(b, node, rows, value_bytes // (16 * nodes)):
            raise MemoryError(f"cannot reserve columns for {rows} rows")
    return b


cdef int read_layout(ColumnBuilders b, const int32_t* layout) except -1:
    """Link the nodes: preorder and numbers of children give the tree."""
    cdef int32_t open_nodes[MAX_DEPTH]
    cdef int32_t missing[MAX_DEPTH]
    cdef int32_t last[MAX_DEPTH]
    cdef int32_t depth = 0
    cdef int32_t node
    cdef const int32_t* item
    cdef Builder* n
    for node in range(b.count):
        item = layout + node * LAYOUT_ITEMS
        n = &b.nodes[node]
        n.storage, n.width, n.child_count = item[0], item[1], item[2]
        n.is_nullable = item[3] != 0 or node == 0
        n.parent = n.first_child = n.next_sibling = -1
        check_node(node, n)
        if node:
            if not depth:
                raise ValueError(f"node {node} of the layout has no parent")
            n.parent = open_nodes[depth - 1]
            if last[depth - 1] >= 0:
                b.nodes[last[depth - 1]].next_sibling = node
            else:
                b.nodes[n.parent].first_child = node
            last[depth - 1] = node
            missing[depth - 1] -= 1
        if n.storage == DICTIONARY:
            n.texts = <TextTable*> calloc(1, sizeof(TextTable))
            if n.texts is NULL:
                raise MemoryError()
            b.dictionaries += 1
        if n.child_count:
            if depth == MAX_DEPTH:
                raise ValueError(f"a schema has at most {MAX_DEPTH} levels")
            open_nodes[depth], missing[depth], last[depth] = node, n.child_count, -1
            depth += 1
        else:
            n.end = node + 1
        while depth and missing[depth - 1] == 0:
            depth -= 1
            b.nodes[open_nodes[depth]].end = node + 1
    if depth:
        raise ValueError("the layout ends before its tree")
    return 0


cdef int check_node(int32_t node, const Builder* n) except -1:
    cdef int32_t width = 4 if n.storage == DICTIONARY else 0
    cdef bint is_good = n.width == width and n.child_count == 0
    if n.storage == FIXED:
        is_good = 0 <= n.width <= 1 << 20 and n.child_count == 0
    elif n.storage == LIST:
        is_good = n.width == 0 and 1 <= n.child_count <= 2
    elif n.storage == STRUCT:
        is_good = n.width == 0 and n.child_count >= 1
    elif n.storage != BYTES and n.storage != DICTIONARY:
        is_good = False
    if not is_good:
        raise ValueError(f"node {node} of the layout: storage {n.storage}, width {n.width}, "
                         f"{n.child_count} children")
    return 0


cdef inline int64_t value_width(const Builder* n) noexcept nogil:
    """Return the bytes of a value besides its text and its items."""
    return n.width + (4 if n.storage == BYTES or n.storage == LIST else 0)


cdef bint reserve_node(
        ColumnBuilders b, int32_t node, int64_t rows, int64_t value_bytes) noexcept nogil:
    cdef Builder* n = &b.nodes[node]
    if n.storage == BYTES:
        if value_bytes > b.most_items:
            value_bytes = b.most_items
        if not resize(b, node, DATA, value_bytes + BYTES_SLACK):
            return False
        n.data_room = value_bytes
    return set_room(b, node, rows if rows > 0 else 1)


cdef int set_categories(ColumnBuilders b, int32_t node, object categories) except -1:
    cdef bytes raw
    for text in categories:
        raw = text.encode()
        if not add_text(b, b.nodes[node].texts, raw, len(raw)):
            raise MemoryError()
    return 0


# ------------------------------------------------------------------------------------------- growth

cdef bint resize(ColumnBuilders b, int32_t node, int block, int64_t size) noexcept nogil:
    """Give one block of a node room for ``size`` bytes; what it has stays."""
    cdef Builder* n = &b.nodes[node]
    cdef Py_ssize_t capacity = n.capacities[block]
    cdef char* at = n.data
    if block == OFFSETS:
        at = <char*> n.offsets
    elif block == VALIDITY:
        at = <char*> n.validity
    if at is not NULL and size <= capacity:
        return True
    at = resized_block(at, n.capacities[block], &capacity, size)
    if at is NULL:
        b.failure = BUILD_NO_MEMORY
        return False
    note_memory(b, capacity - n.capacities[block])
    n.capacities[block] = capacity
    if block == DATA:
        n.data = at
    elif block == OFFSETS:
        n.offsets = <int32_t*> at
    else:
        n.validity = <uint8_t*> at
    return True


cdef void note_memory(ColumnBuilders b, int64_t more) noexcept nogil:
    b.memory_bytes += more
    if b.memory_bytes > b.most_bytes:
        b.is_full = True


cdef bint set_room(ColumnBuilders b, int32_t node, int64_t room) noexcept nogil:
    cdef Builder* n = &b.nodes[node]
    cdef bint is_first = n.offsets is NULL
    if n.storage == FIXED or n.storage == DICTIONARY:
        if not resize(b, node, DATA, room * n.width):
            return False
    elif n.storage == BYTES or n.storage == LIST:
        if not resize(b, node, OFFSETS, (room + 1) * 4):
            return False
        if is_first:
            n.offsets[0] = 0
    if n.validity is not NULL and not resize(b, node, VALIDITY, room):
        return False
    n.room = room
    return True


cdef int fail(ColumnBuilders b, int code) noexcept nogil:
    b.failure = code
    return code


cdef int check_row(ColumnBuilders b, int64_t more) noexcept nogil:
    """Refuse ``more`` bytes if the present row would have too many."""
    return fail(b, BUILD_TOO_LARGE) if row_bytes(b) + more > b.most_row_bytes else 0


cdef int grow(ColumnBuilders b, int32_t node) noexcept nogil:
    """Make room for at least one more value."""
    cdef Builder* n = &b.nodes[node]
    cdef int64_t width = value_width(n) + (n.validity is not NULL)
    cdef int64_t more = growth(b, n.room, width, 3 * n.room)
    if check_row(b, 0) < 0:
        return b.failure
    return 0 if set_room(b, node, n.room + more + FIRST_ROOM) else b.failure


cdef int64_t growth(
        ColumnBuilders b, int64_t room, int64_t width, int64_t most) noexcept nogil:
    """Return how much more to make room for, where ``room`` values of ``width`` bytes are used.

    It is ``most`` at most where the rows so far say how much.
    """
    cdef int64_t left = b.most_bytes - b.memory_bytes
    cdef int64_t more = room >> 1
    # The rows to come are expected to use as much as those so far.
    if b.mark and b.mark >= b.rows >> 6:
        more = <int64_t> (<double> room * (b.rows - b.mark) / b.mark)
        more = max(room >> 3, min(more + (more >> 4), most))
    # Without memory left the present row is the last one, and columns grow as it needs.
    if b.is_full or more * width <= left:
        return more
    return left // width if left > 0 else 0


cdef int grow_bytes(ColumnBuilders b, int32_t node, int64_t more) noexcept nogil:
    """Make room for ``more`` bytes of a value."""
    cdef Builder* n = &b.nodes[node]
    cdef int64_t room = n.used + more
    # Most text is text of the values; defaults, and numbers as text, may be more.
    cdef int64_t most = max(b.value_bytes, 3 * n.data_room)
    cdef int64_t ahead = n.data_room + growth(b, n.data_room, 1, most)
    if check_row(b, more) < 0:
        return b.failure
    if room > b.most_items:
        return too_many_items(b)
    if room < ahead:
        room = min(ahead, b.most_items)
    if not resize(b, node, DATA, room + BYTES_SLACK):
        return b.failure
    n.data_room = room
    return 0


cdef int too_many_items(ColumnBuilders b) noexcept nogil:
    """The offsets are used up: by the rows before, or by this one alone."""
    return fail(b, BUILD_FULL if b.mark else BUILD_TOO_LARGE)


cdef int64_t row_bytes(ColumnBuilders b) noexcept nogil:
    cdef int64_t total = 0
    cdef int64_t begin
    cdef int32_t node
    cdef Builder* n
    for node in range(b.count):
        n = &b.nodes[node]
        begin = length_at_mark(b, node)
        if begin < n.length:
            total += (n.length - begin) * (value_width(n) + 1)
        if n.storage == BYTES:
            total += n.used - n.offsets[begin]
    return total


cdef int64_t length_at_mark(ColumnBuilders b, int32_t node) noexcept nogil:
    """Return how many values a node had when the present row began."""
    cdef int32_t at = node
    cdef int32_t above
    cdef int64_t length
    # Up to the nearest list, whose offset before this row says it; above that the same again.
    while b.nodes[at].parent >= 0:
        above = b.nodes[at].parent
        if b.nodes[above].storage == LIST:
            length = length_at_mark(b, above)
            return b.nodes[above].offsets[length]
        at = above
    return b.mark


# ------------------------------------------------------------------------------------------ appends

cdef int mark_null(ColumnBuilders b, int32_t node) noexcept nogil:
    """Note that the value about to be appended is null."""
    cdef Builder* n = &b.nodes[node]
    if n.validity is NULL:
        if not resize(b, node, VALIDITY, n.room):
            return b.failure
        memset(n.validity, 1, n.length)
    n.validity[n.length] = 0
    n.nulls += 1
    return 0


cdef int append_null(ColumnBuilders b, int32_t node) noexcept nogil:
    cdef int32_t end = b.nodes[node].end
    cdef Builder* n
    while node < end:
        n = &b.nodes[node]
        if n.length == n.room and grow(b, node) < 0:
            return b.failure
        if n.is_nullable:
            if mark_null(b, node) < 0:
                return b.failure
        elif n.validity is not NULL:
            n.validity[n.length] = 1
        if n.storage == BYTES or n.storage == LIST:
            n.offsets[n.length + 1] = n.offsets[n.length]
        elif n.storage != STRUCT and n.width:
            memset(n.data + n.length * n.width, 0, n.width)
        n.length += 1
        if n.storage == DICTIONARY and not n.is_nullable and n.texts.count == 0:
            # The number 0 needs a text.
            if not add_text(b, n.texts, "", 0):
                return fail(b, BUILD_NO_MEMORY)
        node = n.end if n.storage == LIST else node + 1
    return 0


cdef int append_constant(
        ColumnBuilders b, int32_t node, const char* constants, int64_t position) noexcept nogil:
    cdef const char* at = constants + position
    return append_encoded(b, node, &at)


cdef int append_encoded(ColumnBuilders b, int32_t node, const char** at) noexcept nogil:
    """Append a value and move behind it; nesting is that of the tree, at most MAX_DEPTH."""
    cdef Builder* n = &b.nodes[node]
    cdef int32_t size, _item, child
    cdef int status = 0
    cdef bint is_null = at[0][0] == 0
    at[0] += 1
    if is_null:
        return append_null(b, node)
    if n.storage == FIXED:
        status = append_fixed(b, node, at[0])
        at[0] += n.width
        return status
    if n.storage == STRUCT:
        child = n.first_child
        status = append_struct(b, n)
        while child >= 0 and status == 0:
            status = append_encoded(b, child, at)
            child = b.nodes[child].next_sibling
        return status
    memcpy(&size, at[0], 4)
    at[0] += 4
    if n.storage == LIST:
        for _item in range(size):
            child = n.first_child
            while child >= 0:
                status = append_encoded(b, child, at)
                if status < 0:
                    return status
                child = b.nodes[child].next_sibling
        return end_list(b, node)
    if n.storage == BYTES:
        status = append_bytes(b, node, at[0], size)
    else:
        status = append_text_index(b, node, at[0], size)
    at[0] += size
    return status


cdef void cut(ColumnBuilders b, int32_t node, int64_t length) noexcept nogil:
    cdef int32_t top = node
    cdef int32_t end = b.nodes[node].end
    cdef int64_t at
    cdef Builder* n
    cdef Builder* above
    for node in range(top, end):
        n = &b.nodes[node]
        if node != top:
            # Those above are cut already.
            above = &b.nodes[n.parent]
            length = above.offsets[above.length] if above.storage == LIST else above.length
        if length >= n.length:
            continue
        if n.nulls:
            for at in range(length, n.length):
                n.nulls -= n.validity[at] == 0
        n.length = length
        if n.storage == BYTES:
            n.used = n.offsets[length]


cdef void roll_back_row(ColumnBuilders b) noexcept nogil:
    cdef int32_t node
    cut(b, 0, b.mark)
    if b.dictionaries:
        for node in range(b.count):
            if b.nodes[node].texts is not NULL:
                forget_texts(b.nodes[node].texts)


cdef int append_text_index(
        ColumnBuilders b, int32_t node, const char* text, int64_t n) noexcept nogil:
    cdef TextTable* table = b.nodes[node].texts
    cdef int32_t index = find_text(table, text, n)
    if index < 0:
        if check_row(b, n) < 0:
            return b.failure
        if table.count and (
                table.count >= MOST_TEXTS or n > b.most_items - table.offsets[table.count]):
            return too_many_items(b)
        index = table.count
        if not add_text(b, table, text, n):
            return fail(b, BUILD_NO_MEMORY)
    return append_index(b, node, index)


cdef bint add_text(
        ColumnBuilders b, TextTable* table, const char* text, int64_t n) noexcept nogil:
    cdef int64_t before = table.memory_bytes
    cdef bint is_added = put_text(table, text, n)
    note_memory(b, table.memory_bytes - before)
    return is_added


cdef void mark_texts(ColumnBuilders b) noexcept nogil:
    cdef int32_t node
    for node in range(b.count):
        if b.nodes[node].texts is not NULL:
            b.nodes[node].texts.mark = b.nodes[node].texts.count


# ------------------------------------------------------------------------------------------- errors

cdef int add_error(
        ColumnBuilders b, int64_t row, int32_t code, int32_t node, int64_t position,
        int32_t detail, const int32_t* indexes, int32_t depth) noexcept nogil:
    cdef Py_ssize_t capacity = b.error_room * sizeof(ErrorRow)
    cdef int64_t before = capacity
    cdef char* block
    cdef ErrorRow* error
    if b.error_count == b.error_room:
        block = resized_block(
            <char*> b.errors, before, &capacity,
            (b.error_room + (b.error_room >> 1) + FIRST_ROOM) * sizeof(ErrorRow))
        if block is NULL:
            return fail(b, BUILD_NO_MEMORY)
        b.errors = <ErrorRow*> block
        b.error_room = capacity // sizeof(ErrorRow)
        note_memory(b, capacity - before)
    error = &b.errors[b.error_count]
    memset(error, 0, sizeof(ErrorRow))
    error.row, error.code, error.node, error.position = row, code, node, position
    error.detail = detail
    error.depth = depth if depth < ERROR_INDEXES else ERROR_INDEXES
    if error.depth > 0:
        memcpy(error.indexes, indexes, error.depth * 4)
    b.error_count += 1
    return 0


cdef bint end_bad_row(
        ColumnBuilders b, int mode, int64_t row, int32_t code, int32_t node, int64_t position,
        int32_t detail, const int32_t* indexes, int32_t depth) noexcept nogil:
    roll_back_row(b)
    if code == BUILD_FULL:
        return False
    if code == BUILD_NO_MEMORY:
        b.failure = code
        return False
    if code == BUILD_TOO_LARGE:
        code = TOO_LARGE
    if add_error(b, row, code, node, position, detail, indexes, depth) < 0 or mode == MODE_RAISE:
        return False
    return append_null(b, 0) == 0


cdef OwnedBuffer finish_errors(ColumnBuilders b):
    """Return the ErrorRows in the order of their rows, or None; the builders have none after it."""
    cdef int64_t count = b.error_count
    b.error_count = 0
    return copied(b.errors, count * sizeof(ErrorRow)) if count else None


# ---------------------------------------------------------------------------------------- finishing

cdef object finish(ColumnBuilders b):
    """Return the columns as nested tuples.

    ``(storage, length, nulls, validity, data, offsets, dictionary, children)``: ``validity`` is
    a bitmap or None without nulls; ``data`` has the values, or the numbers of texts; ``offsets``
    are int32[length + 1]; ``dictionary`` is ``(count, offsets, data)``; all buffers are OwnedBuffer
    or None.
    """
    return finish_node(b, 0)
