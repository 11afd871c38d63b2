"""Reads Fetch responses (versions 10 to 18) straight from the frame, and walks batch headers.

Owns the way from a received frame to record slices: which partition, how it fared, and where in
the frame its records are. Records are never copied nor looked into here, except for the headers of
whole batches in ``scan_batches``, which gives the next fetch offset before anything is decoded.

Wire layout, in the order of the bytes (``c`` compact from version 12, ``t`` tag section from 12)::

    throttle_time_ms i32, error_code i16, session_id i32, c array of topics, t
    topic        c name (to 12) or 16-byte id (from 13), c array of partitions, t
    partition    index i32, error i16, high watermark i64, last stable offset i64, log start i64,
                 c array? of aborted (producer_id i64, first_offset i64, t),
                 preferred_read_replica i32 (from 11), c bytes? of records, t
    partition t  0 diverging epoch (i32, i64), 1 current leader (i32, i32), 2 snapshot (i64, i32)
    response t   0 node endpoints (from 16): c array of (id i32, c host, port i32, c rack?, t)

Every count and length is compared with the bytes left before anything is made of it; a known tag
must fill its size exactly, tags must ascend; bytes behind the response are tolerated. The bytes can
raise nothing but ``ProtocolError``. Duplicate or unasked partitions are reported as they are: to
judge them is the fetch session's business (D-26).

Agrees with the readable definition in ``kfast.protocol.messages.fetch`` for every input; a property
test holds both to it. Network thread; any thread will do.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint32_t

from kfast._native.buffers cimport OwnedBuffer
from kfast._native.endian cimport load_i32, load_i64
from kfast._native.reader cimport (
    ByteReader,
    read_i16,
    read_i32,
    read_i64,
    read_span,
    read_uvarint,
    reader_fail,
    reader_init,
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
    MAX_STRING_BYTES = 32767
    ABORTED_BYTES = 16
    # The least a topic and a partition take; a claimed count is held against these.
    MIN_TOPIC_BYTES = 3
    MIN_PARTITION_BYTES = 37
    MIN_ENDPOINT_BYTES = 11

    TAG_DIVERGING_EPOCH = 0
    TAG_CURRENT_LEADER = 1
    TAG_SNAPSHOT_ID = 2
    TAG_NODE_ENDPOINTS = 0


cdef enum Fault:
    FAULT_CUT
    FAULT_NULL
    FAULT_COUNT
    FAULT_LENGTH
    FAULT_TAG_ORDER
    FAULT_TAG_SIZE


FAULT_TEXT = {
    FAULT_CUT: "the bytes end inside it, or a varint is not well-formed",
    FAULT_NULL: "something is null that must not be",
    FAULT_COUNT: "an array claims more elements than the bytes left can hold",
    FAULT_LENGTH: "a string or the records claim an impossible length",
    FAULT_TAG_ORDER: "tags are out of order",
    FAULT_TAG_SIZE: "a tagged field does not fill its size",
}


cdef struct Parser:
    ByteReader r
    int version
    bint is_flexible
    Fault fault


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


cdef void fail(Parser* p, Fault fault) noexcept nogil:
    if not p.r.bad:
        p.fault = fault
        reader_fail(&p.r)


# --- lengths and tags -----------------------------------------------------------------------------


cdef int64_t read_count(Parser* p, int min_bytes) noexcept nogil:
    """Elements of an array, -1 for null; 0 with the reader bad if they cannot all be there."""
    cdef int64_t count
    if p.is_flexible:
        count = <int64_t> read_uvarint(&p.r) - 1
    else:
        count = read_i32(&p.r)
    if p.r.bad:
        return 0
    if count < -1 or count * min_bytes > reader_left(&p.r):
        fail(p, FAULT_COUNT)
        return 0
    return count


cdef int64_t read_array(Parser* p, int min_bytes) noexcept nogil:
    """Elements of an array that must not be null."""
    cdef int64_t count = read_count(p, min_bytes)
    if count < 0:
        fail(p, FAULT_NULL)
        return 0
    return count


cdef const char* read_text(Parser* p, int64_t* size, bint nullable) noexcept nogil:
    """A string's bytes; NULL with size -1 if it is null, NULL with size 0 once bad."""
    if p.is_flexible:
        size[0] = <int64_t> read_uvarint(&p.r) - 1
    else:
        size[0] = read_i16(&p.r)
    if not p.r.bad:
        if size[0] == -1 and nullable:
            return NULL
        if size[0] == -1:
            fail(p, FAULT_NULL)
        elif size[0] < 0 or size[0] > MAX_STRING_BYTES or size[0] > reader_left(&p.r):
            fail(p, FAULT_LENGTH)
    if p.r.bad:
        size[0] = 0
        return NULL
    return read_span(&p.r, size[0])


