"""Decompression of record data: gzip, snappy, lz4 and zstd in the framings found in Kafka logs.

Owns: the framings (parsed in C before a package is called), the cap on the output, and the choice
of the package, measured with batches of 10 to 100 KB:

======  ==================================================================================
gzip    ``isal`` when it is installed (about three times zlib), else ``zlib``
snappy  ``cramjam.snappy.decompress_raw_into``, per block, straight into the buffer
lz4     ``cramjam.lz4.decompress_block_into``, per block, straight into the buffer
        (``lz4.block`` for linked blocks, with the output so far as dictionary)
zstd    ``zstandard`` ``stream_reader().readinto`` per frame, straight into the buffer
======  ==================================================================================

Rules (hostile input):

* No size found in the data is trusted. Memory is reserved by the bytes present: LZ4 and zstd blocks
  have a maximum size each, snappy expands at most 22-fold, gzip at most 1032-fold. What is declared
  within that is reserved at once: growing takes more memory and time.
* Output beyond ``max_bytes`` ends the decompression; memory stays within the cap and 4 MiB, and a
  zstd window of at most the output while its frame is decompressed.
* A stream cut short, a failed checksum or a package's error (but for no memory) is
  CorruptRecordError. Trailing bytes are ignored after gzip members and after an LZ4 frame, as Java
  does, and corrupt after the others.
* A missing package is UnsupportedCompressionTypeError for the batch that needs it, not ImportError.

LZ4 frames as Java writes and reads them (KIP-57): version 01, no dictionary, the content checksum
ignored, block checksums verified. The header checksum is verified from magic 1 on; writers of magic
0 computed it over the wrong bytes. Linked blocks, which Java refuses, are read: brokers that do not
check store such data.

Threads: any. Contexts of zstd are reused through a free list, since making one takes 12 us.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from importlib import import_module

from kfast._native.buffers cimport OwnedBuffer, give_slack_back, new_buffer, reserve
from kfast._native.endian cimport load_i32, load_le32
from kfast._native.xxh32 cimport xxh32
from kfast.errors import CorruptRecordError, RecordTooLargeError, UnsupportedCompressionTypeError


cdef enum:
    GZIP_STEP_BYTES = 1048576      # of output
    GZIP_INPUT_BYTES = 262144      # what is left of it is copied by every step
    GZIP_HEADER_BYTES = 10
    GZIP_LEAST_BYTES = 18          # of a member
    GZIP_MAX_RATIO = 1032

    XERIAL_MAGIC_BYTES = 8
    XERIAL_HEADER_BYTES = 16
    XERIAL_MAX_BLOCK = 536870912
    SNAPPY_MAX_RATIO = 22          # three bytes can expand to 64

    LZ4_MAGIC = 0x184D2204
    LZ4_MIN_HEADER = 7
    LZ4_MAX_RATIO = 255
    LZ4_WINDOW_BYTES = 65536
    LZ4_FLAG_DICTIONARY = 0x01
    LZ4_FLAG_RESERVED = 0x02
    LZ4_FLAG_CONTENT_SIZE = 0x08
    LZ4_FLAG_BLOCK_CHECKSUM = 0x10
    LZ4_FLAG_INDEPENDENT = 0x20

    ZSTD_MAGIC = 0xFD2FB528
    ZSTD_SKIPPABLE = 0x184D2A50
    ZSTD_MAX_BLOCK = 131072
    ZSTD_MAX_WINDOW_LOG = 27
    ZSTD_REUSABLE_WINDOW = 4194304
    ZSTD_FREE_CONTEXTS = 8

cdef uint32_t LZ4_RAW_BLOCK = 0x80000000u

cdef list zstd_contexts = []


# --- packages -------------------------------------------------------------------------------------


def _load(codec, module, package):
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedCompressionTypeError(
            f"{codec} data needs the package {package}",
            cause=str(error),
            hint=f"pip install {package}",
        ) from error


cdef object gzip_package = None
cdef object snappy_package = None
cdef object lz4_package = None
cdef object lz4_linked_package = None
cdef object zstd_package = None


cdef object gzip_module():
    global gzip_package
    if gzip_package is None:
        try:
            gzip_package = import_module("isal.isal_zlib")
        except ImportError:
            gzip_package = _load("gzip", "zlib", "zlib")
    return gzip_package


cdef object snappy_module():
    global snappy_package
    if snappy_package is None:
        snappy_package = _load("snappy", "cramjam", "cramjam").snappy
    return snappy_package


cdef object lz4_module():
    global lz4_package
    if lz4_package is None:
        lz4_package = _load("lz4", "cramjam", "cramjam").lz4
    return lz4_package


cdef object lz4_linked_module():
    global lz4_linked_package
    if lz4_linked_package is None:
        lz4_linked_package = _load("lz4", "lz4.block", "lz4")
    return lz4_linked_package


cdef object zstd_module():
    global zstd_package
    if zstd_package is None:
        zstd_package = _load("zstd", "zstandard", "zstandard")
    return zstd_package


# --- shared ---------------------------------------------------------------------------------------


cdef object corrupt(str codec, str cause):
    return CorruptRecordError(f"{codec} data is malformed", cause=cause)


cdef object failed(str codec, object error, str no_memory):
    """Return the exception for a package's error, whose text may be that there is no memory."""
    cdef str cause = str(error)
    return MemoryError(f"{codec}: {cause}") if no_memory in cause else corrupt(codec, cause)


