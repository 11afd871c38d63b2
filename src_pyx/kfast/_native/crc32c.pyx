"""Checksums of record data: CRC-32C of record batches, CRC-32 of old message sets.

Owns the choice of the implementation:

* ``crc32c_direct`` is ``crc32c_instructions.pxd``: no GIL, no call. On x86-64 it is used for all
  batches, at about four times the package's speed with AVX-512 and at the same speed without; on
  AArch64 for short ones.
* ``crc32c_packaged`` calls the crc32c package: where ``is_crc32c_direct`` is false, and always on a
  processor without the instructions. A call costs about 0.15 microseconds and needs the GIL.

``bench/micro/test_codecs.py`` measures both; the package is the oracle in the tests.

A missing package is an ImportError, never a slow path (D-27). Its presence is checked at import, it
is imported when first needed: its import reads the metadata of installed packages, which takes
longer than all of kfast's own modules (much longer in Spark's processes). Any thread.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint32_t

from importlib.util import find_spec
from zlib import crc32 as zlib_crc32

from kfast._native.crc32c_instructions cimport kfast_crc32c, kfast_crc32c_limit

if find_spec("crc32c") is None:
    raise ModuleNotFoundError("kfast needs the package crc32c", name="crc32c")


cdef Py_ssize_t direct_limit = kfast_crc32c_limit()
cdef object package_crc32c = None


cdef object imported_crc32c():
    """Return the package's function."""
    global package_crc32c
    if package_crc32c is None:
        from crc32c import crc32c as found
        package_crc32c = found
    return package_crc32c


cdef bint is_crc32c_direct(Py_ssize_t size) noexcept nogil:
    return size <= direct_limit


cdef uint32_t crc32c_direct(const char* data, Py_ssize_t size) noexcept nogil:
    return kfast_crc32c(data, size)


cdef uint32_t crc32c_packaged(const char* data, Py_ssize_t size) except? 0:
    return imported_crc32c()(PyMemoryView_FromMemory(<char*> data, size, PyBUF_READ))


cdef uint32_t crc32_ieee(const char* data, Py_ssize_t size) except? 0:
    return zlib_crc32(PyMemoryView_FromMemory(<char*> data, size, PyBUF_READ))


def crc32c(data, uint32_t value=0) -> int:
    """CRC-32C of a bytes-like object, continued from ``value``."""
    return imported_crc32c()(data, value)


def crc32c_hardware(const unsigned char[::1] data):
    """CRC-32C by the processor's instructions, at any length; None without them."""
    if direct_limit == 0:
        return None
    return kfast_crc32c(<const char*> &data[0] if data.shape[0] else NULL, data.shape[0])


def crc32(data) -> int:
    """CRC-32 (IEEE) of a bytes-like object."""
    return zlib_crc32(data)
