"""FrameReceiver: assembles a connection's bytes into frames, without copying them.

Owns the frame being received. The socket writes into it (``recv_into``), so a frame is received
into memory of its size, recycled by the pool of ``buffers``, and is never moved.

Wire layout: i32 big-endian size of what follows, then that many bytes. The size is not part of
the returned frame.

States::

    size prefix    next_view returns the rest of its 4 bytes only
    size known     pending_frame_size returns it; nothing is allocated until next_view is called,
                   so that the caller can reserve memory first
    frame          next_view returns the rest of the frame
    failed         the size was negative or above the limit: every call raises, because bytes after
                   it cannot be interpreted (D-21)

Must never return a frame that can still be written: a view returned by ``next_view`` is released
when the bytes received into it are reported (D-25). Network thread only.

Bytes are received in two ways. ``next_view`` and ``advance`` work with any transport.
``kfast.network.receive`` receives from plain sockets without the GIL, into a `Target` that ``load``
fills from the receiver's state and ``store`` copies back.

``read_response_header`` reads the header that responses of all APIs have.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from kfast._native.buffers cimport OwnedBuffer, adopt_block, new_buffer, writable_view
from kfast._native.endian cimport load_i32
from kfast._native.message_reader cimport Parser, parser_init, skip_tags
from kfast._native.reader cimport read_i32
from kfast.errors import KafkaConnectionError, ProtocolError


cdef class FrameReceiver:
    """Receives frames; one of more than ``max_bytes`` raises ProtocolError before allocation."""
    def __cinit__(self, Py_ssize_t max_bytes):
        if max_bytes < 0:
            raise ValueError("max_bytes cannot be negative")
        self.max_bytes = max_bytes
        self.prefix = bytearray(PREFIX_BYTES)
        self.restart()

    cdef void restart(self) noexcept:
        self.prefix_filled = 0
        self.frame_size = -1
        self.frame_filled = 0
        self.frame = None
        self.view = None
        self.view_size = 0
        self.has_failed = False

    @property
    def pending_frame_size(self) -> int | None:
        """Size in bytes of the frame being received; None while unknown.

        The frame is not allocated until ``next_view`` is called.
        """
        return None if self.frame_size < 0 else self.frame_size

    @property
    def pending_bytes(self) -> int:
        """Bytes received of an incomplete frame, the size prefix included.

        Zero means that the connection is between frames and may be closed cleanly.
        """
        return self.prefix_filled + self.frame_filled

    def withdraw_view(self) -> None:
        """Release the last view returned; nothing was received into it."""
        if self.view is not None:
            self.view.release()
            self.view = None
            self.view_size = 0

    def next_view(self) -> memoryview:
        """Return a writable view for the next bytes, not empty, valid until the next call.

        Without memory for the frame the connection is of no more use: KafkaConnectionError.
        """
        if self.has_failed:
            raise self.unacceptable()
        if self.view is not None:
            self.view.release()
        if self.frame_size < 0:
            self.view_size = PREFIX_BYTES - self.prefix_filled
            self.view = memoryview(self.prefix)[self.prefix_filled:]
        else:
            if self.frame is None:
                try:
                    self.frame = new_buffer(self.frame_size)
                except MemoryError as error:
                    raise KafkaConnectionError(
                        f"no memory for a response of {self.frame_size} bytes", cause=str(error)
                    ) from error
            self.view_size = self.frame_size - self.frame_filled
            self.view = writable_view(self.frame, self.frame_filled, self.view_size)
        return self.view

    def advance(self, Py_ssize_t count) -> OwnedBuffer | None:
        """Report ``count`` bytes received into the last view, which is then released.

        Returns the frame if they completed it. Raises ProtocolError if the size prefix is negative
        or above ``max_bytes``, ValueError if ``count`` is not within the view.
        """
        if count < 1 or count > self.view_size:
            raise ValueError(f"{count} bytes do not fit the view of {self.view_size}")
        self.view.release()
        self.view = None
        self.view_size = 0
        if self.frame_size < 0:
            self.prefix_filled += count
            if self.prefix_filled < PREFIX_BYTES:
                return None
            return self.take_size()
        self.frame_filled += count
        return self.take_frame() if self.frame_filled == self.frame_size else None

    cdef OwnedBuffer take_size(self):
        cdef Py_ssize_t size = load_i32(<const char*> self.prefix)
        if size < 0 or size > self.max_bytes:
            self.has_failed = True
            raise self.unacceptable()
        self.frame_size = size
        if size > 0:
            return None
        self.frame = new_buffer(0)
        return self.take_frame()

    cdef OwnedBuffer take_frame(self):
        cdef OwnedBuffer done = self.frame
        done.size = self.frame_size
        self.restart()
        return done

    cdef object unacceptable(self):
        cdef Py_ssize_t size = load_i32(<const char*> self.prefix)
        return ProtocolError(
            f"a frame of {size} bytes was announced, at most {self.max_bytes} are accepted",
            found=f"first four bytes {bytes(self.prefix)!r}",
            hint="check that this is a Kafka port; or raise receive_message_max_bytes",
            size_needed=size if size > 0 else None,
        )

    cdef void load(self, Target* target, int fd, Py_ssize_t max_own_bytes) noexcept:
        target.fd = fd
        memcpy(target.prefix, <const char*> self.prefix, PREFIX_BYTES)
        target.prefix_filled = self.prefix_filled
        target.frame_size = self.frame_size
        target.frame_filled = self.frame_filled
        target.max_own_bytes = min(max_own_bytes, self.max_bytes)
        target.frame = NULL if self.frame is None else self.frame.ptr
        target.capacity = 0
        target.received = 0
        # The caller allocates the frame once its size is known.
        target.is_blocked = self.frame_size >= 0 and self.frame is None
        target.is_done = False

    cdef store(self, Target* target):
        memcpy(<char*> self.prefix, target.prefix, PREFIX_BYTES)
        self.prefix_filled = target.prefix_filled
        self.frame_size = target.frame_size
        self.frame_filled = target.frame_filled
        if target.capacity:
            self.frame = adopt_block(target.frame, target.capacity)

    @property
    def has_outcome(self) -> bool:
        """Whether ``take_ready`` returns a frame, or raises because of its size."""
        return self.frame_filled == self.frame_size or (
            self.frame_size < 0 and self.prefix_filled == PREFIX_BYTES
        )

    def take_ready(self) -> OwnedBuffer | None:
        """Return the frame that ``receive_frames`` completed; None if it completed none.

        Raises ProtocolError if the received size is negative or above ``max_bytes``.
        """
        if self.frame_size < 0 and self.prefix_filled == PREFIX_BYTES:
            return self.take_size()
        if self.frame is not None and self.frame_filled == self.frame_size:
            return self.take_frame()
        return None

    def feed(self, data) -> list[OwnedBuffer]:
        """Copy bytes in and return the frames they complete, in order.

        Raises ProtocolError for an invalid size; frames completed by the same call are lost.
        """
        cdef list frames = []
        rest = memoryview(data).cast("B")
        while len(rest):
            view = self.next_view()
            count = min(len(view), len(rest))
            view[:count] = rest[:count]
            frame = self.advance(count)
            if frame is not None:
                frames.append(frame)
            rest = rest[count:]
        return frames

    def __repr__(self):
        return f"<FrameReceiver {self.pending_bytes} bytes of a frame of {self.pending_frame_size}>"


def read_response_header(frame, bint has_tags) -> tuple[int, int]:
    """Return correlation id and start of the body of a response frame without its size prefix.

    ``has_tags`` says whether a tag section follows the correlation id. Raises ProtocolError if the
    header is incomplete or its tags are not well-formed.
    """
    cdef Parser p
    cdef Py_buffer view
    cdef int32_t correlation_id
    cdef Py_ssize_t size
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    parser_init(&p, <const char*> view.buf, view.len, has_tags)
    correlation_id = read_i32(&p.r)
    skip_tags(&p)
    size = p.r.pos - <const char*> view.buf
    PyBuffer_Release(&view)
    if p.r.bad:
        raise ProtocolError(
            "malformed response header", cause="it is cut short, or its tags are not well-formed"
        )
    return correlation_id, size