cdef object too_large(Py_ssize_t max_bytes):
    return RecordTooLargeError(
        f"a batch decompresses to more than {max_bytes} bytes",
        hint="raise max_decompressed_batch_bytes",
    )


cdef object source(const char* src, Py_ssize_t size):
    """Return a view for a package to read; it must not outlive the call."""
    return PyMemoryView_FromMemory(<char*> src, size, PyBUF_READ)


cdef object room(OwnedBuffer dst, Py_ssize_t size, Py_ssize_t limit):
    """Return the next ``size`` bytes of ``dst`` for a package to write, for one call."""
    reserve(dst, dst.size + size, limit)
    return PyMemoryView_FromMemory(dst.ptr + dst.size, size, PyBUF_WRITE)


cdef int append(OwnedBuffer dst, const char* src, Py_ssize_t size, Py_ssize_t limit) except -1:
    if size > 0:
        reserve(dst, dst.size + size, limit)
        memcpy(dst.ptr + dst.size, src, size)
        dst.size += size
    return 0


# The functions of the codecs return whether ``dst`` would exceed ``limit``.

# --- gzip -----------------------------------------------------------------------------------------


cdef int gunzip(const char* src, Py_ssize_t size, OwnedBuffer dst, Py_ssize_t limit) except -1:
    """Decompress every member."""
    cdef object module = gzip_module()
    cdef object member
    cdef bytes piece
    cdef Py_ssize_t given
    cdef Py_ssize_t declared
    if size >= GZIP_LEAST_BYTES:  # the last member ends in its size
        declared = min(<Py_ssize_t> load_le32(src + size - 4), size * GZIP_MAX_RATIO)
        reserve(dst, min(dst.size + declared, limit), limit)
    while True:
        member = module.decompressobj(31)
        while not member.eof:
            given = min(<Py_ssize_t> GZIP_INPUT_BYTES, size)
            try:
                piece = member.decompress(
                    source(src, given), min(GZIP_STEP_BYTES, limit - dst.size + 1)
                )
            except module.error as error:
                raise failed("gzip", error, "Error -4 ") from error
            if dst.size + PyBytes_GET_SIZE(piece) > limit:
                return 1
            append(dst, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece), limit)
            if not piece and not given and not member.eof:
                raise corrupt("gzip", "the stream is cut short")
            given -= len(member.unused_data if member.eof else member.unconsumed_tail)
            src += given
            size -= given
        # Java ignores bytes after it unless they look like another member.
        if size < GZIP_HEADER_BYTES or memcmp(src, b"\x1f\x8b\x08", 3) != 0:
            return 0


# --- snappy ---------------------------------------------------------------------------------------


