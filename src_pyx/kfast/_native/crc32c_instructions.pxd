"""CRC-32C by the processor's instructions, in C because Cython cannot express them.

``kfast_crc32c_limit()`` has to be called once, before ``kfast_crc32c``: it detects the processor
and returns up to how many bytes ``kfast_crc32c`` is to be used, 0 without the instructions.

* One step takes 8 bytes and waits 3 cycles for the step before it: 6 GB/s at best.
* Folding (x86-64) has no such dependency. The bytes are a polynomial over GF(2), and the part that
  lies D bits before another may be multiplied by ``x^D mod P`` and added to it: both leave the same
  remainder. A carry-less multiplication does that for 16 bytes; lanes side by side fold a whole
  block onto the next (64 bytes, or 256 with AVX-512), and the one block that is left goes through
  the steps. 13 GB/s with 128-bit registers, 50 GB/s with 512-bit ones.

A register holds two 64-bit halves, the first of them 64 bits further from the end: they need
``x^(D+64)`` and ``x^D``. A 32-bit factor in a 64-bit half counts ``x^32`` too much in the reflected
order of CRC-32C, and the instruction's product lies one bit too low there. So the factors are
``x^(D+32)`` and ``x^(D-32)`` modulo P, reflected and shifted left by one; the tests compute them
from P again.
"""

from libc.stdint cimport uint32_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #include <immintrin.h>

    #define KFAST_STEPS __attribute__((target("sse4.2")))
    #define KFAST_FOLD __attribute__((target("sse4.2,pclmul")))
    #define KFAST_FOLD_WIDE __attribute__((target("sse4.2,avx512f,avx512vl,vpclmulqdq")))
    #define KFAST_BLOCK 64
    #define KFAST_BLOCK_WIDE 256

    static int kfast_is_wide;

    static Py_ssize_t kfast_crc32c_limit(void) {
        __builtin_cpu_init();
        if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
            return 0;
        kfast_is_wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")
            && __builtin_cpu_supports("vpclmulqdq");
        return PY_SSIZE_T_MAX;
    }

    KFAST_STEPS
    static uint64_t kfast_crc_steps(uint64_t crc, const char *data, Py_ssize_t size) {
        uint64_t word;
        for (; size >= 8; size -= 8, data += 8) {
            memcpy(&word, data, 8);
            crc = _mm_crc32_u64(crc, word);
        }
        for (; size > 0; size--, data++)
            crc = _mm_crc32_u8((uint32_t)crc, (unsigned char)*data);
        return crc;
    }

    /* Both take whole blocks, at least one, and begin with all bits set. */
    KFAST_FOLD
    static uint64_t kfast_crc_blocks(const char *data, Py_ssize_t size) {
        const __m128i by = _mm_set_epi64x(0x9e4addf8, 0x740eef02);  /* D = 512 */
        char last[KFAST_BLOCK];
        __m128i lanes[4];
        int i;
        for (i = 0; i < 4; i++)
            lanes[i] = _mm_loadu_si128((const __m128i *)(data + 16 * i));
        lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(-1));
        while ((size -= KFAST_BLOCK) > 0) {
            data += KFAST_BLOCK;
            for (i = 0; i < 4; i++) {
                __m128i next = _mm_loadu_si128((const __m128i *)(data + 16 * i));
                next = _mm_xor_si128(next, _mm_clmulepi64_si128(lanes[i], by, 0x00));
                lanes[i] = _mm_xor_si128(next, _mm_clmulepi64_si128(lanes[i], by, 0x11));
            }
        }
        memcpy(last, lanes, sizeof(last));
        return kfast_crc_steps(0, last, sizeof(last));
    }

    KFAST_FOLD_WIDE
    static uint64_t kfast_crc_blocks_wide(const char *data, Py_ssize_t size) {
        const __m512i by = _mm512_broadcast_i32x4(
            _mm_set_epi64x(0xb9e02b86, 0xdcb17aa4));  /* D = 2048 */
        char last[KFAST_BLOCK_WIDE];
        __m512i lanes[4];
        int i;
        for (i = 0; i < 4; i++)
            lanes[i] = _mm512_loadu_si512(data + 64 * i);
        lanes[0] = _mm512_xor_si512(
            lanes[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1)));
        while ((size -= KFAST_BLOCK_WIDE) > 0) {
            data += KFAST_BLOCK_WIDE;
            for (i = 0; i < 4; i++) {
                /* 0x96: the exclusive or of all three. */
                lanes[i] = _mm512_ternarylogic_epi64(
                    _mm512_loadu_si512(data + 64 * i),
                    _mm512_clmulepi64_epi128(lanes[i], by, 0x00),
                    _mm512_clmulepi64_epi128(lanes[i], by, 0x11), 0x96);
            }
        }
        memcpy(last, lanes, sizeof(last));
        return kfast_crc_steps(0, last, sizeof(last));
    }

    static uint32_t kfast_crc32c(const char *data, Py_ssize_t size) {
        uint64_t crc = 0xFFFFFFFFu;
        Py_ssize_t folded = 0;
        if (kfast_is_wide && size >= 4 * KFAST_BLOCK_WIDE) {
            folded = size - size % KFAST_BLOCK_WIDE;
            crc = kfast_crc_blocks_wide(data, folded);
        } else if (size >= 2 * KFAST_BLOCK) {
            folded = size - size % KFAST_BLOCK;
            crc = kfast_crc_blocks(data, folded);
        }
        return ~(uint32_t)kfast_crc_steps(crc, data + folded, size - folded);
    }

    #elif defined(__aarch64__) && (defined(__APPLE__) || defined(__linux__))
    #include <arm_acle.h>
    #if defined(__linux__)
    #include <sys/auxv.h>
    static int kfast_has_crc(void) { return (getauxval(AT_HWCAP) >> 7) & 1; }
    #else
    static int kfast_has_crc(void) { return 1; }
    #endif

    /* Steps only: beyond this many bytes the crc32c package is faster. */
    static Py_ssize_t kfast_crc32c_limit(void) { return kfast_has_crc() ? 4096 : 0; }

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
    static Py_ssize_t kfast_crc32c_limit(void) { return 0; }
    static uint32_t kfast_crc32c(const char *data, Py_ssize_t size) {
        (void)data;
        (void)size;
        return 0;
    }
    #endif
    """
    Py_ssize_t kfast_crc32c_limit() noexcept nogil
    uint32_t kfast_crc32c(const char* data, Py_ssize_t size) noexcept nogil
