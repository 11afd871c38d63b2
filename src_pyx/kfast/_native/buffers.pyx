"""OwnedBuffer, the owner of all memory blocks of kfast, and the pool that recycles them.

Owns: every block of memory that outlives one call: received frames, decompressed payloads, record
indexes, gathered columns. Blocks come from malloc; blocks of ``POOL_MIN_BYTES`` and more go through
a pool. It keeps as many bytes as the `PoolShare` objects alive allow together, one per consumer; so
a process without a consumer keeps nothing.

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

A buffer that grows takes a recycled block, or realloc moves its pages: a copy in a block of its own
would be memory used twice.

Threads: any. ``__dealloc__`` runs on the thread that releases the last view, so the counters are
atomic and the pool is entered through a flag, with and without a GIL. One buffer is written by one
thread.

Nothing waits for the pool: a thread that cannot enter it within a moment uses malloc and free. A
process that forks may have a thread inside, which the child does not have: it could wait for ever.
The child forgets what such a thread left behind.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

import os


cdef extern from *:
    """
    #if defined(__x86_64__) || defined(__i386__)
    #define KFAST_PAUSE() __builtin_ia32_pause()
    #else
    #define KFAST_PAUSE() ((void) 0)
    #endif

    /* Whoever is inside leaves after some hundred nanoseconds, unless it is preempted. */
    static int kfast_pool_is_entered = 0;

    static inline int kfast_pool_enter(void) {
        int tries;
        for (tries = 0; tries < 200; tries++) {
            if (!__atomic_exchange_n(&kfast_pool_is_entered, 1, __ATOMIC_ACQUIRE))
                return 1;
            KFAST_PAUSE();
        }
        return 0;
    }
    static inline void kfast_pool_leave(void) {
        __atomic_store_n(&kfast_pool_is_entered, 0, __ATOMIC_RELEASE);
    }

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
    int pool_is_entered "kfast_pool_is_entered"
    bint enter_pool "kfast_pool_enter"() noexcept nogil
    void leave_pool "kfast_pool_leave"() noexcept nogil
    int64_t atomic_add "kfast_atomic_add"(int64_t* at, int64_t delta) noexcept nogil
    int64_t atomic_get "kfast_atomic_get"(int64_t* at) noexcept nogil


cdef enum:
    POOL_SLOTS = 256
    POOL_MIN_BYTES = 65536
    SMALLEST_BLOCK = 64


cdef struct PoolSlot:
    char* ptr
    Py_ssize_t capacity
    uint64_t stamp


cdef struct Pool:
    PoolSlot slots[POOL_SLOTS]
    int used
    Py_ssize_t bytes
    uint64_t clock
    int64_t hits
    int64_t misses


cdef Pool pool
pool.used = 0
pool.bytes = 0
pool.clock = 0
pool.hits = 0
pool.misses = 0
cdef int64_t pool_limit = 0
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


cdef Py_ssize_t most_capacity_of(Py_ssize_t size) noexcept nogil:
    """Return the most that a block of ``size`` bytes may have."""
    return size + (size >> 2) if size >= POOL_MIN_BYTES else round_capacity(size)


cdef char* take_pooled(Py_ssize_t size, Py_ssize_t* capacity) noexcept nogil:
    """Take the smallest pooled block of at least ``size`` bytes that wastes at most a quarter."""
    cdef Py_ssize_t most = most_capacity_of(size)
    cdef int best = -1
    cdef int i
    cdef char* block = NULL
    if size < POOL_MIN_BYTES or not enter_pool():
        return NULL
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
    leave_pool()
    return block


cdef char* take_block(Py_ssize_t size, Py_ssize_t* capacity) noexcept nogil:
    cdef char* block
    # The rounding must not overflow.
    if size > <Py_ssize_t> 1 << 46:
        return NULL
    block = take_pooled(size, capacity)
    if block is NULL:
        capacity[0] = round_capacity(size)
        block = <char*> malloc(capacity[0])
    return block


cdef void remove_slot(int i) noexcept nogil:
    """Remove slot ``i`` of the pool, which was entered. The caller owns the block."""
    pool.bytes -= pool.slots[i].capacity
    pool.used -= 1
    pool.slots[i] = pool.slots[pool.used]


cdef char* take_victim(int64_t most) noexcept nogil:
    """Remove the oldest block of the pool, which was entered, if it has more than ``most`` bytes.

    Also if no slot is free.
    """
    cdef int oldest = 0
    cdef int i
    cdef char* victim
    if pool.used == 0 or (pool.bytes <= most and pool.used < POOL_SLOTS):
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
    cdef int64_t limit = atomic_get(&pool_limit)
    while POOL_MIN_BYTES <= capacity <= limit and enter_pool():
        victim = take_victim(limit - capacity)
        if victim is NULL:
            pool.clock += 1
            pool.slots[pool.used].ptr = block
            pool.slots[pool.used].capacity = capacity
            pool.slots[pool.used].stamp = pool.clock
            pool.used += 1
            pool.bytes += capacity
            leave_pool()
            return
        # free() may return memory to the kernel, so it is called outside of the pool.
        leave_pool()
        free(victim)
    free(block)


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


