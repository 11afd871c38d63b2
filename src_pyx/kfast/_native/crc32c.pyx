"""Checksums of record data: CRC-32C of record batches, CRC-32 of old message sets.

Owns the choice of the implementation:

* ``crc32c_long`` calls the crc32c package, which interleaves streams and is far ahead on long
  inputs, but a call from C costs about 0.15 microseconds and needs the GIL.
* ``crc32c_short`` is one loop over the CPU's CRC instruction. Up to ``SHORT_BYTES`` it is the
  faster one, and a run of tiny batches is checked without the GIL. ``bench/micro/test_codecs.py``
  measures both; the package is its oracle in the tests. Without the instruction (x86 before
  SSE4.2, AArch64 without CRC) the package does everything.

A missing package is an ImportError here, never a slow path (D-27). It is looked for at once and
imported at the first long checksum: its import reads the metadata of installed packages, which
takes longer than all of kfast's own modules (much longer in Spark's processes), and a process that
only asks for offsets has no use for it. Any thread.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint32_t

from importlib.util import find_spec
from zlib import crc32 as zlib_crc32

if find_spec("crc32c") is None:
    raise ModuleNotFoundError("kfast needs the package crc32c", name="crc32c")


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #include <nmmintrin.h>

    static int kfast_has_crc(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("sse4.2");
    }

    __attribute__((target("sse4.2")))
    static uint32_t kfast_crc32c(const char *data, Py_ssize_t size) {
        uint64_t crc = 0xFFFFFFFFu, word;
        for (; size >= 8; size -= 8, data += 8) {
            memcpy(&word, data, 8);
            crc = _mm_crc32_u64(crc, word);
        }
        for (; size > 0; size--, data++)
            crc = _mm_crc32_u8((uint32_t)crc, (unsigned char)*data);
        return ~(uint32_t)crc;
    }

    #elif defined(__aarch64__) && (defined(__APPLE__) || defined(__linux__))
    #include <arm_acle.h>
    #if defined(__linux__)
    #include <sys/auxv.h>
    static int kfast_has_crc(void) { return (getauxval(AT_HWCAP) >> 7) & 1; }
    #else
    static int kfast_has_crc(void) { return 1; }
    #endif

    #if defined(__clang__)
    __attribute__((target("crc")))
    #else
    __attribute__((target("+crc")))
    #endif
    static uint32_t kfast_crc32c(const char *data, Py_ssize_t size) {
        uint32_t crc = 0xFFFFFFFFu;
        uint64_t word;
        for (; size >= 8; size -= 8, data += 8) {
            memcpy(&word, data, 8);
            crc = __crc32cd(crc, word);
        }
        for (; size > 0; size--, data++)
            crc = __crc32cb(crc, (unsigned char)*data);
        return ~crc;
    }

    #else
    static int kfast_has_crc(void) { return 0; }
    static uint32_t kfast_crc32c(const char *data, Py_ssize_t size) {
        (void)data;
        (void)size;
        return 0;
    }
    #endif
    """
    int kfast_has_crc() noexcept nogil
    uint32_t kfast_crc32c(const char* data, Py_ssize_t size) noexcept nogil


cdef enum:
    SHORT_BYTES = 4096


cdef bint has_hardware = kfast_has_crc()
cdef object package_crc32c = None


cdef object imported_crc32c():
    """The function of the package."""
    global package_crc32c
    if package_crc32c is None:
        from crc32c import crc32c as found
        package_crc32c = found
    return package_crc32c


cdef bint crc32c_is_short(Py_ssize_t size) noexcept nogil:
    return has_hardware and size <= SHORT_BYTES


cdef uint32_t crc32c_short(const char* data, Py_ssize_t size) noexcept nogil:
    return kfast_crc32c(data, size)


cdef uint32_t crc32c_long(const char* data, Py_ssize_t size) except? 0:
    return imported_crc32c()(PyMemoryView_FromMemory(<char*> data, size, PyBUF_READ))


cdef uint32_t crc32_ieee(const char* data, Py_ssize_t size) except? 0:
    return zlib_crc32(PyMemoryView_FromMemory(<char*> data, size, PyBUF_READ))


def crc32c(data, uint32_t value=0) -> int:
    """CRC-32C of a bytes-like object, going on from ``value``."""
    return imported_crc32c()(data, value)


def crc32c_hardware(const unsigned char[::1] data):
    """CRC-32C by the loop used for short batches, at any length; None without the instruction."""
    if not has_hardware:
        return None
    return kfast_crc32c(<const char*> &data[0] if data.shape[0] else NULL, data.shape[0])


def crc32(data) -> int:
    """CRC-32 (IEEE) of a bytes-like object."""
    return zlib_crc32(data)
