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

There are two ways in. ``next_view`` and ``advance`` work with any transport. ``receive_frames`` is
for sockets that carry the stream as it is: it waits on the event loop's epoll set and receives
without the GIL until a frame is complete or something else happens. A response of some megabytes
arrives in dozens of pieces; each would otherwise cost a turn of the loop and two changes of the
GIL's holder (measured on a real broker with 1000-byte values: 1.4 times the throughput). Where
there is no epoll it does nothing, and the first way serves.

``read_response_header`` reads what every response begins with, whatever its API.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from kfast._native.buffers cimport OwnedBuffer, adopt_block, new_buffer, take_block, writable_view
from kfast._native.endian cimport load_i32
from kfast._native.message_reader cimport Parser, parser_init, skip_tags
from kfast._native.reader cimport read_i32
from kfast.errors import ProtocolError


cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__linux__)
    #include <errno.h>
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <time.h>

    static int64_t kfast_now_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }

    /* Descriptors with events; is_plain tells those that are readable and nothing else. */
    static int kfast_wait(int epoll_fd, int *fds, char *is_plain, int most, int64_t timeout_ms) {
        struct epoll_event events[32];
        int i, count = epoll_wait(epoll_fd, events, most, (int) timeout_ms);
        for (i = 0; i < count; i++) {
            fds[i] = events[i].data.fd;
            is_plain[i] = events[i].events == EPOLLIN;
        }
        return count;
    }

    /* Bytes received; 0 when the socket is empty for now, -1 at its end or on an error. */
    static Py_ssize_t kfast_recv(int fd, char *at, Py_ssize_t room) {
        ssize_t count = recv(fd, at, (size_t) room, MSG_DONTWAIT);
        if (count > 0)
            return count;
        return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
    }
    #else
    static int64_t kfast_now_ms(void) { return 0; }
    static int kfast_wait(int epoll_fd, int *fds, char *is_plain, int most, int64_t timeout_ms) {
        (void) epoll_fd; (void) fds; (void) is_plain; (void) most; (void) timeout_ms;
        return -1;
    }
    static Py_ssize_t kfast_recv(int fd, char *at, Py_ssize_t room) {
        (void) fd; (void) at; (void) room;
        return -1;
    }
    #endif
    """
    int64_t now_ms "kfast_now_ms"() noexcept nogil
    int wait_events "kfast_wait"(
        int epoll_fd, int* fds, char* is_plain, int most, int64_t timeout_ms
    ) noexcept nogil
    Py_ssize_t receive "kfast_recv"(int fd, char* at, Py_ssize_t room) noexcept nogil


cdef enum:
    PREFIX_BYTES = 4
    MAX_TARGETS = 16
    MAX_EVENTS = 32


cdef struct Target:
    int fd
    char[PREFIX_BYTES] prefix
    Py_ssize_t prefix_filled
    Py_ssize_t frame_size      # -1 while not known
    Py_ssize_t frame_filled
    Py_ssize_t max_own_bytes   # larger frames are not begun here
    char* frame                # NULL while there is none
    Py_ssize_t capacity        # of a block that was taken here, else 0
    Py_ssize_t received
    bint is_done               # the frame is complete, or its size is not acceptable
    bint is_held               # the loop has to look at it before anything more is received


cdef void receive_into(Target* target) noexcept nogil:
    """Receive what the socket has, up to the end of one frame."""
    cdef Py_ssize_t count
    while not target.is_done and not target.is_held:
        if target.frame_size < 0:
            count = receive(
                target.fd,
                target.prefix + target.prefix_filled,
                PREFIX_BYTES - target.prefix_filled,
            )
        else:
            count = receive(
                target.fd,
                target.frame + target.frame_filled,
                target.frame_size - target.frame_filled,
            )
        if count <= 0:
            target.is_held = count < 0
            return
        target.received += count
        if target.frame_size >= 0:
            target.frame_filled += count
            target.is_done = target.frame_filled == target.frame_size
            continue
        target.prefix_filled += count
        if target.prefix_filled == PREFIX_BYTES:
            begin_frame(target)


cdef void begin_frame(Target* target) noexcept nogil:
    cdef Py_ssize_t size = load_i32(target.prefix)
    if size <= 0 or size > target.max_own_bytes:
        target.is_held = True
        return
    target.frame = take_block(size, &target.capacity)
    if target.frame is NULL:
        target.capacity = 0
        target.is_held = True
        return
    target.frame_size = size


cdef bint receive_all(
    int epoll_fd, Target* targets, int used, int64_t timeout_ms
) noexcept nogil:
    """Receive until a frame is done or the loop is needed; return whether it is."""
    cdef int[MAX_EVENTS] fds
    cdef char[MAX_EVENTS] is_plain
    cdef int64_t end_ms = now_ms() + timeout_ms
    cdef int64_t left_ms
    cdef int i, k, count
    cdef bint is_done = False
    cdef bint is_loop_needed = False
    while not is_done and not is_loop_needed:
        left_ms = end_ms - now_ms()
        count = wait_events(epoll_fd, fds, is_plain, MAX_EVENTS, left_ms if left_ms > 0 else 0)
        if count <= 0:
            return count < 0
        for i in range(count):
            k = 0
            while k < used and targets[k].fd != fds[i]:
                k += 1
            if k == used or not is_plain[i]:
                is_loop_needed = True
                continue
            receive_into(&targets[k])
            is_done |= targets[k].is_done
            is_loop_needed |= targets[k].is_held
    return is_loop_needed


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

    cdef void store(self, Target* target):
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


def receive_frames(
    int epoll_fd, dict receivers, Py_ssize_t max_own_bytes, int64_t timeout_ms
) -> tuple[int, bool]:
    """Wait and receive, without the GIL, until a frame is complete or anything else happens.

    Parameters
    ----------
    epoll_fd : int
        The epoll set that the sockets are registered in, level-triggered.
    receivers : dict of int to FrameReceiver
        By descriptor; none of them has a view given out. After 16 the others are not served.
    max_own_bytes : int
        Frames up to this size are begun here; for larger ones the caller sees to the memory, and
        their sockets are not read before that.
    timeout_ms : int
        Longest wait.

    Returns
    -------
    tuple of int and bool
        Bytes received, and whether the caller's own select has something to see. Where there is
        no epoll, 0 and True at once. Call ``take_ready`` of all receivers if bytes were received.
    """
    cdef Target[MAX_TARGETS] targets
    cdef FrameReceiver receiver
    cdef list served = []
    cdef Py_ssize_t total = 0
    cdef int used = 0
    cdef int i
    cdef bint is_loop_needed
    for fd, receiver in receivers.items():
        if used == MAX_TARGETS:
            break
        if receiver.view is not None or receiver.has_failed:
            raise ValueError("a receiver with a view given out, or after an error")
        receiver.load(&targets[used], fd, max_own_bytes)
        served.append(receiver)
        used += 1
    with nogil:
        is_loop_needed = receive_all(epoll_fd, targets, used, timeout_ms)
    for i in range(used):
        if targets[i].received:
            receiver = served[i]
            receiver.store(&targets[i])
            total += targets[i].received
    return total, is_loop_needed


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
