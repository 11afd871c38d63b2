"""Interrupts: defers Ctrl-C inside a poll where it would lose records.

Python raises ``KeyboardInterrupt`` between any two instructions of the main thread. In those that
advance positions and return records to the caller, that would lose records of an application that
continues, as in a notebook. So during a poll a SIGINT handler of this class replaces Python's: it
raises at once, or, in those instructions, records the signal.

It is installed on the main thread only, where handlers run, and only in place of Python's default
handler, never of an application's. Outside of polls nothing is changed. Application thread only.

Compiled, because it is part of every poll: the functions of the ``signal`` module convert to enums,
which takes longer than the rest of a poll without records.
"""

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident

from _signal import SIGINT as _SIGINT, default_int_handler, getsignal, signal as set_handler
from threading import main_thread


@cython.final
cdef class Interrupts:
    """Replaces the handler of SIGINT from `begin` to `end`.

    Calls may be nested, because a listener may poll; ``depth`` counts them.
    """
    cdef object handler
    cdef long main_thread
    cdef bint is_deferring
    cdef bint is_pending
    cdef readonly int depth

    def __cinit__(self):
        self.handler = self.handle
        self.main_thread = main_thread().ident

    def begin(self):
        """Begin a poll; `end` has to be called, also if this is interrupted."""
        self.depth += 1
        if (
            self.depth == 1
            and PyThread_get_thread_ident() == self.main_thread
            and getsignal(_SIGINT) is default_int_handler
        ):
            self.install(self.handler)

    def end(self):
        """End a poll; return whether a signal was recorded, which the caller has to raise."""
        cdef bint is_pending
        self.depth = max(0, self.depth - 1)
        self.is_deferring = True   # installing a handler runs those of pending signals
        if (
            self.depth == 0
            and PyThread_get_thread_ident() == self.main_thread
            and getsignal(_SIGINT) is self.handler
        ):
            self.install(default_int_handler)
        self.is_deferring = False
        is_pending, self.is_pending = self.is_pending, False
        return is_pending

    def defer(self):
        """Only record the signal from now on."""
        self.is_deferring = True

    def resume(self):
        """Raise ``KeyboardInterrupt`` if a signal was recorded, and at once from now on."""
        self.is_deferring = False
        if self.is_pending:
            self.is_pending = False
            raise KeyboardInterrupt

    def run(self, function, *args):
        """Call a user's function, which may be interrupted, inside of a deferred section."""
        cdef bint was_deferring = self.is_deferring
        self.resume()
        try:
            return function(*args)
        finally:
            self.is_deferring = was_deferring

    def handle(self, number, frame):
        """The handler. Public only because Python calls it."""
        if self.is_deferring:
            self.is_pending = True
        else:
            default_int_handler(number, frame)

    cdef install(self, handler):
        try:
            set_handler(_SIGINT, handler)
        except ValueError:         # not the main interpreter
            pass

    def __repr__(self):
        return f"<Interrupts {'deferring' if self.is_deferring else 'open'} depth={self.depth}>"
