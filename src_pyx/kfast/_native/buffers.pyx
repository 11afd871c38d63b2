"""OwnedBuffer, the owner of all memory blocks of kfast, and the pool that recycles them.

Owns: every block of memory that outlives one call: received frames, decompressed payloads, record
indexes, gathered columns. Blocks come from malloc; blocks of ``POOL_MIN_BYTES`` and more go through
a bounded pool.

Rules:

* The buffer protocol export is read-only. The maker of a buffer fills it through the C pointer
  before sharing it, and never writes afterwards.
* A block is released only by ``__dealloc__``, and every view holds a reference to its buffer, so
  memory in use is never recycled (D-25). ``reserve`` raises while views exist.
* Sizes found in a message must be bounded by the caller.

Why a pool: a block that malloc has to get from the kernel costs a page fault per 4 KiB when it is
written. With varying sizes, as of frames and payloads, new blocks were filled at 10 to 11 GB/s and
recycled ones at 29 (``bench/micro/test_buffers.py``, glibc); with a constant size glibc keeps the
block, and both are filled at 29.

Threads: any. ``__dealloc__`` runs on the thread that releases the last view, so the pool has its
own lock and the counters are atomic, with and without a GIL. One buffer is written by one thread.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset


cdef extern from *:
    """
    #if defined(__SANITIZE_ADDRESS__)
    #define KFAST_SANITIZED 1
    #else
    #define KFAST_SANITIZED 0
    #endif

    static inline int64_t kfast_atomic_add(int64_t *at, int64_t delta) {
        return __atomic_add_fetch(at, delta, __ATOMIC_RELAXED);
    }
    static inline int64_t kfast_atomic_get(int64_t *at) {
        return __atomic_load_n(at, __ATOMIC_RELAXED);
    }
    """
    int IS_SANITIZED "KFAST_SANITIZED"
    int64_t atomic_add "kfast_atomic_add"(int64_t* at, int64_t delta) noexcept nogil
    int64_t atomic_get "kfast_atomic_get"(int64_t* at) noexcept nogil


cdef enum:
    POOL_SLOTS = 256
    POOL_MIN_BYTES = 65536
    POOL_DEFAULT_LIMIT = 67108864
    SMALLEST_BLOCK = 64


cdef struct PoolSlot:
    char* ptr
    Py_ssize_t capacity
    uint64_t stamp


cdef struct Pool:
    PoolSlot slots[POOL_SLOTS]
    int used
    Py_ssize_t bytes
    Py_ssize_t limit
    uint64_t clock
    int64_t hits
    int64_t misses


cdef Pool pool
pool.used = 0
pool.bytes = 0
pool.limit = POOL_DEFAULT_LIMIT
pool.clock = 0
pool.hits = 0
pool.misses = 0
cdef cython.pymutex pool_lock
cdef int64_t live_buffers = 0
cdef int64_t live_capacity = 0


cdef Py_ssize_t round_capacity(Py_ssize_t size) noexcept nogil:
    """Return the block size: large ones in steps of an eighth, so that they can be reused."""
    cdef Py_ssize_t step = POOL_MIN_BYTES >> 3
    if IS_SANITIZED:
        # No slack after the last byte, so that the sanitizer finds every overrun.
        return size if size > 0 else 1
    if size < POOL_MIN_BYTES:
        return size if size > SMALLEST_BLOCK else SMALLEST_BLOCK
    while step << 4 <= size:
        step <<= 1
    return (size + step - 1) & ~(step - 1)


cdef char* take_block(Py_ssize_t size, Py_ssize_t* capacity) noexcept nogil:
    """A block of at least ``size`` bytes, the smallest pooled one that wastes at most a quarter."""
    cdef Py_ssize_t most
    cdef int best = -1
    cdef int i
    cdef char* block = NULL
    # The rounding must not overflow.
    if size > <Py_ssize_t> 1 << 46:
        return NULL
    capacity[0] = round_capacity(size)
    if size >= POOL_MIN_BYTES:
        most = size + (size >> 2) + POOL_MIN_BYTES
        with pool_lock:
            for i in range(pool.used):
                if size <= pool.slots[i].capacity <= most:
                    most = pool.slots[i].capacity - 1
                    best = i
            if best < 0:
                pool.misses += 1
            else:
                pool.hits += 1
                block = pool.slots[best].ptr
                capacity[0] = pool.slots[best].capacity
                remove_slot(best)
        if block is not NULL:
            return block
    return <char*> malloc(capacity[0])


cdef void remove_slot(int i) noexcept nogil:
    """Remove slot ``i`` from the pool; under the lock. The caller owns the block."""
    pool.bytes -= pool.slots[i].capacity
    pool.used -= 1
    pool.slots[i] = pool.slots[pool.used]


cdef char* take_victim(Py_ssize_t room) noexcept nogil:
    """Remove the oldest block, if ``room`` more bytes and one more slot do not fit otherwise."""
    cdef int oldest = 0
    cdef int i
    cdef char* victim
    if pool.used == 0 or (pool.bytes + room <= pool.limit and pool.used < POOL_SLOTS):
        return NULL
    for i in range(1, pool.used):
        if pool.slots[i].stamp < pool.slots[oldest].stamp:
            oldest = i
    victim = pool.slots[oldest].ptr
    remove_slot(oldest)
    return victim


cdef void release_block(char* block, Py_ssize_t capacity) noexcept nogil:
    """Return a block to the pool, or free it if it is too small or too large for it."""
    cdef char* victim
    if capacity < POOL_MIN_BYTES or capacity > pool.limit:
        free(block)
        return
    while True:
        with pool_lock:
            victim = take_victim(capacity)
            if victim is NULL and capacity <= pool.limit:
                pool.clock += 1
                pool.slots[pool.used].ptr = block
                pool.slots[pool.used].capacity = capacity
                pool.slots[pool.used].stamp = pool.clock
                pool.used += 1
                pool.bytes += capacity
                return
        # free() may return memory to the kernel, so it is called outside the lock.
        if victim is NULL:
            free(block)
            return
        free(victim)


@cython.final
cdef class OwnedBuffer:
    """A block of memory with a read-only buffer export.

    ``memoryview(buffer)`` and ``numpy.frombuffer(buffer, dtype)`` give zero-copy views that keep
    the buffer alive. Made by :func:`allocate`, :func:`copy_of` and the compiled modules only.
    """

    def __cinit__(self):
        self.ptr = NULL
        self.size = 0
        self.capacity = 0
        self.exports = 0

    def __init__(self):
        raise TypeError("OwnedBuffer is made by allocate() or copy_of()")

    def __dealloc__(self):
        if self.ptr is not NULL:
            atomic_add(&live_buffers, -1)
            atomic_add(&live_capacity, -self.capacity)
            release_block(self.ptr, self.capacity)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.ptr, self.size, 1, flags)
        atomic_add(&self.exports, 1)

    def __releasebuffer__(self, Py_buffer* view):
        atomic_add(&self.exports, -1)

    def __len__(self):
        return self.size

    def __repr__(self):
        return f"<OwnedBuffer size={self.size} capacity={self.capacity}>"

    @property
    def nbytes(self) -> int:
        """Bytes allocated, at least ``size``."""
        return self.capacity

    @property
    def address(self) -> int:
        """Address of the first byte, for alias checks."""
        return <size_t> self.ptr

    def view(self) -> memoryview:
        """A read-only memoryview of unsigned bytes."""
        return memoryview(self)


@cython.final
@cython.no_gc
cdef class WritableRegion:
    """The export behind :c:func:`writable_view`; pins its buffer while any view of it is alive.

    Unknown to the garbage collector, which clears what it collects before the views of it are
    released: ``owner`` would be None then. Its buffer refers to nothing, so there are no cycles.
    """
    cdef OwnedBuffer owner
    cdef Py_ssize_t start
    cdef Py_ssize_t length

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.owner.ptr + self.start, self.length, 0, flags)
        atomic_add(&self.owner.exports, 1)

    def __releasebuffer__(self, Py_buffer* view):
        atomic_add(&self.owner.exports, -1)


cdef object writable_view(OwnedBuffer buffer, Py_ssize_t start, Py_ssize_t length):
    cdef WritableRegion region
    if start < 0 or length < 0 or length > buffer.capacity - start:
        raise BufferError("writable view outside the buffer")
    region = WritableRegion.__new__(WritableRegion)
    region.owner = buffer
    region.start = start
    region.length = length
    return memoryview(region)


cdef OwnedBuffer new_buffer(Py_ssize_t capacity):
    cdef Py_ssize_t taken
    cdef char* ptr
    if capacity < 0:
        raise ValueError("negative buffer size")
    ptr = take_block(capacity, &taken)
    if ptr is NULL:
        raise MemoryError(f"cannot allocate {capacity} bytes")
    return adopt_block(ptr, taken)


cdef OwnedBuffer adopt_block(char* ptr, Py_ssize_t capacity):
    cdef OwnedBuffer buffer = OwnedBuffer.__new__(OwnedBuffer)
    buffer.ptr = ptr
    buffer.capacity = capacity
    atomic_add(&live_buffers, 1)
    atomic_add(&live_capacity, capacity)
    return buffer


cdef int reserve(OwnedBuffer buffer, Py_ssize_t capacity) except -1:
    cdef Py_ssize_t wanted, got
    cdef char* block
    if capacity <= buffer.capacity:
        return 0
    if atomic_get(&buffer.exports) != 0:
        raise BufferError("a buffer with views cannot grow")
    wanted = buffer.capacity + (buffer.capacity >> 1)
    if wanted < capacity:
        wanted = capacity
    if wanted < POOL_MIN_BYTES:
        got = round_capacity(wanted)
        block = <char*> realloc(buffer.ptr, got)
        if block is NULL:
            raise MemoryError(f"cannot allocate {got} bytes")
    else:
        block = take_block(wanted, &got)
        if block is NULL:
            raise MemoryError(f"cannot allocate {wanted} bytes")
        memcpy(block, buffer.ptr, buffer.size)
        release_block(buffer.ptr, buffer.capacity)
    atomic_add(&live_capacity, got - buffer.capacity)
    buffer.ptr = block
    buffer.capacity = got
    return 0


def allocate(Py_ssize_t size) -> OwnedBuffer:
    """A zero-filled buffer of ``size`` bytes."""
    cdef OwnedBuffer buffer = new_buffer(size)
    memset(buffer.ptr, 0, size)
    buffer.size = size
    return buffer


def copy_of(data) -> OwnedBuffer:
    """A buffer holding a copy of any C-contiguous bytes-like object."""
    cdef const unsigned char[::1] source = data
    cdef OwnedBuffer buffer = new_buffer(source.shape[0])
    if source.shape[0]:
        memcpy(buffer.ptr, &source[0], source.shape[0])
    buffer.size = source.shape[0]
    return buffer


def live_count() -> int:
    """Number of buffers alive in this process (leak tests)."""
    return atomic_get(&live_buffers)


def live_bytes() -> int:
    """Capacity in bytes of all buffers alive, the pool not included."""
    return atomic_get(&live_capacity)


def pool_stats() -> dict[str, int]:
    """Counters of the pool: ``blocks``, ``bytes``, ``limit_bytes``, ``hits``, ``misses``."""
    with pool_lock:
        stats = pool
    return {
        "blocks": stats.used,
        "bytes": stats.bytes,
        "limit_bytes": stats.limit,
        "hits": stats.hits,
        "misses": stats.misses,
    }


def trim_pool(Py_ssize_t keep_bytes=0) -> int:
    """Free pooled blocks, oldest first, down to ``keep_bytes``; return the bytes freed."""
    cdef Py_ssize_t freed = 0
    cdef Py_ssize_t before
    cdef char* victim
    while True:
        with pool_lock:
            before = pool.bytes
            victim = take_victim(pool.limit - keep_bytes)
            freed += before - pool.bytes
        if victim is NULL:
            return freed
        free(victim)


def set_pool_limit(Py_ssize_t limit_bytes) -> None:
    """Set the most bytes the pool may keep (default 64 MiB); 0 turns recycling off."""
    if limit_bytes < 0:
        raise ValueError("the pool limit cannot be negative")
    with pool_lock:
        pool.limit = limit_bytes
    trim_pool(limit_bytes)
