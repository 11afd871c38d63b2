"""C interface of WireIds: runs of rows with the same schema; the rules are in the ``.pyx``."""

from libc.stdint cimport int32_t


# What is in front of the payload of some rows that follow each other.
cdef struct WireRun:
    Py_ssize_t row          # the first one
    Py_ssize_t count
    int32_t key             # number in `keys`; -1 unless `status` is WIRE_VALUE
    int32_t offset          # of the payload in each value
    int32_t status


cdef enum WireStatus:
    WIRE_VALUE = 0          # a key and a payload
    WIRE_NULL = 1           # no value
    WIRE_EMPTY = 2          # no bytes
    WIRE_TRUNCATED = 3      # the bytes end within the framing
    WIRE_MAGIC = 4          # another first byte, or a header that has no id
    WIRE_GLUE = 5           # AWS Glue's framing
    WIRE_INDEXES = 6        # message indexes that cannot be


cdef class WireIds:
    cdef WireRun* runs
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t room
    cdef readonly list keys
