# cython: language_level=3
"""SignalInjector: a signal arrives at one chosen place of a call, as the interpreter would see it.

The interpreter looks for signals on the main thread when a function begins or a generator goes on,
when a call has ended and when a loop goes round. A signal that arrives between two of these places
is handled at the second one, so they are all the places there are. A trace function written in C is
called before each of them and marks the signal as arrived; its handler then runs where it would.
A trace function in Python could not do this: its own beginning is such a place.

When a function ends that compiled code has called (``sorted`` its key), the interpreter does not look
before the call of the compiled code has ended: this is another place than the beginning of the
function. It cannot be told from the end of a function that Python code has called, where the next
place is the caller's: so a few places are tried twice.

A place is identified by the instructions of all frames from the traced call down to it, so a
function that is called from two lines has its places twice. Main thread only.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF


cdef extern from "Python.h":
    ctypedef struct PyFrameObject:
        pass
    ctypedef struct PyCodeObject:
        pass
    ctypedef int (*Py_tracefunc)(PyObject*, PyFrameObject*, int, PyObject*) except -1
    int PyTrace_CALL, PyTrace_RETURN, PyTrace_OPCODE
    void PyEval_SetTrace(Py_tracefunc function, PyObject* argument)
    PyFrameObject* PyFrame_GetBack(PyFrameObject* frame)
    PyCodeObject* PyFrame_GetCode(PyFrameObject* frame)
    int PyFrame_GetLasti(PyFrameObject* frame)
    int PyErr_SetInterruptEx(int number)
    int PyErr_CheckSignals() except -1


cdef enum:
    SHIFT = 1000003                # of a polynomial over the frames of a stack
    BEGINNING = -1                 # in place of an instruction: the function begins
    END = -2                       # or ends


cdef class SignalInjector:
    """Calls something with a signal that arrives at a place, and notes the places it passes.

    Parameters
    ----------
    number : int
        The signal. It has a handler in Python.
    looks_for_signals : callable
        Returns for a code object one byte for each byte of its instructions: whether it is the
        start of an instruction after which the interpreter looks for signals.
    describe : callable
        Returns text for a frame that is at a place.

    Attributes
    ----------
    labels : dict
        The texts of all places passed so far, in order.
    passes : dict
        How often the last `run` passed each of its places, until the signal arrived.
    is_sent : bool
        Whether the signal arrived in the last `run`.
    """
    cdef int number
    cdef object looks_for_signals
    cdef object describe
    cdef dict tables               # by address: to hash a code object takes long
    cdef list codes                # keeps them alive
    cdef object target
    cdef long skipped
    cdef long instruction          # counted down to the one that the signal precedes
    cdef PyFrameObject* base
    cdef bint has_base
    cdef bint was_call
    cdef readonly dict labels
    cdef readonly dict passes
    cdef readonly bint is_sent

    def __init__(self, int number, looks_for_signals, describe):
        self.number = number
        self.looks_for_signals = looks_for_signals
        self.describe = describe
        self.tables = {}
        self.codes = []
        self.labels = {}
        self.passes = {}

    def run(self, call, target=None, long skipped=0, long instruction=0):
        """Call ``call()``; return its result, or raise what it raises.

        The signal arrives at the place ``target``, once it was passed ``skipped`` times, or before
        an instruction of any kind, counted from 1.
        """
        self.target = target
        self.skipped = skipped
        self.instruction = instruction
        self.is_sent = False
        self.has_base = False
        self.was_call = False
        self.passes = {}
        PyEval_SetTrace(on_event, <PyObject*> self)
        try:
            return call()
        finally:
            PyEval_SetTrace(NULL, NULL)
            self.has_base = False

    @staticmethod
    def flush():
        """Let the handlers of signals run that have arrived."""
        PyErr_CheckSignals()


cdef int on_event(PyObject* argument, PyFrameObject* frame, int what, PyObject* value) except -1:
    cdef SignalInjector injector = <SignalInjector> argument
    cdef PyFrameObject* caller
    cdef int kind
    if what == PyTrace_CALL or what == PyTrace_OPCODE:
        injector.instruction -= 1
        if injector.instruction == 0:
            send(injector)
            return 0
    if what == PyTrace_CALL:
        begin_frame(injector, frame)
        if injector.was_call:      # the instruction that called it has the same place
            injector.was_call = False
            return 0
        passed(injector, frame, BEGINNING)
    elif what == PyTrace_OPCODE:
        kind = kind_of(injector, frame)
        injector.was_call = kind == 2
        if kind:
            passed(injector, frame, PyFrame_GetLasti(frame))
    elif what == PyTrace_RETURN:
        injector.was_call = False
        caller = PyFrame_GetBack(frame)
        Py_XDECREF(<PyObject*> caller)
        if frame is not injector.base and caller is not NULL and kind_of(injector, caller) == 2:
            passed(injector, frame, END)
    return 0


cdef int kind_of(SignalInjector injector, PyFrameObject* frame) except -1:
    """Return the entry of the current instruction in the table of its code."""
    cdef PyObject* code = <PyObject*> PyFrame_GetCode(frame)
    cdef bytes table
    cdef const unsigned char* kinds
    cdef int at = PyFrame_GetLasti(frame)
    Py_XDECREF(code)
    table = injector.tables.get(<size_t> code)
    if table is None:
        table = injector.looks_for_signals(<object> code)
        injector.codes.append(<object> code)
        injector.tables[<size_t> code] = table
    kinds = table
    return kinds[at] if at >= 0 else 0


cdef int begin_frame(SignalInjector injector, PyFrameObject* frame) except -1:
    if not injector.has_base:
        injector.has_base = True
        injector.base = frame
    (<object> frame).f_trace_lines = False
    (<object> frame).f_trace_opcodes = True
    return 0


cdef int passed(SignalInjector injector, PyFrameObject* frame, int at) except -1:
    cdef Py_hash_t place = stack_of(injector, frame, at)
    if place not in injector.labels:
        injector.labels[place] = injector.describe(<object> frame)
    injector.passes[place] = injector.passes.get(place, 0) + 1
    if injector.target is not None and place == <Py_hash_t> injector.target:
        if injector.skipped:
            injector.skipped -= 1
            return 0
        send(injector)
    return 0


cdef int send(SignalInjector injector) except -1:
    injector.is_sent = True
    PyEval_SetTrace(NULL, NULL)
    PyErr_SetInterruptEx(injector.number)
    return 0


cdef Py_hash_t stack_of(SignalInjector injector, PyFrameObject* frame, int at):
    """Return a number for the instructions of all frames from the traced call to this one."""
    cdef size_t number = 0
    cdef PyFrameObject* each = frame
    cdef PyCodeObject* code
    cdef PyFrameObject* back
    while each is not NULL:
        code = PyFrame_GetCode(each)
        number = (number * SHIFT) ^ <size_t> code
        number = (number * SHIFT) ^ <size_t> at
        Py_XDECREF(<PyObject*> code)
        if each is injector.base:
            break
        back = PyFrame_GetBack(each)
        Py_XDECREF(<PyObject*> back)  # its caller runs, so it lives
        each = back
        if each is not NULL:
            at = PyFrame_GetLasti(each)
    return <Py_hash_t> (number >> 1)
