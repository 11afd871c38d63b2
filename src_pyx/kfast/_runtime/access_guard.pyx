"""AccessGuard: one consumer, one calling thread, one process.

Owns the rule that a ``KafkaConsumer`` is used by one thread at a time, not after ``close`` and not
in a forked child. It protects the caller from itself; it is not the lock of any state
(``SubscriptionState`` and ``FetchBuffer`` have their own).

Why it is compiled: signal handlers, and so Ctrl-C, run between any two instructions of Python code.
One that ran between two steps of entering or leaving would find, or leave behind, a consumer that
nobody is inside of and nobody can enter. Here no handler runs.
"""

cimport cython
from cpython.pythread cimport (
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
    PyThread_type_lock,
)
from posix.unistd cimport getpid

from kfast.errors import IllegalStateError


@cython.final
cdef class AccessGuard:
    """Context manager around every public call but ``wakeup``.

    Re-entrant for the thread that is inside, so that user callbacks may call the consumer.

    Attributes
    ----------
    is_closed : bool
        Whether `close` was called.

    Raises
    ------
    IllegalStateError
        On entering from a second thread, in a forked child, or after ``close``.
    """
    cdef PyThread_type_lock lock   # taken while a thread is inside
    cdef long owner
    cdef int depth
    cdef int pid
    cdef object afterwards
    cdef readonly bint is_closed

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock is NULL:
            raise MemoryError("no lock for an AccessGuard")
        self.pid = getpid()

    def __dealloc__(self):
        if self.lock is not NULL:
            PyThread_acquire_lock(self.lock, False)
            PyThread_release_lock(self.lock)
            PyThread_free_lock(self.lock)

    @property
    def is_forked(self):
        """Whether this process is a forked child of the one that made the consumer."""
        return getpid() != self.pid

    @property
    def is_inside(self):
        """Whether the calling thread is inside of a call, as its callbacks and handlers are."""
        return self.depth > 0 and self.owner == PyThread_get_thread_ident()

    def close(self):
        """Refuse every later entry."""
        self.is_closed = True

    def call_on_exit(self, action):
        """Have ``action()`` called as soon as the thread that is inside has left.

        What it raises takes the place of what the call ends with.
        """
        self.afterwards = action

    def __enter__(self):
        cdef long me
        if getpid() != self.pid:
            raise IllegalStateError(
                "this KafkaConsumer was made before fork() and cannot be used in the child",
                cause="its sockets and threads belong to the parent process",
                hint="make a new KafkaConsumer in the child",
            )
        if self.is_closed:
            raise IllegalStateError(
                "this KafkaConsumer is closed", hint="make a new KafkaConsumer to read on"
            )
        me = PyThread_get_thread_ident()
        if self.owner != me:
            if not PyThread_acquire_lock(self.lock, False):
                raise IllegalStateError(
                    "KafkaConsumer is used by two threads at once",
                    cause="another thread is inside a call of this consumer",
                    hint="give each thread its own consumer; only wakeup() may be called from "
                    "another thread",
                )
            self.owner = me
        self.depth += 1
        return self

    def __exit__(self, exc_type, exc, traceback):
        self.depth -= 1
        if self.depth:
            return
        self.owner = 0
        PyThread_release_lock(self.lock)
        if self.afterwards is not None:
            action, self.afterwards = self.afterwards, None
            action()

    def __repr__(self):
        state = "closed" if self.is_closed else f"depth={self.depth}"
        return f"<AccessGuard {state}>"
