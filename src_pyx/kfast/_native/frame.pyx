"""FrameReceiver: puts a connection's bytes into whole frames, without copying any of them.

Owns the frame being received. The socket writes straight into it (``recv_into``), so a frame is
received into memory of exactly its size, recycled by the pool of ``buffers``, and is never moved.

Wire layout: i32 big-endian size of what follows, then that many bytes. The size is not part of
the frame handed out.

States::

    size prefix    next_view gives what is left of its 4 bytes, never more: a byte of the frame
                   must not land in the prefix
    size known     pending_frame_size tells; nothing is allocated until next_view is called, so
                   that memory can be asked for first
    frame          next_view gives what is left of the frame
    failed         the size was negative or above the limit: every call raises, for nothing after
                   that can be trusted (D-21)

Must never hand out a frame that can still be written: a view given out by ``next_view`` is
released when the bytes put into it are reported (D-25). Network thread only.

There are two ways in. ``next_view`` and ``advance`` work with any transport.
``kfast.network.receive`` receives from plain sockets without the GIL, into a `Target` that ``load``
fills from the receiver's state and ``store`` takes back.

``read_response_header`` reads what every response begins with, whatever its API.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from kfast._native.buffers cimport OwnedBuffer, adopt_block, new_buffer, writable_view
from kfast._native.endian cimport load_i32
from kfast._native.message_reader cimport Parser, parser_init, skip_tags
from kfast._native.reader cimport read_i32
from kfast.errors import ProtocolError


cdef class FrameReceiver:
    """Receives frames of at most ``max_bytes`` bytes.

    Parameters
    ----------
    max_bytes : int
        Largest size accepted; a larger one raises ProtocolError before any memory is taken.
    """
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
        """Size in bytes of the frame being received; None while its size is not known.

        From the moment it is known until ``next_view`` is called the frame takes no memory.
        """
        return None if self.frame_size < 0 else self.frame_size

    @property
    def pending_bytes(self) -> int:
        """Bytes received that belong to no finished frame, the size prefix included.

        Zero means that the connection is between frames and may be closed cleanly.
        """
        return self.prefix_filled + self.frame_filled

    def withdraw_view(self) -> None:
        """Take back the view given out last; nothing was put into it."""
        if self.view is not None:
            self.view.release()
            self.view = None
            self.view_size = 0

    def next_view(self) -> memoryview:
        """Where the next bytes must go: writable, never empty, valid until the next call here.

        Raises
        ------
        ProtocolError
            An earlier size was not acceptable.
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
                self.frame = new_buffer(self.frame_size)
            self.view_size = self.frame_size - self.frame_filled
            self.view = writable_view(self.frame, self.frame_filled, self.view_size)
        return self.view

    def advance(self, Py_ssize_t count) -> OwnedBuffer | None:
        """Take the first ``count`` bytes of the view given out last, which is then released.

        Parameters
        ----------
        count : int
            From 1 to the size of the view.

        Returns
        -------
        OwnedBuffer or None
            The frame that these bytes completed.

        Raises
        ------
        ProtocolError
            The size prefix is negative or above ``max_bytes``.
        ValueError
            No view was given out, or ``count`` is not within it.
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
        # Memory for the frame is the caller's business once its size is known.
        target.is_held = self.frame_size >= 0 and self.frame is None
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
        """Whether ``take_ready`` gives a frame, or raises at a size that is not acceptable."""
        return self.frame_filled == self.frame_size or (
            self.frame_size < 0 and self.prefix_filled == PREFIX_BYTES
        )

    def take_ready(self) -> OwnedBuffer | None:
        """Take the frame that ``receive_frames`` completed; None if it completed none.

        Raises
        ------
        ProtocolError
            The size it received is negative or above ``max_bytes``.
        """
        if self.frame_size < 0 and self.prefix_filled == PREFIX_BYTES:
            return self.take_size()
        if self.frame is not None and self.frame_filled == self.frame_size:
            return self.take_frame()
        return None

    def feed(self, data) -> list[OwnedBuffer]:
        """Copy any number of bytes in and return the frames they complete, in order.

        Raises
        ------
        ProtocolError
            A size is not acceptable; frames completed by the same call are lost.
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
    """Read the header of a response.

    Parameters
    ----------
    frame : bytes-like
        The frame without its size prefix.
    has_tags : bool
        Whether a tag section follows the correlation id; brokers have left it empty so far.

    Returns
    -------
    correlation_id : int
        That of the request answered.
    body_offset : int
        Where the body starts.

    Raises
    ------
    ProtocolError
        The bytes end inside the header, or its tags are not well-formed.
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
