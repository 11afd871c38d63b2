"""Waker: a socket pair by which any thread wakes a selector.

Owns the pair, and the flag that suppresses further bytes while one is on its way. Compiled, because
a signal handler that raises between the flag and the byte would leave a selector that is never
woken again, and one between the making of the sockets and their owner would leave them open; within
compiled code none runs. The GIL is held, so that no descriptor is closed meanwhile.
"""

cimport cython
from cpython.exc cimport PyErr_SetFromErrno


cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/socket.h>
    #include <sys/types.h>
    #include <unistd.h>

    #ifdef MSG_NOSIGNAL
    #define KFAST_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)
    #else
    #define KFAST_FLAGS MSG_DONTWAIT
    #endif

    static int kfast_pair(int *fds) {
        int i;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0)
            return -1;
        for (i = 0; i < 2; i++) {
            fcntl(fds[i], F_SETFD, FD_CLOEXEC);
            fcntl(fds[i], F_SETFL, O_NONBLOCK);
        }
        return 0;
    }

    static void kfast_wake(int fd) {
        ssize_t sent = send(fd, "", 1, KFAST_FLAGS);
        (void) sent;
    }

    static void kfast_drain(int fd) {
        char bytes[64];
        while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) == (ssize_t) sizeof bytes)
            ;
    }
    """
    int kfast_pair(int *fds)
    void kfast_wake(int fd)
    void kfast_drain(int fd)
    int close(int fd)


@cython.final
cdef class Waker:
    """Readable from `wakeup` to `drain`.

    `wakeup` by any thread, also from a signal handler; the others by the selector's. OSError if
    there are no more descriptors.
    """
    cdef int fds[2]                # that is read, and that is written
    cdef bint is_pending

    def __cinit__(self):
        self.fds[0] = self.fds[1] = -1
        if kfast_pair(self.fds) < 0:
            PyErr_SetFromErrno(OSError)

    def __dealloc__(self):
        self.end()

    def fileno(self):
        """Return the descriptor to wait for, -1 after `close`."""
        return self.fds[0]

    def wakeup(self):
        """Make it readable; no effect after `close`."""
        if self.is_pending or self.fds[1] < 0:
            return
        self.is_pending = True
        kfast_wake(self.fds[1])

    def drain(self):
        """Empty it: the next `wakeup` makes it readable again."""
        if self.fds[0] >= 0:
            kfast_drain(self.fds[0])
        self.is_pending = False

    def close(self):
        """Close the pair. Idempotent."""
        self.end()

    cdef void end(self) noexcept:
        cdef int i
        for i in range(2):
            if self.fds[i] >= 0:
                close(self.fds[i])
            self.fds[i] = -1

    def __repr__(self):
        return f"<Waker{' pending' if self.is_pending else ''}>"
