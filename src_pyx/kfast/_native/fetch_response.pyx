"""Parser of Fetch responses (versions 10 to 18) that leaves the records in the frame.

Owns the step from a received frame to partition slices: partition, error, offsets, and the place of
the records in the frame. Records are neither copied nor decoded, except for the headers of complete
batches in ``scan_batches``, which returns the next fetch offset before anything is decoded.

Wire layout, in the order of the bytes (``c`` compact from version 12, ``t`` tag section from 12)::

    throttle_time_ms i32, error_code i16, session_id i32, c array of topics, t
    topic        c name (to 12) or 16-byte id (from 13), c array of partitions, t
    partition    index i32, error i16, high watermark i64, last stable offset i64, log start i64,
                 c array? of aborted (producer_id i64, first_offset i64, t),
                 preferred_read_replica i32 (from 11), c bytes? of records, t
    partition t  0 diverging epoch (i32, i64), 1 current leader (i32, i32), 2 snapshot (i64, i32)
    response t   0 node endpoints (from 16): c array of (id i32, c host, port i32, c rack?, t)

Every count and length is compared with the bytes left before it is used; a known tag must fill its
size exactly, tags must ascend; bytes after the response are ignored. Malformed bytes raise nothing
but ``ProtocolError``. Duplicate or unrequested partitions are returned as they are: the fetch
session checks them (D-26).

Equivalent to the definition in ``kfast.protocol.messages.fetch`` for every input, as a property
test checks. Any thread.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kfast._native.batch_scan cimport Scan, walk_batches
from kfast._native.buffers cimport OwnedBuffer
from kfast._native.endian cimport load_i64
from kfast._native.message_reader cimport (
    FAULT_COUNT,
    FAULT_CUT,
    FAULT_LENGTH,
    FAULT_NULL,
    FAULT_TAG_ORDER,
    FAULT_TAG_SIZE,
    Fault,
    Parser,
    enter_tag,
    fail,
    leave_tag,
    parser_init,
    read_array,
    read_count,
    read_text,
    skip_tags,
)
from kfast._native.reader cimport (
    read_i16,
    read_i32,
    read_i64,
    read_span,
    read_uvarint,
    reader_left,
    skip,
)
from kfast.errors import ProtocolError, UnsupportedVersionError


cdef enum:
    MIN_VERSION = 10
    FIRST_WITH_PREFERRED_REPLICA = 11
    FIRST_FLEXIBLE = 12
    FIRST_WITH_TOPIC_IDS = 13
    FIRST_WITH_NODE_ENDPOINTS = 16
    MAX_VERSION = 18

    UUID_BYTES = 16
    ABORTED_BYTES = 16
    # Smallest sizes of a topic and a partition, to check a claimed count.
    MIN_TOPIC_BYTES = 3
    MIN_PARTITION_BYTES = 37
    MIN_ENDPOINT_BYTES = 11

    TAG_DIVERGING_EPOCH = 0
    TAG_CURRENT_LEADER = 1
    TAG_SNAPSHOT_ID = 2
    TAG_NODE_ENDPOINTS = 0

    # Below this a scan takes 0.2 ms at most; releasing the GIL could cost a switch interval.
    NOGIL_SLICE_BYTES = 1048576


FAULT_TEXT = {
    FAULT_CUT: "the bytes end inside it, or a varint is not well-formed",
    FAULT_NULL: "something is null that must not be",
    FAULT_COUNT: "an array claims more elements than the bytes left can hold",
    FAULT_LENGTH: "a string or the records claim an impossible length",
    FAULT_TAG_ORDER: "tags are out of order",
    FAULT_TAG_SIZE: "a tagged field does not fill its size",
}


cdef struct Partition:
    int32_t index
    int16_t error_code
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    const char* aborted
    int64_t aborted_count
    int32_t preferred_read_replica
    const char* records
    int64_t records_size
    int32_t diverging_epoch
    int64_t diverging_offset
    int32_t leader_id
    int32_t leader_epoch


# --- one partition --------------------------------------------------------------------------------


cdef void read_partition(Parser* p, int version, Partition* out) noexcept nogil:
    """Read one partition; ``out`` is undefined if the reader is bad afterwards."""
    out.index = read_i32(&p.r)
    out.error_code = read_i16(&p.r)
    out.high_watermark = read_i64(&p.r)
    out.last_stable_offset = read_i64(&p.r)
    out.log_start_offset = read_i64(&p.r)
    read_aborted(p, out)
    out.preferred_read_replica = -1
    if version >= FIRST_WITH_PREFERRED_REPLICA:
        out.preferred_read_replica = read_i32(&p.r)
    if p.is_flexible:
        out.records_size = <int64_t> read_uvarint(&p.r) - 1
    else:
        out.records_size = read_i32(&p.r)
    if not p.r.bad and (out.records_size < -1 or out.records_size > reader_left(&p.r)):
        fail(p, FAULT_LENGTH)
    if p.r.bad or out.records_size < 0:
        out.records_size = 0
    out.records = read_span(&p.r, out.records_size)
    out.diverging_epoch = -1
    out.diverging_offset = -1
    out.leader_id = -1
    out.leader_epoch = -1
    if p.is_flexible:
        read_partition_tags(p, out)


cdef void read_aborted(Parser* p, Partition* out) noexcept nogil:
    """Check the list and store its place. Its elements have one size up to version 11."""
    cdef int64_t count = read_count(p, ABORTED_BYTES)
    cdef int64_t _
    out.aborted_count = count if count > 0 else 0
    out.aborted = p.r.pos
    if not p.is_flexible:
        skip(&p.r, out.aborted_count * ABORTED_BYTES)
        return
    for _ in range(out.aborted_count):
        skip(&p.r, ABORTED_BYTES)
        skip_tags(p)
        if p.r.bad:
            return


cdef void read_partition_tags(Parser* p, Partition* out) noexcept nogil:
    cdef int64_t previous = -1
    cdef uint32_t tag = 0
    cdef int64_t count = read_uvarint(&p.r)
    cdef const char* outer
    while count > 0 and not p.r.bad:
        count -= 1
        outer = enter_tag(p, &previous, &tag)
        if outer is NULL:
            return
        if tag == TAG_DIVERGING_EPOCH:
            out.diverging_epoch = read_i32(&p.r)
            out.diverging_offset = read_i64(&p.r)
            skip_tags(p)
        elif tag == TAG_CURRENT_LEADER:
            out.leader_id = read_i32(&p.r)
            out.leader_epoch = read_i32(&p.r)
            skip_tags(p)
        elif tag == TAG_SNAPSHOT_ID:
            read_i64(&p.r)
            read_i32(&p.r)
            skip_tags(p)
        else:
            p.r.pos = p.r.end
        leave_tag(p, outer)


# --- the result -----------------------------------------------------------------------------------


@cython.final
@cython.freelist(256)
cdef class FetchedPartition:
    """Response for one partition; its records are ``frame[records_start:records_end]``.

    ``topic`` is set up to version 12, the 16-byte ``topic_id`` from 13 on; offsets are -1 with an
    error. ``aborted_transactions`` are in the broker's order. ``preferred_read_replica`` is -1 for
    none (KIP-392); ``current_leader`` (KIP-951) and ``diverging_epoch`` (KIP-595) None.
    """
    cdef readonly object topic
    cdef readonly object topic_id
    cdef readonly int32_t partition
    cdef readonly int16_t error_code
    cdef readonly int64_t high_watermark
    cdef readonly int64_t last_stable_offset
    cdef readonly int64_t log_start_offset
    cdef readonly tuple aborted_transactions
    cdef readonly int32_t preferred_read_replica
    cdef readonly object current_leader
    cdef readonly object diverging_epoch
    cdef readonly Py_ssize_t records_start
    cdef readonly Py_ssize_t records_end

    def __init__(self):
        raise TypeError("FetchedPartition is made by parse_fetch_response()")

    def __repr__(self):
        topic = self.topic if self.topic is not None else self.topic_id.hex()
        return (
            f"<FetchedPartition {topic}-{self.partition} error={self.error_code} "
            f"records={self.records_end - self.records_start} bytes>"
        )


@cython.final
cdef class FetchResponseView:
    """A Fetch response without the records; partitions in its order, duplicates included.

    ``node_endpoints`` are addresses of the nodes in ``current_leader``, as ``(node_id, host, port,
    rack)`` (KIP-951).
    """
    cdef readonly int32_t throttle_time_ms
    cdef readonly int16_t error_code
    cdef readonly int32_t session_id
    cdef readonly list partitions
    cdef readonly list node_endpoints

    def __init__(self):
        raise TypeError("FetchResponseView is made by parse_fetch_response()")

    def __repr__(self):
        return (
            f"<FetchResponseView error={self.error_code} session={self.session_id} "
            f"partitions={len(self.partitions)}>"
        )


# --- a whole response -----------------------------------------------------------------------------


def parse_fetch_response(OwnedBuffer frame not None, Py_ssize_t offset, int version):
    """Parse the response of a version in a frame without size prefix, whose body is at ``offset``.

    Raises
    ------
    ProtocolError
        The bytes are not a well-formed response.
    UnsupportedVersionError
        The version is not in range.
    """
    cdef Parser p
    cdef FetchResponseView view
    cdef int64_t topics
    if version < MIN_VERSION or version > MAX_VERSION:
        raise UnsupportedVersionError(
            f"FetchResponse has no version {version}",
            found=f"versions {MIN_VERSION} to {MAX_VERSION}",
        )
    if offset < 0 or offset > frame.size:
        raise malformed(version, FAULT_CUT)
    parser_init(&p, frame.ptr + offset, frame.size - offset, version >= FIRST_FLEXIBLE)

    view = FetchResponseView.__new__(FetchResponseView)
    view.partitions = []
    view.node_endpoints = []
    view.throttle_time_ms = read_i32(&p.r)
    view.error_code = read_i16(&p.r)
    view.session_id = read_i32(&p.r)
    topics = read_array(&p, MIN_TOPIC_BYTES)
    while topics > 0 and not p.r.bad:
        topics -= 1
        read_topic(&p, version, frame, view.partitions)
    if p.is_flexible:
        read_response_tags(&p, version, view)
    if p.r.bad:
        raise malformed(version, p.fault)
    return view


cdef object malformed(int version, Fault fault):
    return ProtocolError(
        f"malformed FetchResponse version {version}", cause=FAULT_TEXT[fault]
    )


cdef int read_topic(Parser* p, int version, OwnedBuffer frame, list partitions) except -1:
    cdef FetchedPartition made
    cdef Partition read
    cdef const char* name
    cdef int64_t size = 0
    cdef int64_t count
    cdef object topic = None
    cdef object topic_id = None
    if version >= FIRST_WITH_TOPIC_IDS:
        name = read_span(&p.r, UUID_BYTES)
        if name is not NULL:
            topic_id = PyBytes_FromStringAndSize(name, UUID_BYTES)
    else:
        name = read_text(p, &size, False)
        topic = decode_text(version, name, size)
    count = read_array(p, MIN_PARTITION_BYTES)
    while count > 0:
        count -= 1
        read_partition(p, version, &read)
        if p.r.bad:
            return 0
        made = FetchedPartition.__new__(FetchedPartition)
        made.topic = topic
        made.topic_id = topic_id
        made.partition = read.index
        made.error_code = read.error_code
        made.high_watermark = read.high_watermark
        made.last_stable_offset = read.last_stable_offset
        made.log_start_offset = read.log_start_offset
        made.aborted_transactions = (
            () if read.aborted_count == 0 else aborted_transactions(p, &read)
        )
        made.preferred_read_replica = read.preferred_read_replica
        if read.leader_id != -1 or read.leader_epoch != -1:
            made.current_leader = (read.leader_id, read.leader_epoch)
        if read.diverging_epoch != -1 or read.diverging_offset != -1:
            made.diverging_epoch = (read.diverging_epoch, read.diverging_offset)
        made.records_start = read.records - frame.ptr
        made.records_end = made.records_start + read.records_size
        partitions.append(made)
    skip_tags(p)
    return 0


cdef tuple aborted_transactions(Parser* p, Partition* read):
    """Return the list that ``read_aborted`` has checked."""
    cdef Parser again
    cdef list made = []
    cdef int64_t _
    cdef const char* at
    parser_init(&again, read.aborted, p.r.end - read.aborted, p.is_flexible)
    for _ in range(read.aborted_count):
        at = read_span(&again.r, ABORTED_BYTES)
        if at is NULL:
            break
        made.append((load_i64(at), load_i64(at + 8)))
        skip_tags(&again)
    return tuple(made)


cdef object decode_text(int version, const char* start, int64_t size):
    """Return a str, or None for null and once the reader is bad."""
    if start is NULL:
        return None
    try:
        return PyUnicode_DecodeUTF8(start, size, NULL)
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"malformed FetchResponse version {version}", cause="a string is not UTF-8"
        ) from error


cdef int read_response_tags(Parser* p, int version, FetchResponseView view) except -1:
    cdef int64_t previous = -1
    cdef uint32_t tag = 0
    cdef int64_t count = read_uvarint(&p.r)
    cdef const char* outer
    while count > 0 and not p.r.bad:
        count -= 1
        outer = enter_tag(p, &previous, &tag)
        if outer is NULL:
            return 0
        if tag == TAG_NODE_ENDPOINTS and version >= FIRST_WITH_NODE_ENDPOINTS:
            read_node_endpoints(p, version, view.node_endpoints)
        else:
            p.r.pos = p.r.end
        leave_tag(p, outer)
    return 0


cdef int read_node_endpoints(Parser* p, int version, list endpoints) except -1:
    cdef int64_t count = read_array(p, MIN_ENDPOINT_BYTES)
    cdef int64_t host_size = 0
    cdef int64_t rack_size = 0
    cdef const char* host
    cdef const char* rack
    cdef int32_t node_id, port
    while count > 0 and not p.r.bad:
        count -= 1
        node_id = read_i32(&p.r)
        host = read_text(p, &host_size, False)
        port = read_i32(&p.r)
        rack = read_text(p, &rack_size, True)
        skip_tags(p)
        if p.r.bad:
            return 0
        endpoints.append((
            node_id,
            decode_text(version, host, host_size),
            port,
            decode_text(version, rack, rack_size),
        ))
    return 0


# --- batch headers --------------------------------------------------------------------------------

@cython.final
cdef class BatchScan:
    """Result of scanning the batch headers of a slice.

    Attributes
    ----------
    next_offset : int
        Offset after the last complete batch, empty and control batches included; -1 if there is no
        complete batch.
    leader_epoch : int
        Leader epoch of that batch, -1 when unknown.
    complete_bytes, batches : int
        Size and number of complete batches before the first partial or invalid one.
    is_corrupt : bool
        Whether the scan ended at an invalid header. Decoding raises at it.
    needed_bytes : int
        Size of a partial batch at the end, if its length is complete; else 0.
    """
    cdef readonly int64_t next_offset
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t complete_bytes
    cdef readonly int64_t batches
    cdef readonly bint is_corrupt
    cdef readonly int64_t needed_bytes

    def __init__(self):
        raise TypeError("BatchScan is made by scan_batches()")

    def __repr__(self):
        return (
            f"<BatchScan batches={self.batches} next_offset={self.next_offset} "
            f"complete_bytes={self.complete_bytes} is_corrupt={bool(self.is_corrupt)}>"
        )


def scan_batches(OwnedBuffer frame not None, Py_ssize_t start, Py_ssize_t end):
    """Scan the batch headers in ``frame[start:end]`` without reading records.

    Magic 0 and 1 entries count as batches of one offset. A batch longer than the bytes left is
    normal and ends the scan (D-05); so does an invalid header, which sets ``is_corrupt`` (D-07,
    D-16). Checksums are not verified. Raises ValueError if the slice is not within the frame.
    """
    cdef BatchScan made
    cdef Scan scan
    cdef const char* at
    if start < 0 or end < start or end > frame.size:
        raise ValueError(f"bytes {start} to {end} are not within a frame of {frame.size}")
    scan.next_offset = -1
    scan.leader_epoch = -1
    scan.complete_bytes = 0
    scan.batches = 0
    scan.needed_bytes = 0
    scan.is_corrupt = False
    at = frame.ptr + start
    if end - start < NOGIL_SLICE_BYTES:
        walk_batches(at, frame.ptr + end, &scan)
    else:
        with nogil:
            walk_batches(at, frame.ptr + end, &scan)
    made = BatchScan.__new__(BatchScan)
    made.next_offset = scan.next_offset
    made.leader_epoch = scan.leader_epoch
    made.complete_bytes = scan.complete_bytes
    made.batches = scan.batches
    made.is_corrupt = scan.is_corrupt
    made.needed_bytes = scan.needed_bytes
    return made