cdef int reserve(OwnedBuffer buffer, Py_ssize_t capacity, Py_ssize_t most) except -1:
    cdef Py_ssize_t wanted
    cdef Py_ssize_t got = buffer.capacity
    cdef char* block
    if capacity <= buffer.capacity:
        return 0
    if atomic_get(&buffer.exports) != 0:
        raise BufferError("a buffer with views cannot grow")
    wanted = max(capacity, min(most, buffer.capacity + (buffer.capacity >> 1)))
    block = resized_block(buffer.ptr, buffer.size, &got, wanted)
    if block is NULL:
        raise MemoryError(f"cannot allocate {wanted} bytes")
    replace_block(buffer, block, got)
    return 0


cdef void replace_block(OwnedBuffer buffer, char* block, Py_ssize_t capacity) noexcept:
    atomic_add(&live_capacity, capacity - buffer.capacity)
    buffer.ptr = block
    buffer.capacity = capacity


cdef char* resized_block(
        char* block, Py_ssize_t used, Py_ssize_t* capacity, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t got = 0
    cdef char* made
    if block is NULL:
        return take_block(size, capacity)
    made = take_pooled(size, &got)
    if made is not NULL:
        memcpy(made, block, used)
        release_block(block, capacity[0])
    else:
        made = moved_block(block, &got, size)
    if made is not NULL:
        capacity[0] = got
    return made


cdef char* moved_block(char* block, Py_ssize_t* capacity, Py_ssize_t size) noexcept nogil:
    """``realloc``; without memory the result is NULL and the block stays as it is."""
    if size > <Py_ssize_t> 1 << 46:
        return NULL
    capacity[0] = round_capacity(size)
    return <char*> realloc(block, capacity[0])


cdef void give_slack_back(OwnedBuffer buffer, Py_ssize_t most) noexcept:
    cdef Py_ssize_t got = buffer.capacity
    cdef char* block
    if buffer.capacity < POOL_MIN_BYTES or buffer.capacity <= most:
        return
    if buffer.size < POOL_MIN_BYTES:
        # A small copy leaves the block as large as it is, for those that want it again.
        block = take_block(buffer.size, &got)
        if block is not NULL:
            memcpy(block, buffer.ptr, buffer.size)
            release_block(buffer.ptr, buffer.capacity)
    elif buffer.capacity > most_capacity_of(buffer.size):
        block = resized_block(buffer.ptr, buffer.size, &got, buffer.size)
    else:
        block = moved_block(buffer.ptr, &got, buffer.size)
    if block is not NULL:
        replace_block(buffer, block, got)


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


def most_capacity(Py_ssize_t size) -> int:
    """The most bytes that a buffer made for ``size`` bytes may have allocated."""
    return most_capacity_of(size)


@cython.final
cdef class PoolShare:
    """Lets the pool keep ``nbytes`` more for as long as this object is alive."""
    cdef int64_t nbytes

    def __cinit__(self):
        self.nbytes = 0

    def __init__(self, nbytes):
        if nbytes < 0:
            raise ValueError("the share of the pool cannot be negative")
        # The largest budget is an int64; sums of it must not overflow.
        cdef int64_t share = min(nbytes, 1 << 46)
        atomic_add(&pool_limit, share - self.nbytes)
        self.nbytes = share

    def __dealloc__(self):
        atomic_add(&pool_limit, -self.nbytes)
        trim(atomic_get(&pool_limit))


cdef Py_ssize_t trim(int64_t keep_bytes) noexcept nogil:
    """Free pooled blocks, oldest first, down to ``keep_bytes``; return the bytes freed."""
    cdef Py_ssize_t freed = 0
    cdef Py_ssize_t before
    cdef char* victim
    while enter_pool():
        before = pool.bytes
        victim = take_victim(keep_bytes)
        freed += before - pool.bytes
        leave_pool()
        if victim is NULL:
            break
        free(victim)
    return freed


def trim_pool(Py_ssize_t keep_bytes=0) -> int:
    """Give memory that is kept for reuse back to the system; return the bytes freed.

    Fetched data is received and decompressed in large blocks. Those that are not needed any more
    are kept, up to ``buffer_memory_bytes`` of the consumers in this process together, and freed
    when they are closed. A consumer that will be idle need not keep them.

    Parameters
    ----------
    keep_bytes : int
        How many bytes to keep, in the blocks used last.

    Examples
    --------
    >>> freed_bytes = kfast.trim_pool()
    """
    cdef Py_ssize_t freed
    with nogil:
        freed = trim(keep_bytes)
    return freed


def pool_stats() -> dict[str, int]:
    """Counters of the pool: ``blocks``, ``bytes``, ``limit_bytes``, ``hits``, ``misses``."""
    return {
        "blocks": pool.used,
        "bytes": pool.bytes,
        "limit_bytes": atomic_get(&pool_limit),
        "hits": pool.hits,
        "misses": pool.misses,
    }


def _forget_pool_of_parent() -> None:
    """In a forked child: empty the pool if a thread of the parent was inside."""
    if pool_is_entered:
        pool.used = 0
        pool.bytes = 0
        leave_pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool_of_parent)
