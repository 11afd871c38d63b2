"""ByteReader: a bounded cursor over hostile bytes with a sticky error flag.

Every read is compared with ``end`` first. A read that does not fit, or a varint that is not
well formed, sets ``bad``, moves the cursor to ``end`` and returns 0, as does every later read. So a
parser reads a whole structure and checks ``bad`` once, before it uses the values. Values used as a
loop bound or an index must be checked by the parser at once: ``bad`` only means that bytes were
missing, not that a value is invalid.

All functions are inline, noexcept and run without the GIL; the reader owns no memory.

Varints (7 bits per byte, low group first, high bit = more) are strict: a fifth byte above 0x0f
(64 bits: a tenth above 0x01) or one more continuation is an error. Java drops the surplus
bits; no encoder writes them, so they mean corrupt bytes. Padded encodings such as
``80 00`` are accepted, as in Java.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kfast._native.endian cimport load_be16, load_be32, load_be64


cdef struct ByteReader:
    const char* pos
    const char* end
    bint bad


cdef inline void reader_init(ByteReader* r, const char* start, Py_ssize_t size) noexcept nogil:
    r.pos = start
    r.end = start + size
    r.bad = False


cdef inline Py_ssize_t reader_left(const ByteReader* r) noexcept nogil:
    """Bytes not read yet; 0 once the reader is bad."""
    return r.end - r.pos


cdef inline void reader_fail(ByteReader* r) noexcept nogil:
    r.pos = r.end
    r.bad = True


cdef inline const char* read_span(ByteReader* r, int64_t size) noexcept nogil:
    """Advance by ``size`` bytes and return their start; NULL if fewer are left."""
    cdef const char* start = r.pos
    if size < 0 or size > r.end - r.pos:
        reader_fail(r)
        return NULL
    r.pos += size
    return start


cdef inline void skip(ByteReader* r, int64_t size) noexcept nogil:
    read_span(r, size)


cdef inline uint8_t read_u8(ByteReader* r) noexcept nogil:
    cdef const char* at = read_span(r, 1)
    return 0 if at is NULL else (<const uint8_t*> at)[0]


cdef inline int8_t read_i8(ByteReader* r) noexcept nogil:
    return <int8_t> read_u8(r)


cdef inline uint16_t read_u16(ByteReader* r) noexcept nogil:
    cdef const char* at = read_span(r, 2)
    return 0 if at is NULL else load_be16(at)


cdef inline int16_t read_i16(ByteReader* r) noexcept nogil:
    return <int16_t> read_u16(r)


cdef inline uint32_t read_u32(ByteReader* r) noexcept nogil:
    cdef const char* at = read_span(r, 4)
    return 0 if at is NULL else load_be32(at)


cdef inline int32_t read_i32(ByteReader* r) noexcept nogil:
    return <int32_t> read_u32(r)


cdef inline int64_t read_i64(ByteReader* r) noexcept nogil:
    cdef const char* at = read_span(r, 8)
    return 0 if at is NULL else <int64_t> load_be64(at)


cdef inline uint64_t read_uvarint_tail(ByteReader* r, int last_shift, int last_max) noexcept nogil:
    """The general case: up to ``last_shift / 7 + 1`` bytes, the last at most ``last_max``."""
    cdef uint64_t value = 0
    cdef uint64_t byte
    cdef const char* pos = r.pos
    cdef int shift = 0
    while pos < r.end:
        byte = (<const uint8_t*> pos)[0]
        pos += 1
        if shift == last_shift and byte > <uint64_t> last_max:
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            r.pos = pos
            return value
        shift += 7
    reader_fail(r)
    return 0


cdef inline uint32_t read_uvarint(ByteReader* r) noexcept nogil:
    cdef uint8_t byte
    if r.pos < r.end:
        byte = (<const uint8_t*> r.pos)[0]
        if byte < 0x80:
            r.pos += 1
            return byte
    return <uint32_t> read_uvarint_tail(r, 28, 0x0F)


cdef inline uint64_t read_uvarlong(ByteReader* r) noexcept nogil:
    cdef uint8_t byte
    if r.pos < r.end:
        byte = (<const uint8_t*> r.pos)[0]
        if byte < 0x80:
            r.pos += 1
            return byte
    return read_uvarint_tail(r, 63, 0x01)


cdef inline int32_t unzigzag32(uint32_t value) noexcept nogil:
    return <int32_t> ((value >> 1) ^ (0 - (value & 1)))


cdef inline int64_t unzigzag64(uint64_t value) noexcept nogil:
    return <int64_t> ((value >> 1) ^ (0 - (value & 1)))


cdef inline int32_t read_varint(ByteReader* r) noexcept nogil:
    return unzigzag32(read_uvarint(r))


cdef inline int64_t read_varlong(ByteReader* r) noexcept nogil:
    return unzigzag64(read_uvarlong(r))
