"""Bell: one thread waits until another one rings.

Owns one lock of the interpreter, used as a gate, and the rule who opens it. Does for one waiting
thread what a ``Condition`` does for many, without Python code between the ring and the moment the
waiting thread runs: that code is run cold, on the way of every record that an application waits for
at the end of a log.

``hand_over`` is why this is compiled. A thread that rings from Python still holds the GIL: the
thread it wakes runs, finds the GIL taken and sleeps again, often on the same processor. Here the
GIL is given up first, then the other is woken, then comes the wait: one change of threads instead
of three.

Threads: ``arm`` and ``promise`` under one lock of the callers', ``wait`` and ``hand_over`` not.
``ring`` under the lock, or without it (a signal handler may run on a thread that holds it) if the
waiting thread looks for what it waits for after ``arm``: what it does not see then rings.
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
cdef class Bell:
    """Rung by whoever holds a lock, heard by one thread that does not.

    Attributes
    ----------
    is_armed : bool
        Whether a thread waits, or is about to. It stays so until that thread runs again.
    """
    cdef PyThread_type_lock gate   # open: there was a ring that no wait has heard
    cdef bint is_rung
    cdef readonly bint is_armed

    def __cinit__(self):
        self.gate = PyThread_allocate_lock()
        if self.gate is NULL:
            raise MemoryError("no lock for a Bell")
        PyThread_acquire_lock(self.gate, False)

    def __dealloc__(self):
        if self.gate is not NULL:
            PyThread_acquire_lock(self.gate, False)
            PyThread_release_lock(self.gate)
            PyThread_free_lock(self.gate)

    def arm(self):
        """Have a ring from now on end the `wait` that follows. Under the lock."""
        while PyThread_acquire_lock(self.gate, False):
            pass                   # an earlier wait ended without its ring
        self.is_rung = False
        self.is_armed = True

    def ring(self):
        """End the `wait` that `arm` announced; nothing without one."""
        if self.promise():
            PyThread_release_lock(self.gate)

    cpdef bint promise(self):
        """Announce the ring of a `hand_over` that follows; False if nobody waits. Under the lock.

        Whoever gets True has to call `hand_over`; no other ring will end that wait.
        """
        if not self.is_armed or self.is_rung:
            return False
        self.is_rung = True
        return True

    def hand_over(self, Bell back not None, double timeout_s):
        """Ring as promised, and wait for ``back``, which is armed, for at most so long."""
        with nogil:
            PyThread_release_lock(self.gate)
            PyThread_acquire_lock_timed(back.gate, microseconds(timeout_s), False)
        back.is_armed = False

    def wait(self, timeout_s=None):
        """Wait for a ring, for at most so long; None means for ever. Not under the lock.

        An exception of a signal handler, such as KeyboardInterrupt, ends it too.
        """
        cdef bint is_endless = timeout_s is None
        cdef double left_s = LONGEST_S if is_endless else timeout_s
        cdef double until_s = 0 if is_endless else monotonic() + left_s
        cdef PyLockStatus status
        try:
            while not PyThread_acquire_lock(self.gate, False):
                with nogil:
                    status = PyThread_acquire_lock_timed(self.gate, microseconds(left_s), True)
                if status == PY_LOCK_INTR:
                    PyErr_CheckSignals()
                elif status:
                    return
                if not is_endless:
                    left_s = until_s - monotonic()
                    if left_s <= 0:
                        return
        finally:
            self.is_armed = False

    def __repr__(self):
        return f"<Bell {'armed' if self.is_armed else 'idle'}>"
