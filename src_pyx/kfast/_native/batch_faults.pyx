"""Exceptions of the decoder, made from a BatchStatus.

Owns the messages. Every error names the batch, its partition, its place in the response, the
unexpected value, and the offset after it. Not on any hot path. Any thread.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t

from kfast._native.batch_header cimport (
    BATCH_CODEC,
    BATCH_COUNT,
    BATCH_CRC,
    BATCH_DELTA,
    BATCH_LENGTH,
    BATCH_MAGIC,
    BATCH_MARKER,
    BATCH_MESSAGE,
    BATCH_OFFSET,
    BATCH_PAYLOAD,
    BATCH_RECORD,
    BATCH_RECORD_OFFSET,
    BATCH_RECORDS_COUNT,
    BATCH_RECORDS_LIMIT,
    BATCH_WRAPPER_NESTED,
    BATCH_WRAPPER_NULL,
    BATCH_WRAPPER_OFFSET,
    CODEC_MASK,
    LOG_OVERHEAD,
    BatchHeader,
)
from kfast._native.codecs cimport CODEC_ZSTD
from kfast.errors import CorruptRecordError, RecordTooLargeError, UnsupportedCompressionTypeError


cdef dict CAUSES = {
    BATCH_LENGTH: "its length is impossible",
    BATCH_MAGIC: "its format version (magic) is unknown",
    BATCH_OFFSET: "its offsets are negative or beyond 64 bits",
    BATCH_DELTA: "its last offset delta is negative",
    BATCH_COUNT: "its record count does not fit its bytes",
    BATCH_CRC: "its checksum does not match",
    BATCH_CODEC: "its compression does not exist in its format version",
    BATCH_RECORD: "a record's lengths do not add up, or a varint is malformed",
    BATCH_RECORD_OFFSET: "its record offsets do not ascend up to its last offset",
    BATCH_RECORDS_COUNT: "it has more or fewer records than its count",
    BATCH_MARKER: "a control record's key is too short",
    BATCH_MESSAGE: "a message's lengths do not add up",
    BATCH_WRAPPER_NULL: "a compressed message has no value",
    BATCH_WRAPPER_NESTED: "a compressed message contains one of another format or a compressed one",
    BATCH_WRAPPER_OFFSET: "a compressed message's offset is below those inside",
    BATCH_PAYLOAD: "its records do not decompress",
    BATCH_RECORDS_LIMIT: "their index would be larger than max_decompressed_batch_bytes",
}


cdef int64_t offset_after(const BatchFault* fault, int64_t position) noexcept:
    """Return the offset to continue from: after the batch, or at the next one if known."""
    cdef const BatchHeader* h = &fault.batch
    cdef int64_t after = (h.last_offset if h.last_offset >= 0 else h.base_offset) + 1
    # The offsets themselves may be corrupt; the batch after this one bounds them.
    if position < fault.following_offset and (
        fault.following_offset < after or h.last_offset < 0
    ):
        after = fault.following_offset
    if after > position or position == INT64_MAX:
        return max(after, position)
    return position + 1


cdef str found(const BatchFault* fault):
    cdef const BatchHeader* h = &fault.batch
    cdef str place = f"{h.size} bytes at byte {fault.pos} of the response"
    if fault.status == BATCH_LENGTH:
        return f"length {h.size - LOG_OVERHEAD} at byte {fault.pos} of the response"
    if fault.status == BATCH_MAGIC:
        return f"magic {h.magic} at byte {fault.pos} of the response"
    if fault.status == BATCH_CRC:
        return f"computed {fault.found_crc:08x}, expected {h.crc:08x}; {place}"
    if fault.status == BATCH_CODEC:
        return f"codec id {h.attributes & CODEC_MASK} with magic {h.magic}; {place}"
    if fault.status == BATCH_DELTA:
        return f"a delta of {h.last_offset_delta}; {place}"
    if fault.status in (BATCH_COUNT, BATCH_RECORDS_COUNT, BATCH_RECORDS_LIMIT):
        return f"a count of {h.records_count}; {place}"
    return place


cdef object batch_error(
    const BatchFault* fault, object topic, int32_t partition, int64_t position, object cause
):
    cdef const BatchHeader* h = &fault.batch
    cdef int64_t offset = h.base_offset if h.base_offset >= 0 else position
    cdef int64_t after = offset_after(fault, position)
    cdef object error_class = CorruptRecordError
    cdef object hint = f"seek to offset {after} to skip the batch"
    cdef object what = "is corrupt"
    cdef object why = CAUSES[fault.status]
    if fault.status == BATCH_PAYLOAD:
        error_class = type(cause)
        why = cause.message if cause.cause is None else f"{cause.message}: {cause.cause}"
        if cause.hint:
            hint = f"{cause.hint}; or {hint}"
        if error_class is not CorruptRecordError:
            what = "cannot be decompressed"
    elif fault.status == BATCH_RECORDS_LIMIT:
        error_class = RecordTooLargeError
        hint = f"raise max_decompressed_batch_bytes; or {hint}"
        what = "has too many records"
    elif fault.status == BATCH_CODEC and h.attributes & CODEC_MASK > CODEC_ZSTD:
        error_class = UnsupportedCompressionTypeError
        what = "has an unknown compression"
    error = error_class(
        f"{topic}-{partition}: the batch at offset {offset} {what}",
        cause=why,
        found=found(fault),
        hint=hint,
        topic=topic,
        partition=partition,
        offset=offset,
        next_offset=after,
        following_offset=fault.following_offset,
        batch_bytes=-1 if fault.status == BATCH_LENGTH or h.size <= 0 else h.size,
        bytes_behind=fault.bytes_behind,
        byte_position=fault.pos,
    )
    error.__cause__ = cause
    return error


cdef object too_short_error(
    const BatchHeader* batch, object topic, int32_t partition, int64_t position, Py_ssize_t size
):
    cdef object needed = batch.size if batch.size > 0 else None
    return RecordTooLargeError(
        f"{topic}-{partition}: the batch at offset {position} does not fit "
        f"the {size} bytes fetched",
        hint="raise max_partition_fetch_bytes and fetch_max_bytes"
        + ("" if needed is None else f" to {needed}"),
        topic=topic,
        partition=partition,
        offset=position,
        size_needed=needed,
    )
