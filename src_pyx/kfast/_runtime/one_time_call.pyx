"""Calls that are noted as they happen: OneTimeCall, CallDepth.

`OneTimeCall` owns whether a call has begun and what it raised, `CallDepth` how many calls of a kind
are inside. The first is used for the user's callbacks in work that an
exception of a signal handler may interrupt and that goes on later, such as a rebalance step.

Compiled, because a signal handler runs between any two instructions of bytecode: here none can run
between noting the call and the first instruction of what is called, nor between its last one and
noting its outcome.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals


@cython.final
cdef class OneTimeCall:
    """Makes one call, once. One thread.

    Attributes
    ----------
    is_begun : bool
        Whether the call was made.
    is_running : bool
        Whether it has not ended yet.
    error : BaseException or None
        What it raised.
    """
    cdef readonly bint is_begun
    cdef readonly bint is_running
    cdef readonly object error

    def run(self, function, *args):
        """Call ``function(*args)`` unless a call was made before; what it raises is kept."""
        if self.is_begun:
            return
        PyErr_CheckSignals()       # what a pending one raises comes before the call
        self.is_begun = self.is_running = True
        try:
            function(*args)
        except BaseException as error:
            self.error = error
        self.is_running = False

    def __repr__(self):
        state = "running" if self.is_running else "made" if self.is_begun else "due"
        return f"<OneTimeCall {state}>"


@cython.final
cdef class CallDepth:
    """Context manager that counts the calls which are inside of it. One thread.

    Attributes
    ----------
    depth : int
        How many.
    """
    cdef readonly int depth

    def __enter__(self):
        self.depth += 1
        return self

    def __exit__(self, exc_type, exc, traceback):
        self.depth -= 1

    def __repr__(self):
        return f"<CallDepth {self.depth}>"
