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
released when the bytes put into it are reported (D-25). Network thread only; knows no socket.
"""

from kfast._native.buffers cimport OwnedBuffer, new_buffer, writable_view
from kfast._native.endian cimport load_i32
from kfast.errors import ProtocolError


cdef enum:
    PREFIX_BYTES = 4


cdef class FrameReceiver:
    """Receives frames of at most ``max_bytes`` bytes.

    Parameters
    ----------
    max_bytes : int
        Largest size accepted; a larger one raises ProtocolError before any memory is taken.
    """
    cdef readonly Py_ssize_t max_bytes
    cdef bytearray prefix
    cdef Py_ssize_t prefix_filled
    cdef Py_ssize_t frame_size    # -1 while not known
    cdef Py_ssize_t frame_filled
    cdef OwnedBuffer frame        # None until memory is needed
    cdef object view              # the view given out last, until its bytes are reported
    cdef Py_ssize_t view_size
    cdef bint has_failed

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
