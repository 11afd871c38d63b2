"""C interface of the codecs; the rules are in ``codecs.pyx``."""

from kfast._native.buffers cimport OwnedBuffer


cdef enum Codec:
    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4


# Appends the decompressed bytes to `dst`, at most `max_bytes` of them; returns whether there are
# more. `dst` may have grown but keeps its size then, and when this raises. Needs the GIL and gives
# it away while a package works.
cdef int decompress_into(
    int codec, const char* src, Py_ssize_t size, OwnedBuffer dst, Py_ssize_t max_bytes, int magic
) except -1

# The exception for a batch of more than `max_bytes`, without its place.
cdef object too_large(Py_ssize_t max_bytes)