cdef int64_t snappy_length(const char* src, Py_ssize_t size) noexcept nogil:
    """Return the length a block declares, -1 if impossible for a block of this size."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef Py_ssize_t i = 0
    while i < size and shift <= 28:
        value |= <uint64_t> ((<const unsigned char*> src)[i] & 0x7F) << shift
        if not src[i] & 0x80:
            if value > <uint64_t> size * SNAPPY_MAX_RATIO:
                return -1
            return <int64_t> value
        i += 1
        shift += 7
    return -1


cdef int unsnap_block(
    const char* src, Py_ssize_t size, OwnedBuffer dst, Py_ssize_t limit
) except -1:
    cdef object module = snappy_module()
    cdef int64_t length = snappy_length(src, size)
    cdef Py_ssize_t written
    if length < 0:
        raise corrupt("snappy", "a block declares an impossible length")
    if length > limit - dst.size:
        return 1
    try:
        written = module.decompress_raw_into(source(src, size), room(dst, length, limit))
    except MemoryError:
        raise
    except Exception as error:
        raise corrupt("snappy", str(error)) from error
    if written != length:
        raise corrupt("snappy", f"a block of {length} bytes gave {written}")
    dst.size += written
    return 0


cdef bint is_xerial(const char* src, Py_ssize_t size) noexcept nogil:
    return size >= XERIAL_HEADER_BYTES and memcmp(src, b"\x82SNAPPY\x00", XERIAL_MAGIC_BYTES) == 0


cdef Py_ssize_t xerial_bound(const char* src, Py_ssize_t size) noexcept nogil:
    """Return the sum of the lengths that the blocks declare, as far as they are possible."""
    cdef Py_ssize_t bound = 0
    cdef int64_t length, declared
    while size > 0:
        if is_xerial(src, size):
            length = XERIAL_HEADER_BYTES
        else:
            length = load_i32(src) if size >= 4 else -1
            declared = snappy_length(src + 4, length) if 0 <= length <= size - 4 else -1
            if declared < 0:
                break
            bound += declared
            length += 4
        src += length
        size -= length
    return bound


cdef int unsnap(const char* src, Py_ssize_t size, OwnedBuffer dst, Py_ssize_t limit) except -1:
    """Decompress a xerial stream, or one bare block without its magic."""
    cdef int32_t length
    if not is_xerial(src, size):
        return unsnap_block(src, size, dst, limit)
    reserve(dst, min(dst.size + xerial_bound(src, size), limit), limit)
    while size > 0:
        if is_xerial(src, size):
            if load_i32(src + XERIAL_MAGIC_BYTES) < 1:
                raise corrupt("snappy", "xerial version below 1")
            src += XERIAL_HEADER_BYTES
            size -= XERIAL_HEADER_BYTES
            continue
        length = load_i32(src) if size >= 4 else -1
        if length < 0 or length > XERIAL_MAX_BLOCK or length > size - 4:
            raise corrupt("snappy", "a block length is negative or runs past the end")
        if unsnap_block(src + 4, length, dst, limit):
            return 1
        src += 4 + length
        size -= 4 + length
    return 0


# --- lz4 ------------------------------------------------------------------------------------------


cdef struct Lz4Frame:
    const char* blocks
    const char* end
    Py_ssize_t block_max
    bint has_block_checksum
    bint is_independent


cdef int lz4_header(const char* src, Py_ssize_t size, int magic, Lz4Frame* frame) except -1:
    """Read and check the frame header."""
    cdef unsigned char flags, descriptor
    cdef Py_ssize_t length = LZ4_MIN_HEADER
    if size < LZ4_MIN_HEADER:
        raise corrupt("lz4", "the frame header is cut short")
    if load_le32(src) != LZ4_MAGIC:
        raise corrupt("lz4", "the frame magic is missing")
    flags = <unsigned char> src[4]
    descriptor = <unsigned char> src[5]
    if flags >> 6 != 1:
        raise corrupt("lz4", f"frame version {flags >> 6}")
    if flags & (LZ4_FLAG_RESERVED | LZ4_FLAG_DICTIONARY) or descriptor & 0x8F:
        raise corrupt("lz4", "reserved bits or a dictionary in the frame header")
    if descriptor >> 4 < 4:
        raise corrupt("lz4", f"block size id {descriptor >> 4}")
    if flags & LZ4_FLAG_CONTENT_SIZE:
        length += 8
    if size < length:
        raise corrupt("lz4", "the frame header is cut short")
    if magic != 0 and (xxh32(src + 4, length - 5) >> 8 & 0xFF) != <unsigned char> src[length - 1]:
        raise corrupt("lz4", "the frame header checksum does not match")
    frame.blocks = src + length
    frame.end = src + size
    frame.block_max = <Py_ssize_t> 1 << (8 + 2 * (descriptor >> 4))
    frame.has_block_checksum = flags & LZ4_FLAG_BLOCK_CHECKSUM
    frame.is_independent = flags & LZ4_FLAG_INDEPENDENT
    return 0


cdef Py_ssize_t lz4_bound(const Lz4Frame* frame) noexcept nogil:
    """Return the maximum size of the output; -1 if the blocks do not end within the data."""
    cdef const char* at = frame.blocks
    cdef Py_ssize_t bound = 0
    cdef Py_ssize_t size
    cdef Py_ssize_t extra = 4 if frame.has_block_checksum else 0
    cdef uint32_t word
    while frame.end - at >= 4:
        word = load_le32(at)
        at += 4
        if word == 0:
            return bound
        size = word & 0x7FFFFFFF
        if size > frame.block_max or size + extra > frame.end - at:
            return -1
        bound += size if word & LZ4_RAW_BLOCK else min(size * LZ4_MAX_RATIO, frame.block_max)
        at += size + extra
    return -1


cdef int unlz4(
    const char* src, Py_ssize_t size, OwnedBuffer dst, Py_ssize_t limit, int magic
) except -1:
    cdef Lz4Frame frame
    cdef Py_ssize_t bound, start, length, limit_of_blocks
    cdef const char* at
    cdef uint32_t word
    lz4_header(src, size, magic, &frame)
    bound = lz4_bound(&frame)
    if bound < 0:
        raise corrupt("lz4", "the frame is cut short, or a block is larger than it may be")
    start = dst.size
    # One block more than the limit, to detect the block that exceeds it.
    limit_of_blocks = limit + frame.block_max
    reserve(dst, min(start + bound, limit_of_blocks), limit_of_blocks)
    at = frame.blocks
    while True:
        word = load_le32(at)
        at += 4
        if word == 0:
            return 0
        length = word & 0x7FFFFFFF
        if frame.has_block_checksum and xxh32(at, length) != load_le32(at + length):
            raise corrupt("lz4", "a block checksum does not match")
        if word & LZ4_RAW_BLOCK:
            append(dst, at, length, limit_of_blocks)
        elif frame.is_independent:
            unlz4_block(at, length, dst, frame.block_max)
        else:
            unlz4_linked_block(at, length, dst, frame.block_max, dst.size - start)
        if dst.size > limit:
            return 1
        at += length + (4 if frame.has_block_checksum else 0)


cdef int unlz4_block(
    const char* src, Py_ssize_t size, OwnedBuffer dst, Py_ssize_t block_max
) except -1:
    cdef object module = lz4_module()
    cdef Py_ssize_t bound = min(size * LZ4_MAX_RATIO, block_max)
    cdef Py_ssize_t written
    try:
        written = module.decompress_block_into(source(src, size), room(dst, bound, 0))
    except MemoryError:
        raise
    except Exception as error:
        raise corrupt("lz4", str(error)) from error
    if written < 0 or written > bound:
        raise corrupt("lz4", "a block does not decompress")
    dst.size += written
    return 0


cdef int unlz4_linked_block(
    const char* src, Py_ssize_t size, OwnedBuffer dst, Py_ssize_t block_max, Py_ssize_t before
) except -1:
    """Decompress a block that refers to the last 64 KiB of the output before it."""
    cdef object module = lz4_linked_module()
    cdef Py_ssize_t window = min(before, <Py_ssize_t> LZ4_WINDOW_BYTES)
    cdef bytes piece
    try:
        piece = module.decompress(
            source(src, size),
            uncompressed_size=min(size * LZ4_MAX_RATIO, block_max),
            dict=source(dst.ptr + dst.size - window, window),
        )
    except module.LZ4BlockError as error:
        raise corrupt("lz4", str(error)) from error
    return append(dst, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece), dst.size + block_max)


# --- zstd -----------------------------------------------------------------------------------------


cdef struct ZstdFrame:
    Py_ssize_t size        # of the frame
    Py_ssize_t bound       # maximum size of its output
    uint64_t window
    bint is_skippable


cdef const char* zstd_frame(const char* src, Py_ssize_t size, ZstdFrame* frame) noexcept nogil:
    """Scan the block headers of one frame; return the error, or NULL."""
    cdef const unsigned char* at = <const unsigned char*> src
    cdef const unsigned char* end = at + size
    cdef uint64_t content = 0
    cdef uint32_t word
    cdef Py_ssize_t length, block_max
    cdef int flags, content_bytes, dictionary_bytes
    frame.bound = 0
    frame.window = 0
    frame.is_skippable = False
    if size < 5:
        return b"the frame header is cut short"
    word = load_le32(at)
    if word & 0xFFFFFFF0u == ZSTD_SKIPPABLE:
        if size < 8 or load_le32(at + 4) > size - 8:
            return b"a skippable frame is cut short"
        frame.is_skippable = True
        frame.size = <Py_ssize_t> load_le32(at + 4) + 8
        return NULL
    if word != ZSTD_MAGIC:
        return b"the frame magic is missing"
    flags = at[4]
    at += 5
    content_bytes = (1 << (flags >> 6)) if flags >> 6 else flags >> 5 & 1
    dictionary_bytes = (1 << (flags & 3)) >> 1
    if end - at < (not flags & 0x20) + dictionary_bytes + content_bytes:
        return b"the frame header is cut short"
    if not flags & 0x20:
        frame.window = <uint64_t> (8 + (at[0] & 7)) << (7 + (at[0] >> 3))
        at += 1
    at += dictionary_bytes
    if flags & 0x20:
        # A frame in one segment: the window is the content, whose size is little-endian.
        for length in range(content_bytes):
            content |= <uint64_t> at[length] << (8 * length)
        frame.window = content + 256 if content_bytes == 2 else content
    at += content_bytes
    if frame.window > <uint64_t> 1 << ZSTD_MAX_WINDOW_LOG:
        return b"the window is larger than 128 MiB"
    block_max = min(<Py_ssize_t> frame.window, <Py_ssize_t> ZSTD_MAX_BLOCK)
    while end - at >= 3:
        word = at[0] | <uint32_t> at[1] << 8 | <uint32_t> at[2] << 16
        at += 3
        length = word >> 3
        if length > ZSTD_MAX_BLOCK or word & 6 == 6:
            return b"a block is larger than it may be, or of an unknown type"
        frame.bound += block_max if word & 6 == 4 else length
        if word & 6 == 2:
            length = 1
        if length > end - at:
            break
        at += length
        if word & 1:
            if flags & 4:
                if end - at < 4:
                    break
                at += 4
            frame.size = at - <const unsigned char*> src
            return NULL
    return b"the frame is cut short"


cdef int unzstd_frame(
    const char* src, const ZstdFrame* frame, OwnedBuffer dst, Py_ssize_t limit
) except -1:
    cdef object module = zstd_module()
    cdef Py_ssize_t most = min(frame.bound, limit - dst.size)
    cdef Py_ssize_t written
    cdef object context, reader
    try:
        context = zstd_contexts.pop()
    except IndexError:
        context = module.ZstdDecompressor(max_window_size=1 << ZSTD_MAX_WINDOW_LOG)
    try:
        # One byte more than the maximum, so that the end of the frame, its checksum included, is
        # reached with room left, and excess output is detected.
        reader = context.stream_reader(source(src, frame.size))
        written = reader.readinto(room(dst, most + 1, limit))
    except module.ZstdError as error:
        raise failed("zstd", error, "not enough memory") from error
    if frame.window <= ZSTD_REUSABLE_WINDOW and len(zstd_contexts) < ZSTD_FREE_CONTEXTS:
        zstd_contexts.append(context)
    if written > most:
        return 1
    dst.size += written
    return 0


cdef int unzstd(const char* src, Py_ssize_t size, OwnedBuffer dst, Py_ssize_t limit) except -1:
    cdef ZstdFrame frame
    cdef const char* fault
    while True:
        fault = zstd_frame(src, size, &frame)
        if fault is not NULL:
            raise corrupt("zstd", (<bytes> fault).decode())
        if not frame.is_skippable and unzstd_frame(src, &frame, dst, limit):
            return 1
        src += frame.size
        size -= frame.size
        if size == 0:
            return 0


# --- entry ----------------------------------------------------------------------------------------


cdef int decompress_into(
    int codec, const char* src, Py_ssize_t size, OwnedBuffer dst, Py_ssize_t max_bytes, int magic
) except -1:
    cdef Py_ssize_t before = dst.size
    cdef Py_ssize_t limit = before + max_bytes
    cdef bint is_over = size > max_bytes
    try:
        if codec == CODEC_NONE:
            append(dst, src, 0 if is_over else size, limit)
        elif codec == CODEC_GZIP:
            is_over = gunzip(src, size, dst, limit)
        elif codec == CODEC_SNAPPY:
            is_over = unsnap(src, size, dst, limit)
        elif codec == CODEC_LZ4:
            is_over = unlz4(src, size, dst, limit, magic)
        elif codec == CODEC_ZSTD:
            is_over = unzstd(src, size, dst, limit)
        else:
            raise UnsupportedCompressionTypeError(
                f"unknown compression: codec id {codec}", hint="a newer kfast may read it"
            )
    except BaseException:
        dst.size = before
        raise
    if is_over:
        dst.size = before
    # Without the block that would have exceeded the limit.
    give_slack_back(dst, limit + (limit >> 2))
    return is_over


def decompress(int codec_id, data, Py_ssize_t max_bytes, int magic=2) -> OwnedBuffer:
    """Decompress the records of one batch to at most ``max_bytes``.

    ``codec_id`` is bits 0 to 2 of the attributes; with magic 0 the LZ4 header checksum is ignored.
    """
    cdef const unsigned char[::1] view = data
    cdef OwnedBuffer out
    if max_bytes < 0:
        raise ValueError("max_bytes cannot be negative")
    out = new_buffer(0)
    if decompress_into(
        codec_id, <const char*> &view[0] if view.shape[0] else NULL, view.shape[0], out, max_bytes,
        magic,
    ):
        raise too_large(max_bytes)
    return out
