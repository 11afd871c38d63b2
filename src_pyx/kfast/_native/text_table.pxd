"""C interface of tables of texts, each kept once and numbered; the rules are in the ``.pyx``."""

from libc.stdint cimport int32_t, int64_t


cdef enum:
    MOST_TEXTS = 1 << 28


# All zeros is an empty table.
cdef struct TextTable:
    int32_t count
    int32_t mark                # `count` at the begin of a row, for `forget_texts`
    int32_t* offsets            # count + 1; NULL until the first text
    char* text
    int32_t* slots              # number of a text, -1 for none
    int32_t slot_count          # a power of two, or 0
    int64_t offsets_capacity
    int64_t text_capacity
    int64_t memory_bytes        # of all blocks


# The number of a text, or -1.
cdef int32_t find_text(const TextTable* table, const char* text, int64_t n) noexcept nogil

# Adds a text at the end; False without memory. The caller keeps the bytes of all texts below 2^31,
# and their number below MOST_TEXTS. One that is there already gets another number, and the first
# one is found.
cdef bint put_text(TextTable* table, const char* text, int64_t n) noexcept nogil

# Removes the texts from number `mark` on.
cdef void forget_texts(TextTable* table) noexcept nogil

# Frees all blocks.
cdef void drop_table(TextTable* table) noexcept nogil
