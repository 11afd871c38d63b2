"""Receives frames from plain sockets without the GIL.

Owns the waiting on the event loop's epoll set and the receiving from its sockets, until a frame is
complete or something else happens. A response of some megabytes arrives in dozens of pieces; each
would otherwise cost a turn of the loop and two changes of the GIL's holder (measured on a real
broker with 1000-byte values: 1.4 times the throughput). Where there is no epoll nothing is received
here, and transports are read through ``FrameReceiver.next_view``.

For sockets that carry the stream of frames as it is, so not for TLS. Network thread only.
"""

from libc.stdint cimport int64_t

from kfast._native.buffers cimport take_block
from kfast._native.endian cimport load_i32
from kfast._native.frame cimport PREFIX_BYTES, FrameReceiver, Target


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

    /* Descriptors with events; is_plain marks those that are readable and nothing else. */
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
    MAX_TARGETS = 16
    MAX_EVENTS = 32


cdef void receive_into(Target* target) noexcept nogil:
    """Receive what the socket has, up to the end of one frame."""
    cdef Py_ssize_t count
    while not target.is_done and not target.is_blocked:
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
            target.is_blocked = count < 0
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
        target.is_blocked = True
        return
    target.frame = take_block(size, &target.capacity)
    if target.frame is NULL:
        target.capacity = 0
        target.is_blocked = True
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
            is_loop_needed |= targets[k].is_blocked
    return is_loop_needed


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
        Frames up to this size are begun here; for larger ones the caller provides the memory, and
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