cdef void skip_tags(Parser* p) noexcept nogil:
    """A tag section none of whose fields is known."""
    cdef int64_t previous = -1
    cdef uint32_t tag
    cdef int64_t count
    if not p.is_flexible:
        return
    count = read_uvarint(&p.r)
    while count > 0 and not p.r.bad:
        tag = read_uvarint(&p.r)
        if <int64_t> tag <= previous:
            fail(p, FAULT_TAG_ORDER)
        previous = tag
        skip(&p.r, read_uvarint(&p.r))
        count -= 1


cdef const char* enter_tag(Parser* p, int64_t* previous, uint32_t* tag) noexcept nogil:
    """Read a tag and its size and bound the reader to it; the old end comes back, NULL if bad."""
    cdef const char* outer = p.r.end
    cdef int64_t size
    tag[0] = read_uvarint(&p.r)
    if not p.r.bad and <int64_t> tag[0] <= previous[0]:
        fail(p, FAULT_TAG_ORDER)
    previous[0] = tag[0]
    size = read_uvarint(&p.r)
    if not p.r.bad and size > reader_left(&p.r):
        fail(p, FAULT_TAG_SIZE)
    if p.r.bad:
        return NULL
    p.r.end = p.r.pos + size
    return outer


cdef void leave_tag(Parser* p, const char* outer) noexcept nogil:
    """Check that the tag was used up and give the reader its old end back."""
    if p.r.pos != p.r.end:
        fail(p, FAULT_TAG_SIZE)
    p.r.end = outer
    if p.r.bad:
        p.r.pos = outer


# --- one partition --------------------------------------------------------------------------------


cdef void read_partition(Parser* p, Partition* out) noexcept nogil:
    """Read one partition; ``out`` means nothing if the reader is bad then."""
    out.index = read_i32(&p.r)
    out.error_code = read_i16(&p.r)
    out.high_watermark = read_i64(&p.r)
    out.last_stable_offset = read_i64(&p.r)
    out.log_start_offset = read_i64(&p.r)
    read_aborted(p, out)
    out.preferred_read_replica = -1
    if p.version >= FIRST_WITH_PREFERRED_REPLICA:
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
    """Check the list and remember where it is. Its elements are of one size up to version 11."""
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


# --- what comes out -------------------------------------------------------------------------------


