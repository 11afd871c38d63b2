"""MemoryAccount: the memory used of the byte budget ``buffer_memory_bytes``.

Owns the counters only. It has no lock of its own: it is part of `MemoryGate`, under whose lock
every method is called.

| counted | from | until |
|---|---|---|
| a whole frame | its reception is admitted | the last of its slices is released |
| what a decode under way may produce | it begins | its chunk is published |
| memory of a decoded chunk besides the frame | it is published | it was returned |

Memory is what was allocated, which is more than what is in it. A frame is pinned by its smallest
slice, so counting slices would count too little. The expected size of in-flight requests is known
too; it does not count as used.

What a chunk will take is estimated from the last ones. A decode ahead is given what is free, up to
more than the estimate, and must not take more; one of the application thread takes what it takes.

Compiled, because a dozen of these sums are computed between a record's arrival and its return.
"""

cimport cython


cdef enum:
    # The share of the budget for frames; the rest lets decode threads decode ahead.
    SHARE_PART = 4
    SHARE_WHOLE = 5
    # Estimates follow the last chunks by an eighth.
    PARTS = 8


def frame_share(long long buffer_memory_bytes):
    """Return the share of the budget for frames, in bytes."""
    # In two parts, because four times the largest cap is no int64.
    return buffer_memory_bytes // SHARE_WHOLE * SHARE_PART + (
        buffer_memory_bytes % SHARE_WHOLE * SHARE_PART // SHARE_WHOLE
    )


@cython.final
cdef class FrameMemory:
    """The memory of one response frame, and the number of slices that still need it."""
    cdef readonly long long nbytes
    cdef readonly long long slices

    def __repr__(self):
        return f"<FrameMemory {self.nbytes} bytes, {self.slices} slices left>"


@cython.final
cdef class ExpectedResponse:
    """The expected response of an in-flight Fetch request."""
    cdef readonly long long number   # of the request, ascending
    cdef readonly long long nbytes   # estimated

    def __repr__(self):
        return f"<ExpectedResponse {self.number}: {self.nbytes} bytes>"


@cython.final
cdef class _Admitted:
    """A frame being received: its size, memory for it, and the last request sent before it."""
    cdef long long size
    cdef long long nbytes
    cdef long long request


