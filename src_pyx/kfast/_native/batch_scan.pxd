"""Scan of the batch headers of a slice: the next fetch offset, before decoding.

Inline, noexcept, without the GIL; owns no memory. Reads no record and no checksum. Headers are
checked by ``batch_header``, so that the scan and the decoder agree on the first corrupt batch.
"""

from libc.stdint cimport int32_t, int64_t

from kfast._native.batch_header cimport (
    BATCH_NONE,
    BATCH_OK,
    LOG_OVERHEAD,
    BatchHeader,
    BatchStatus,
    read_batch_header,
)


cdef struct Scan:
    int64_t next_offset     # -1 to start with
    int32_t leader_epoch    # -1 to start with
    int64_t complete_bytes
    int64_t batches
    int64_t needed_bytes    # size of a partial batch at the end, if its length is complete
    bint is_corrupt


cdef inline void walk_batches(const char* at, const char* end, Scan* scan) noexcept nogil:
    """Add every complete batch to ``scan``, up to a partial or invalid one."""
    cdef BatchHeader header
    cdef BatchStatus status
    while at < end:
        status = read_batch_header(at, end - at, &header)
        if status == BATCH_NONE:
            scan.needed_bytes = header.size if header.size > LOG_OVERHEAD else 0
            return
        if status != BATCH_OK:
            scan.is_corrupt = True
            return
        # Offsets never decrease in a log. If they do, the fetch position must not follow.
        if header.last_offset + 1 > scan.next_offset:
            scan.next_offset = header.last_offset + 1
            scan.leader_epoch = header.leader_epoch
        at += header.size
        scan.complete_bytes += header.size
        scan.batches += 1
