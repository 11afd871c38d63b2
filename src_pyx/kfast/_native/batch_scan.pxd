"""The walk over the batch headers of a slice: what the next fetch offset is, before decoding.

Inline, noexcept, without the GIL; owns no memory. Never looks at a record nor at a checksum. What
a header can and cannot say is ``batch_header``'s business, so the walk and the decoder agree on
where a slice goes wrong.
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
    int64_t needed_bytes    # size of a partial batch at the end, where its length can be seen
    bint is_corrupt


cdef inline void walk_batches(const char* at, const char* end, Scan* scan) noexcept nogil:
    """Take every complete batch into ``scan``, up to a partial or an impossible one."""
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
        # A log never goes back. If a broker does, the fetch position must not follow it.
        if header.last_offset + 1 > scan.next_offset:
            scan.next_offset = header.last_offset + 1
            scan.leader_epoch = header.leader_epoch
        at += header.size
        scan.complete_bytes += header.size
        scan.batches += 1
