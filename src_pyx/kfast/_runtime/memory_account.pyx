"""MemoryAccount: the bytes behind ``buffer_memory_bytes``.

Owns the numbers and nothing else. It has no lock of its own: it is part of `FetchBuffer`, under
whose lock every method is called.

| counts | from | until |
|---|---|---|
| a frame, in full | its reception is admitted | the last of its slices needs it no more |
| a decoded chunk, with what it holds beside the frame | it is published | it was handed out |

A frame is pinned by its smallest slice, so counting slices would count too little. What requests
under way are expected to bring is known too; it does not count as used.

Compiled, because a dozen of these sums stand between a record's arrival and its reader.
"""

cimport cython


cdef enum:
    # The part of the cap that frames may take; the rest lets decode threads work ahead.
    SHARE_PART = 4
    SHARE_WHOLE = 5


def frame_share(long long buffer_memory_bytes):
    """Return the bytes that frames may take of a cap."""
    # In two parts, because four times the largest cap is no int64.
    return buffer_memory_bytes // SHARE_WHOLE * SHARE_PART + (
        buffer_memory_bytes % SHARE_WHOLE * SHARE_PART // SHARE_WHOLE
    )


@cython.final
cdef class FrameMemory:
    """The memory of one response frame, shared by the fetches that have a slice of it.

    Attributes
    ----------
    nbytes : int
        Size of the frame.
    slices : int
        Fetches that still need it.
    """
    cdef readonly long long nbytes
    cdef readonly long long slices

    def __repr__(self):
        return f"<FrameMemory {self.nbytes} bytes, {self.slices} slices left>"


@cython.final
cdef class ExpectedResponse:
    """One Fetch under way, as the account knows it.

    Attributes
    ----------
    number : int
        Counts the requests; a later one has a higher number.
    nbytes : int
        About how large the answer will be.
    """
    cdef readonly long long number
    cdef readonly long long nbytes

    def __repr__(self):
        return f"<ExpectedResponse {self.number}: {self.nbytes} bytes>"


@cython.final
cdef class _Admitted:
    """A frame being received: its size, and the last request sent before it."""
    cdef long long nbytes
    cdef long long request


@cython.final
cdef class MemoryAccount:
    """What is used, what is on its way, and what still fits.

    Parameters
    ----------
    cap : int
        ``buffer_memory_bytes``.
    chunk_bytes : int
        Most that decoding one chunk normally produces.
    """
    cdef readonly long long cap
    cdef long long frames_cap
    cdef long long chunk_bytes
    cdef long long frame_bytes
    cdef long long decoded_bytes
    cdef long long receiving_bytes
    cdef long long requests_sent
    cdef long long expected_bytes
    cdef double expansion
    cdef list receiving
    cdef dict requests

    def __init__(self, long long cap, long long chunk_bytes):
        self.cap = cap
        self.frames_cap = frame_share(cap)
        self.chunk_bytes = chunk_bytes
        self.expansion = 1.0
        self.receiving = []
        self.requests = {}

    # --- requests ---------------------------------------------------------------------------------

    def fetch_sent(self, long long expected_bytes):
        """Note a request and what it is expected to bring."""
        cdef ExpectedResponse answer = ExpectedResponse.__new__(ExpectedResponse)
        self.requests_sent += 1
        answer.number = self.requests_sent
        answer.nbytes = expected_bytes
        self.requests[answer.number] = answer
        self.expected_bytes += expected_bytes
        return answer

    def fetch_ended(self, ExpectedResponse answer not None):
        """Note that a request is not under way any more."""
        self.ended(answer)

    cdef ended(self, ExpectedResponse answer):
        cdef _Admitted frame
        if self.requests.pop(answer.number, None) is None:
            return
        self.expected_bytes -= answer.nbytes
        # A frame admitted while only requests were under way that have all ended is gone: its
        # connection broke, or it was no Fetch answer.
        if self.receiving:
            oldest = min(self.requests, default=self.requests_sent + 1)
            for frame in self.receiving[:]:
                if frame.request < oldest:
                    self.received(frame)

    @property
    def has_requests(self):
        """Whether any request is under way."""
        return bool(self.requests)

    # --- frames -----------------------------------------------------------------------------------

    def admit(self, long long frame_bytes, *, bint may_overdraw):
        """Set bytes aside for a frame if it fits, or if it may overdraw and is the only one."""
        cdef _Admitted frame
        if self.sum() + frame_bytes > self.cap and (not may_overdraw or self.receiving):
            return False
        frame = _Admitted.__new__(_Admitted)
        frame.nbytes = frame_bytes
        frame.request = self.requests_sent
        self.receiving.append(frame)
        self.receiving_bytes += frame_bytes
        return True

    cdef received(self, _Admitted frame):
        self.receiving.remove(frame)
        self.receiving_bytes -= frame.nbytes

    @property
    def is_receiving(self):
        """Whether bytes are set aside for a frame that is not there yet."""
        return bool(self.receiving)

    def fetch_answered(
        self, ExpectedResponse answer not None, long long frame_bytes, long long slices
    ):
        """Note the frame a request brought, which counts as long as so many slices need it.

        What was set aside for the frame is free again.

        Returns
        -------
        FrameMemory or None
            None without slices: the frame is of no use to anybody.
        """
        cdef _Admitted frame
        cdef FrameMemory hold
        for frame in self.receiving:
            if frame.nbytes == frame_bytes:
                self.received(frame)
                break
        self.ended(answer)
        if not slices:
            return None
        hold = FrameMemory.__new__(FrameMemory)
        hold.nbytes = frame_bytes
        hold.slices = slices
        self.frame_bytes += frame_bytes
        return hold

    def release_slice(self, FrameMemory hold not None):
        """Note that a slice does not need its frame any more; return whether bytes got free."""
        hold.slices -= 1
        if hold.slices:
            return False
        self.frame_bytes -= hold.nbytes
        return True

    def frame_room(self):
        """Return how many bytes of frames may still come; 0 or less means none."""
        cdef long long frames = self.frame_bytes + self.receiving_bytes
        return min(self.frames_cap, self.cap - self.decoded_bytes) - frames

    # --- chunks -----------------------------------------------------------------------------------

    def may_decode_ahead(self, long long raw_bytes):
        """Return whether a chunk decoded from a slice fits beside the answers expected."""
        cdef double decoded = raw_bytes * self.expansion
        cdef long long outcome = self.chunk_bytes
        if decoded < outcome:
            outcome = <long long> decoded
        return self.sum() + max(<long long> 0, self.expected_bytes) + outcome <= self.cap

    def add_chunk(self, long long nbytes, long long raw_bytes):
        """Count a decoded chunk, and learn from it how much decoding takes."""
        self.decoded_bytes += nbytes
        if raw_bytes:
            self.expansion += (<double> nbytes / raw_bytes - self.expansion) / 8

    def release_chunk(self, long long nbytes):
        """Note that a chunk is gone."""
        self.decoded_bytes -= nbytes

    # --- the sum ----------------------------------------------------------------------------------

    cdef inline long long sum(self) noexcept:
        return self.frame_bytes + self.decoded_bytes + self.receiving_bytes

    @property
    def used(self):
        """Bytes of frames, frames being received and decoded chunks."""
        return self.sum()

    def __repr__(self):
        return (
            f"<MemoryAccount {self.sum()} of {self.cap} bytes: frames {self.frame_bytes},"
            f" decoded {self.decoded_bytes}, receiving {self.receiving_bytes}>"
        )