@cython.final
@cython.freelist(256)
cdef class FetchedPartition:
    """What one partition answered; offsets are -1 in error replies.

    Attributes
    ----------
    topic : str or None
        Name, up to version 12.
    topic_id : bytes or None
        16 bytes, from version 13.
    partition, error_code : int
        The partition and its error.
    high_watermark, last_stable_offset, log_start_offset : int
        State of the log.
    aborted_transactions : tuple of (producer_id, first_offset)
        In the broker's order, which need not be sorted; empty for null.
    preferred_read_replica : int
        Node to fetch from instead, or -1 (KIP-392).
    current_leader : (leader_id, leader_epoch) or None
        A leader hint (KIP-951).
    diverging_epoch : (epoch, end_offset) or None
        Where the logs part (KIP-595).
    records_start, records_end : int
        The records are the bytes from start up to, not including, end of the frame.
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
    """A Fetch response; the record bytes stay in the frame.

    Attributes
    ----------
    throttle_time_ms, error_code, session_id : int
        As sent.
    partitions : list of FetchedPartition
        In the order of the response, duplicates included.
    node_endpoints : list of (node_id, host, port, rack)
        Addresses of the leaders named in ``current_leader`` (KIP-951).
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
    """Read the response in ``frame``.

    Parameters
    ----------
    frame : OwnedBuffer
        The frame without its size prefix.
    offset : int
        Where the body starts.
    version : int
        Version of the request answered, 10 to 18.

    Returns
    -------
    FetchResponseView

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
    reader_init(&p.r, frame.ptr + offset, frame.size - offset)
    p.version = version
    p.is_flexible = version >= FIRST_FLEXIBLE
    p.fault = FAULT_CUT

    view = FetchResponseView.__new__(FetchResponseView)
    view.partitions = []
    view.node_endpoints = []
    view.throttle_time_ms = read_i32(&p.r)
    view.error_code = read_i16(&p.r)
    view.session_id = read_i32(&p.r)
    topics = read_array(&p, MIN_TOPIC_BYTES)
    while topics > 0 and not p.r.bad:
        topics -= 1
        read_topic(&p, frame, view.partitions)
    if p.is_flexible:
        read_response_tags(&p, view)
    if p.r.bad:
        raise malformed(version, p.fault)
    return view


cdef object malformed(int version, Fault fault):
    return ProtocolError(
        f"malformed FetchResponse version {version}", cause=FAULT_TEXT[fault]
    )


cdef int read_topic(Parser* p, OwnedBuffer frame, list partitions) except -1:
    cdef FetchedPartition made
    cdef Partition read
    cdef const char* name
    cdef int64_t size = 0
    cdef int64_t count
    cdef object topic = None
    cdef object topic_id = None
    if p.version >= FIRST_WITH_TOPIC_IDS:
        name = read_span(&p.r, UUID_BYTES)
        if name is not NULL:
            topic_id = PyBytes_FromStringAndSize(name, UUID_BYTES)
    else:
        name = read_text(p, &size, False)
        topic = decode_text(p, name, size)
    count = read_array(p, MIN_PARTITION_BYTES)
    while count > 0:
        count -= 1
        read_partition(p, &read)
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
    """The list that ``read_aborted`` has checked."""
    cdef Parser again
    cdef list made = []
    cdef int64_t _
    cdef const char* at
    again.is_flexible = p.is_flexible
    again.fault = FAULT_CUT
    reader_init(&again.r, read.aborted, p.r.end - read.aborted)
    for _ in range(read.aborted_count):
        at = read_span(&again.r, ABORTED_BYTES)
        if at is NULL:
            break
        made.append((load_i64(at), load_i64(at + 8)))
        skip_tags(&again)
    return tuple(made)


cdef object decode_text(Parser* p, const char* start, int64_t size):
    """A str, or None for null and once the reader is bad."""
    if start is NULL:
        return None
    try:
        return PyUnicode_DecodeUTF8(start, size, NULL)
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"malformed FetchResponse version {p.version}", cause="a string is not UTF-8"
        ) from error


cdef int read_response_tags(Parser* p, FetchResponseView view) except -1:
    cdef int64_t previous = -1
    cdef uint32_t tag = 0
    cdef int64_t count = read_uvarint(&p.r)
    cdef const char* outer
    while count > 0 and not p.r.bad:
        count -= 1
        outer = enter_tag(p, &previous, &tag)
        if outer is NULL:
            return 0
        if tag == TAG_NODE_ENDPOINTS and p.version >= FIRST_WITH_NODE_ENDPOINTS:
            read_node_endpoints(p, view.node_endpoints)
        else:
            p.r.pos = p.r.end
        leave_tag(p, outer)
    return 0


cdef int read_node_endpoints(Parser* p, list endpoints) except -1:
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
        endpoints.append(
            (node_id, decode_text(p, host, host_size), port, decode_text(p, rack, rack_size))
        )
    return 0


# --- batch headers --------------------------------------------------------------------------------

cdef enum:
    # Positions in a batch of magic 2; offset, length and magic are where magic 0 and 1 have them.
    AT_LENGTH = 8
    AT_LEADER_EPOCH = 12
    AT_MAGIC = 16
    AT_LAST_OFFSET_DELTA = 23
    AT_RECORDS_COUNT = 57
    LOG_OVERHEAD = 12          # offset and length, which the length does not count
    VISIBLE_HEADER = 17        # up to and including the magic
    MIN_LENGTH_V0 = 14
    MIN_LENGTH_V1 = 22
    MIN_LENGTH_V2 = 49
    MAX_LENGTH = 2147483635    # a size of length + 12 must fit an int32, as in Java
    # Below this a walk takes 0.2 ms at most; giving the GIL away could cost a switch interval.
    NOGIL_SLICE_BYTES = 1048576


cdef struct Scan:
    int64_t next_offset
    int32_t leader_epoch
    int64_t complete_bytes
    int64_t batches
    int64_t needed_bytes
    bint is_corrupt


cdef int64_t batch_end(const char* batch, int32_t length, int8_t magic) noexcept nogil:
    """Offset after a complete batch whose length is at least its magic's least; -1 if corrupt."""
    cdef int64_t base = load_i64(batch)
    cdef int64_t delta = 0
    if magic == 2:
        delta = load_i32(batch + AT_LAST_OFFSET_DELTA)
        if load_i32(batch + AT_RECORDS_COUNT) < 0:
            return -1
    if base < 0 or delta < 0 or base > INT64_MAX - 1 - delta:
        return -1
    return base + delta + 1


