"""WakeupEvent: an event for one waiting thread.

Owns one lock of the interpreter, which is taken until the event is set. It does for one waiting
thread what a ``Condition`` does for many, without Python code between `set` and the moment the
waiting thread runs: that code would not be in the processor's caches, and it would run for every
record that an application waits for at the end of a log.

`release_and_wait` is why this is compiled. A thread that sets an event from Python still has the
GIL: the thread it wakes runs, finds the GIL taken and sleeps again, often on the same processor.
Here the GIL is released first, then the other thread is woken, then comes the wait: one context
switch instead of three.

Threads: `prepare` and `claim_waiter` under one lock of the callers', `wait` and `release_and_wait`
not. `set` under the lock, or without it (a signal handler may run on a thread that has taken it)
if the waiting thread checks its condition after `prepare`: a change it does not see is followed by
a `set` that ends the wait.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    PY_LOCK_INTR,
    PyLockStatus,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)

from time import monotonic


cdef extern from "pythread.h" nogil:
    ctypedef long long PY_TIMEOUT_T
    PyLockStatus PyThread_acquire_lock_timed(
        PyThread_type_lock lock, PY_TIMEOUT_T microseconds, int may_be_interrupted)


cdef enum:
    LONGEST_S = 3600               # of one wait in C; a longer one is made of several


cdef inline PY_TIMEOUT_T microseconds(double seconds) noexcept nogil:
    return <PY_TIMEOUT_T> (max(0.0, min(seconds, <double> LONGEST_S)) * 1e6)


@cython.final
cdef class WakeupEvent:
    """Set by any thread, awaited by one.

    Attributes
    ----------
    has_waiter : bool
        Whether a thread waits, or is about to. True from `prepare` until that thread runs again.
    """
    cdef PyThread_type_lock lock   # free: the event was set and no wait has ended by it yet
    cdef bint is_set
    cdef readonly bint has_waiter

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock is NULL:
            raise MemoryError("no lock for a WakeupEvent")
        PyThread_acquire_lock(self.lock, False)

    def __dealloc__(self):
        if self.lock is not NULL:
            PyThread_acquire_lock(self.lock, False)
            PyThread_release_lock(self.lock)
            PyThread_free_lock(self.lock)

    def prepare(self):
        """Clear the event and announce the `wait` that follows. Under the lock."""
        while PyThread_acquire_lock(self.lock, False):
            pass                   # an earlier wait timed out before its `set`
        self.is_set = False
        self.has_waiter = True

    def set(self):
        """End the `wait` that `prepare` announced; no effect without one."""
        if self.claim_waiter():
            PyThread_release_lock(self.lock)

    cpdef bint claim_waiter(self):
        """Reserve the wake-up for a `release_and_wait`; False if no thread waits. Under the lock.

        A caller that gets True has to call `release_and_wait`; no other `set` ends that wait.
        """
        if not self.has_waiter or self.is_set:
            return False
        self.is_set = True
        return True

    def release_and_wait(self, WakeupEvent other not None, double timeout_s):
        """Wake the claimed waiter, and wait for ``other``, which is prepared, with a timeout."""
        with nogil:
            PyThread_release_lock(self.lock)
            PyThread_acquire_lock_timed(other.lock, microseconds(timeout_s), False)
        other.has_waiter = False

    def wait(self, timeout_s=None):
        """Wait until the event is set or the timeout expires; None means no timeout.

        Not under the lock. An exception of a signal handler (KeyboardInterrupt) ends it too.
        """
        cdef bint has_no_timeout = timeout_s is None
        cdef double left_s = LONGEST_S if has_no_timeout else timeout_s
        cdef double until_s = 0 if has_no_timeout else monotonic() + left_s
        cdef PyLockStatus status
        try:
            while not PyThread_acquire_lock(self.lock, False):
                with nogil:
                    status = PyThread_acquire_lock_timed(self.lock, microseconds(left_s), True)
                if status == PY_LOCK_INTR:
                    PyErr_CheckSignals()
                elif status:
                    return
                if not has_no_timeout:
                    left_s = until_s - monotonic()
                    if left_s <= 0:
                        return
        finally:
            self.has_waiter = False

    def __repr__(self):
        return f"<WakeupEvent {'awaited' if self.has_waiter else 'idle'}>"
