"""Waker: wakes a selector through a socket pair.

Owns the flag that suppresses further bytes while one is on its way. Compiled, because a signal
handler that raises between the flag and the byte would leave a selector that is never woken again;
within compiled code none runs. The GIL is held, so that the descriptor is not closed meanwhile.
"""

cimport cython


cdef extern from "<sys/socket.h>" nogil:
    Py_ssize_t send(int fd, const void *data, size_t size, int flags)


cdef extern from *:
    """
    #ifdef MSG_NOSIGNAL
    #define KFAST_SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)
    #else
    #define KFAST_SEND_FLAGS MSG_DONTWAIT
    #endif
    """
    const int KFAST_SEND_FLAGS


@cython.final
cdef class Waker:
    """Writes to ``fd``, one end of a socket pair, unless a byte is on its way.

    `wakeup` by any thread, also from a signal handler; the others by the selector's.
    """
    cdef int fd
    cdef bint is_pending

    def __init__(self, int fd):
        self.fd = fd

    def wakeup(self):
        """Send a byte; no effect after `close`."""
        if self.is_pending or self.fd < 0:
            return
        self.is_pending = True
        send(self.fd, b"\0", 1, KFAST_SEND_FLAGS)

    def received(self):
        """Note that the socket pair is empty: the next `wakeup` sends a byte again."""
        self.is_pending = False

    def close(self):
        """Send nothing any more; the descriptor is the caller's to close."""
        self.fd = -1

    def __repr__(self):
        return f"<Waker{' pending' if self.is_pending else ''}>"