cdef void walk(const char* at, const char* end, Scan* scan) noexcept nogil:
    cdef int32_t length, least
    cdef int8_t magic
    cdef int64_t next_offset
    while end - at >= LOG_OVERHEAD:
        length = load_i32(at + AT_LENGTH)
        if end - at < VISIBLE_HEADER:
            scan.needed_bytes = length + <int64_t> LOG_OVERHEAD if length > 0 else 0
            return
        magic = <int8_t> at[AT_MAGIC]
        least = MIN_LENGTH_V2 if magic == 2 else MIN_LENGTH_V1 if magic == 1 else MIN_LENGTH_V0
        if magic < 0 or magic > 2 or length < least or length > MAX_LENGTH:
            scan.is_corrupt = True
            return
        if end - at < length + <int64_t> LOG_OVERHEAD:
            scan.needed_bytes = length + <int64_t> LOG_OVERHEAD
            return
        next_offset = batch_end(at, length, magic)
        if next_offset < 0:
            scan.is_corrupt = True
            return
        # A log never goes back. If a broker does, the fetch position must not follow it.
        if next_offset > scan.next_offset:
            scan.next_offset = next_offset
            scan.leader_epoch = load_i32(at + AT_LEADER_EPOCH) if magic == 2 else -1
        at += length + LOG_OVERHEAD
        scan.complete_bytes += length + LOG_OVERHEAD
        scan.batches += 1


@cython.final
cdef class BatchScan:
    """What the headers of a slice's batches say.

    Attributes
    ----------
    next_offset : int
        Offset after the last complete batch, emptied and control batches included; -1 if there
        is no complete batch.
    leader_epoch : int
        Leader epoch of that batch, -1 when unknown.
    complete_bytes, batches : int
        Size and number of complete batches before the first partial or impossible one.
    is_corrupt : bool
        Whether the walk ended at a header that cannot be. The batches before it are good as far
        as headers tell; decoding raises at it.
    needed_bytes : int
        Whole size of a partial batch at the end, where its length can be seen; else 0.
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
    """Walk the batch headers in ``frame[start:end]`` without looking at a record.

    Magic 0 and 1 entries count as batches of one offset. A batch longer than the bytes left is
    normal and ends the walk (D-05); so does a header that cannot be, which sets ``is_corrupt``
    (D-07, D-16). Checksums are not verified.

    Parameters
    ----------
    frame : OwnedBuffer
        A Fetch response.
    start, end : int
        ``records_start`` and ``records_end`` of a partition.

    Returns
    -------
    BatchScan

    Raises
    ------
    ValueError
        The slice is not within the frame.
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
        walk(at, frame.ptr + end, &scan)
    else:
        with nogil:
            walk(at, frame.ptr + end, &scan)
    made = BatchScan.__new__(BatchScan)
    made.next_offset = scan.next_offset
    made.leader_epoch = scan.leader_epoch
    made.complete_bytes = scan.complete_bytes
    made.batches = scan.batches
    made.is_corrupt = scan.is_corrupt
    made.needed_bytes = scan.needed_bytes
    return made
