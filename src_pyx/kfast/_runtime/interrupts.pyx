"""Interrupts: Ctrl-C inside a poll, put off from where it would lose records.

Python raises ``KeyboardInterrupt`` between any two instructions of the main thread. In the few that
move positions, release what is handed out and carry it to the caller, that would lose records for
an application that goes on, as one in a notebook does. So while a poll is inside, a handler of our
own stands in for Python's: it raises at once, or, in those instructions, notes the signal.

It does so on the main thread only, where handlers run, and only if Python's own handler is
installed: what else an application does with SIGINT is its own business. Outside of polls nothing
is changed. Application thread only.

Compiled, because every poll begins and ends here: the functions of the ``signal`` module wrap those
of C in conversions to enums, which take longer than all else that a poll on a quiet topic does.
"""

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident

from _signal import SIGINT as _SIGINT, default_int_handler, getsignal, signal as set_handler
from threading import main_thread


@cython.final
cdef class Interrupts:
    """Stands in for the handler of SIGINT from `begin` to `end`.

    They may be nested: a listener may poll.

    Attributes
    ----------
    depth : int
        How many polls are inside.
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
        """Begin a poll; `end` has to follow, also if this is interrupted."""
        self.depth += 1
        if (
            self.depth == 1
            and PyThread_get_thread_ident() == self.main_thread
            and getsignal(_SIGINT) is default_int_handler
        ):
            self.install(self.handler)

    def end(self):
        """End a poll; return whether a signal was noted, which is the caller's to raise."""
        cdef bint is_pending
        self.depth = max(0, self.depth - 1)
        self.is_deferring = True   # to install a handler runs those of signals that have come
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
        """From now on note the signal only."""
        self.is_deferring = True

    def resume(self):
        """Raise ``KeyboardInterrupt`` if a signal was noted, and from now on at once."""
        self.is_deferring = False
        if self.is_pending:
            self.is_pending = False
            raise KeyboardInterrupt

    def run(self, function, *args):
        """Call a user's code, which may be interrupted in the midst of what may not."""
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