@cython.final
cdef class MemoryAccount:
    """Bytes used, bytes expected, and bytes left of the budget ``cap``.

    ``chunk_bytes`` is the most that decoding one chunk produces, unless a batch is larger.
    """
    cdef readonly long long cap
    cdef long long frames_cap
    cdef long long chunk_bytes
    cdef long long frame_bytes
    cdef long long decoded_bytes
    cdef long long decoding_bytes
    cdef long long receiving_bytes
    cdef long long requests_sent
    cdef long long expected_bytes
    cdef double expansion             # memory of a chunk by bytes of its slice
    cdef long long largest_chunk
    cdef list receiving
    cdef dict requests

    def __init__(self, long long cap, long long chunk_bytes):
        self.cap = cap
        self.frames_cap = frame_share(cap)
        self.chunk_bytes = chunk_bytes
        self.expansion = 1.0
        self.largest_chunk = chunk_bytes
        self.receiving = []
        self.requests = {}

    # --- requests ---------------------------------------------------------------------------------

    def fetch_sent(self, long long expected_bytes):
        """Add an in-flight request and the expected size of its response."""
        cdef ExpectedResponse response = ExpectedResponse.__new__(ExpectedResponse)
        self.requests_sent += 1
        response.number = self.requests_sent
        response.nbytes = expected_bytes
        self.requests[response.number] = response
        self.expected_bytes += expected_bytes
        return response

    def fetch_ended(self, ExpectedResponse response not None):
        """Remove a request that ended without a response."""
        self.ended(response)

    cdef ended(self, ExpectedResponse response):
        cdef _Admitted frame
        if self.requests.pop(response.number, None) is None:
            return
        self.expected_bytes -= response.nbytes
        # A frame admitted before the oldest request still in flight was sent is gone: its
        # connection was closed, or it was no Fetch response.
        if self.receiving:
            oldest = min(self.requests, default=self.requests_sent + 1)
            for frame in self.receiving[:]:
                if frame.request < oldest:
                    self.received(frame)

    @property
    def has_requests(self):
        """Whether any request is in flight."""
        return bool(self.requests)

    # --- frames -----------------------------------------------------------------------------------

    def admit(self, long long frame_bytes, long long memory_bytes, *, bint may_overdraw):
        """Reserve memory for a frame if it fits, or if it may overdraw and is the only one."""
        cdef _Admitted frame
        if self.sum() + memory_bytes > self.cap and (not may_overdraw or self.receiving):
            return False
        frame = _Admitted.__new__(_Admitted)
        frame.size = frame_bytes
        frame.nbytes = memory_bytes
        frame.request = self.requests_sent
        self.receiving.append(frame)
        self.receiving_bytes += memory_bytes
        return True

    cdef received(self, _Admitted frame):
        self.receiving.remove(frame)
        self.receiving_bytes -= frame.nbytes

    @property
    def is_receiving(self):
        """Whether memory is reserved for a frame being received."""
        return bool(self.receiving)

    def fetch_answered(
        self,
        ExpectedResponse response not None,
        long long frame_bytes,
        long long memory_bytes,
        long long slices,
    ):
        """Count a response's frame until ``slices`` of it are released; None without slices.

        Its reservation ends.
        """
        cdef _Admitted frame
        cdef FrameMemory frame_memory
        for frame in self.receiving:
            if frame.size == frame_bytes:
                self.received(frame)
                break
        self.ended(response)
        if not slices:
            return None
        frame_memory = FrameMemory.__new__(FrameMemory)
        frame_memory.nbytes = memory_bytes
        frame_memory.slices = slices
        self.frame_bytes += memory_bytes
        return frame_memory

    def release_slice(self, FrameMemory frame_memory not None):
        """Release a slice of a frame; return whether that freed the frame."""
        frame_memory.slices -= 1
        if frame_memory.slices:
            return False
        self.frame_bytes -= frame_memory.nbytes
        return True

    def frame_room(self):
        """Return how many bytes of frames may still be received; 0 or less means none."""
        cdef long long frames = self.frame_bytes + self.receiving_bytes
        cdef long long decoded = self.decoded_bytes + self.decoding_bytes
        return min(self.frames_cap, self.cap - decoded) - frames

    # --- chunks -----------------------------------------------------------------------------------

    cdef long long estimate(self, long long raw_bytes) noexcept:
        """Return the estimated bytes of a chunk that is decoded from a slice of this size."""
        cdef double decoded = raw_bytes * self.expansion
        return <long long> decoded if decoded < self.largest_chunk else self.largest_chunk

    cdef long long free_to_decode(self) noexcept:
        return self.cap - self.sum() - max(<long long> 0, self.expected_bytes)

    def may_decode_ahead(self, long long raw_bytes):
        """Return whether a chunk decoded from a slice fits, besides the expected responses."""
        return self.estimate(raw_bytes) <= self.free_to_decode()

    def begin_decode(self, long long raw_bytes, *, bint is_ahead):
        """Set memory aside for a chunk of a slice, and return it, until `end_decode`.

        Ahead of the application it is the most that the chunk may take, and `may_decode_ahead`.
        """
        cdef long long nbytes = self.estimate(raw_bytes)
        if is_ahead:
            # More than the estimate, but what others may need too: an eighth of the cap.
            nbytes = min(
                max(nbytes + nbytes // 2, min(self.chunk_bytes, self.cap // 8)),
                self.free_to_decode(),
            )
        self.decoding_bytes += nbytes
        return nbytes

    def end_decode(self, long long nbytes):
        """Release what was set aside for a chunk."""
        self.decoding_bytes -= nbytes

    def add_chunk(self, long long nbytes, long long raw_bytes):
        """Count a decoded chunk, and update the estimates."""
        self.decoded_bytes += nbytes
        if raw_bytes:
            self.expansion += (<double> nbytes / raw_bytes - self.expansion) / PARTS
        self.largest_chunk = max(
            nbytes,
            self.chunk_bytes,
            self.largest_chunk - (self.largest_chunk - self.chunk_bytes) // PARTS,
        )

    def release_chunk(self, long long nbytes):
        """Release a decoded chunk."""
        self.decoded_bytes -= nbytes

    # --- the sum ----------------------------------------------------------------------------------

    cdef inline long long sum(self) noexcept:
        return self.frame_bytes + self.decoded_bytes + self.decoding_bytes + self.receiving_bytes

    @property
    def used(self):
        """Bytes of frames and chunks, received and decoded or about to be."""
        return self.sum()

    def __repr__(self):
        return (
            f"<MemoryAccount {self.sum()} of {self.cap} bytes: frames {self.frame_bytes},"
            f" decoded {self.decoded_bytes}, decoding {self.decoding_bytes},"
            f" receiving {self.receiving_bytes}>"
        )
