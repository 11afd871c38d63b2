"""AccessGuard: a consumer is used by one thread at a time, in one process, until it is closed.

Owns this check for the public calls of ``KafkaConsumer``. It detects misuse; it is not the lock of
any state (``SubscriptionState`` and ``FetchBuffer`` have their own).

Compiled, because signal handlers, and so Ctrl-C, run between any two instructions of Python code:
one between two steps of entering or leaving would find, or leave, a consumer locked without an
owner. No handler runs within a compiled method.
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
    """Context manager around every public call that is not answered from a snapshot.

    Re-entrant for the owning thread, so that user callbacks may call the consumer.

    Attributes
    ----------
    is_closed : bool
        Whether `close` was called.

    Raises
    ------
    IllegalStateError
        On entering from a second thread, in a forked child, or after ``close``.
    """
    cdef PyThread_type_lock lock   # taken while a thread is inside of a call
    cdef long owner
    cdef int depth
    cdef int pid
    cdef object on_exit
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
        """Whether the calling thread is inside of a call, also in a callback or signal handler."""
        return self.depth > 0 and self.owner == PyThread_get_thread_ident()

    def close(self):
        """Refuse every later entry."""
        self.is_closed = True

    def call_on_exit(self, action):
        """Call ``action()`` when the owning thread leaves its outermost call.

        An exception it raises replaces the outcome of that call. If the action closes the consumer,
        a call that has raised nothing raises that it is closed.
        """
        self.on_exit = action

    def check_usable(self):
        """Raise in a forked child and after ``close``. Any thread: it enters nothing."""
        self.check()

    cdef int check(self) except -1:
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
        return 0

    def __enter__(self):
        cdef long me
        self.check()
        me = PyThread_get_thread_ident()
        if self.owner != me:
            if not PyThread_acquire_lock(self.lock, False):
                raise IllegalStateError(
                    "KafkaConsumer is used by two threads at once",
                    cause="another thread is inside a call of this consumer",
                    hint="give each thread its own consumer; any thread may call wakeup(), and "
                    "read assignment(), health() and metrics()",
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
        if self.on_exit is not None:
            action, self.on_exit = self.on_exit, None
            action()
            if exc_type is None and self.is_closed:
                raise IllegalStateError(
                    "this KafkaConsumer is closed",
                    cause="close() was called inside this call, by a callback or a signal handler",
                    hint="make a new KafkaConsumer to read on",
                )

    def __repr__(self):
        state = "closed" if self.is_closed else f"depth={self.depth}"
        return f"<AccessGuard {state}>"
