"""SliceDecoder: turns the record data of one partition of a Fetch response into RecordIndexes.

Owns the order of things for every batch of a slice, per record data format (KIP-32, KIP-98)::

    complete? -> checksum -> below the position, aborted? -> decompress -> index -> marker?

and the line between a normal end and damage:

* A batch longer than the bytes left ends the slice in silence (D-05). Everything else that does not
  add up is damage: the batches before it are handed out, then every further ``decode`` raises with
  the position unmoved (D-06, F-08). Nothing of a damaged batch is handed out.
* The checksum comes before anything it covers is believed, dropped batches included: a flipped bit
  must not make a good batch look aborted or old (D-04).
* Offsets handed out ascend: records below ``next_offset`` are left out, and a batch whose own
  offsets do not ascend up to its last one is damage (F-11).

One ``decode`` is one chunk with one ``data``: the frame itself as long as batches are not
compressed; from a compressed batch on, a payload that later batches of either kind are put into.

Must never: touch a Python object per record, read outside the slice, believe a count or length, or
keep anything of one slice for another. Faults leave the C code as a BatchStatus, and one function,
``SliceDecoder.fault``, gives them words and a place.

Threads: any, one at a time. The GIL is released for whole runs of plain batches up to 4 KiB, and
per batch around checksum, decompression and indexing for others.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint32_t
from libc.string cimport memcpy, memset

from operator import itemgetter

from kfast._native.aborted_transactions cimport AbortedList, end_transaction, is_aborted
from kfast._native.batch_header cimport (
    APPEND_TIME,
    BATCH_CODEC,
    BATCH_COUNT,
    BATCH_CRC,
    BATCH_DELTA,
    BATCH_LENGTH,
    BATCH_MAGIC,
    BATCH_MARKER,
    BATCH_MESSAGE,
    BATCH_NONE,
    BATCH_OFFSET,
    BATCH_OK,
    BATCH_PAYLOAD,
    BATCH_RECORD,
    BATCH_RECORD_OFFSET,
    BATCH_RECORDS_COUNT,
    BATCH_WRAPPER_NESTED,
    BATCH_WRAPPER_NULL,
    BATCH_WRAPPER_OFFSET,
    CODEC_MASK,
    CONTROL,
    LOG_OVERHEAD,
    MESSAGE_CRC_START,
    TRANSACTIONAL,
    V2_CRC_START,
    V2_HEADER,
    V2_MIN_RECORD,
    BatchHeader,
    BatchStatus,
    read_batch_header,
    read_frame_of_batch,
)
from kfast._native.buffers cimport OwnedBuffer, new_buffer
from kfast._native.codecs cimport CODEC_NONE, CODEC_ZSTD, decompress_into
from kfast._native.crc32c cimport crc32_ieee, crc32c_is_short, crc32c_long, crc32c_short
from kfast._native.endian cimport load_i16
from kfast._native.message_set cimport (
    Message,
    add_message,
    index_wrapped,
    read_message,
    walk_wrapped,
    wrapper_base,
)
from kfast._native.record_index cimport RecordIndex, new_index
from kfast._native.record_parser cimport RecordBounds, index_records

from kfast._native.record_index import RecordIndex as RecordIndex
from kfast.errors import (
    CorruptRecordError,
    KafkaError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)


cdef enum:
    MARKER_ABORT = 0
    MARKER_KEY_BYTES = 4
    INDEX_ROW_BYTES = 32       # of a record without headers
    PAYLOAD_GUESS = 4          # times the compressed bytes


# Why the nogil loop came back.
cdef enum Step:
    STEP_END                   # the batch is done with
    STEP_NO_MORE               # no complete batch left
    STEP_FULL                  # the chunk is as large as asked, or cannot take the next batch
    STEP_FAULT                 # `status` says which
    STEP_CHECKSUM              # a long batch's checksum
    STEP_PAYLOAD               # a batch that goes through the payload
    STEP_ROOM                  # more rows
    STEP_HEADERS               # the columns for headers
    STEP_TYPES                 # the column for timestamp types
    STEP_MESSAGE               # magic 0 or 1


FAULTS = {
    BATCH_LENGTH: "its length is impossible",
    BATCH_MAGIC: "its format version (magic) is unknown",
    BATCH_OFFSET: "its offsets are negative or beyond 64 bits",
    BATCH_DELTA: "its last offset delta is negative",
    BATCH_COUNT: "its record count is negative, or more than its bytes can hold",
    BATCH_CRC: "its checksum does not match",
    BATCH_CODEC: "its codec does not exist in its format version",
    BATCH_RECORD: "a record's lengths do not add up, or a varint is malformed",
    BATCH_RECORD_OFFSET: "its record offsets do not ascend up to its last offset",
    BATCH_RECORDS_COUNT: "it holds more or fewer records than its count",
    BATCH_MARKER: "a control record's key is too short",
    BATCH_MESSAGE: "a message's lengths do not add up",
    BATCH_WRAPPER_NULL: "a compressed message has no value",
    BATCH_WRAPPER_NESTED: "a compressed message holds one of another format, or compressed again",
    BATCH_WRAPPER_OFFSET: "a compressed message's offset is below those inside",
    BATCH_PAYLOAD: "its records do not decompress",
}


# What is being built by one `decode`; lives on its stack.
cdef struct Chunk:
    Py_ssize_t limit           # bytes of payload and index to stop at
    Py_ssize_t made
    Py_ssize_t batches
    Py_ssize_t nbytes
    Py_ssize_t batch_bytes     # of the records being indexed
    bint has_payload
    int8_t timestamp_type      # of the rows so far


@cython.final
cdef class SliceDecoder:
    """Decodes ``frame[start:end]`` chunk by chunk.

    Parameters
    ----------
    frame : OwnedBuffer
        A received Fetch response; kept alive by every chunk that points into it.
    start, end : int
        The record data of one partition.
    topic, partition : str, int
        For error messages.
    position : int
        Records below this offset are left out.
    aborted_transactions : iterable of (producer_id, first_offset)
        As the broker sent them, in any order; ignored unless ``read_committed``.
    read_committed : bool
        Drop the records of aborted transactions.
    check_crcs : bool
        Verify checksums (``check.crcs``).
    max_decompressed_batch_bytes : int
        Most that one batch may decompress to.

    Attributes
    ----------
    finished : bool
        Whether nothing is left to decode. An unfinished decoder may be at damage.
    next_offset : int
        Position after everything decoded so far, at first ``position``.
    leader_epoch : int
        Leader epoch of the last batch that moved the position, -1 if unknown.
    """
    cdef OwnedBuffer frame
    cdef Py_ssize_t start
    cdef Py_ssize_t end
    cdef Py_ssize_t pos
    cdef Py_ssize_t checked_pos       # start of the batch whose checksum was found right
    cdef object topic
    cdef int32_t partition
    cdef bint check_crcs
    cdef Py_ssize_t max_batch_bytes
    cdef AbortedList aborted
    cdef OwnedBuffer aborted_memory
    cdef BatchHeader batch            # the one at `pos`
    cdef BatchStatus status
    cdef uint32_t found_crc
    cdef object codec_error
    cdef OwnedBuffer payload
    cdef readonly bint finished
    cdef readonly int64_t next_offset
    cdef readonly int32_t leader_epoch

    def __init__(
        self,
        OwnedBuffer frame not None,
        Py_ssize_t start,
        Py_ssize_t end,
        *,
        str topic not None,
        int32_t partition,
        int64_t position,
        aborted_transactions=(),
        bint read_committed=False,
        bint check_crcs=True,
        Py_ssize_t max_decompressed_batch_bytes=268435456,
    ):
        if start < 0 or end < start or end > frame.size or end > INT32_MAX:
            raise ValueError(f"bytes {start} to {end} are not within a frame of {frame.size}")
        if max_decompressed_batch_bytes < 0:
            raise ValueError("max_decompressed_batch_bytes cannot be negative")
        self.frame = frame
        self.start = start
        self.end = end
        self.pos = start
        self.checked_pos = -1
        self.topic = topic
        self.partition = partition
        self.next_offset = position
        self.leader_epoch = -1
        self.check_crcs = check_crcs
        # Positions within one payload have to fit 32 bits.
        self.max_batch_bytes = min(max_decompressed_batch_bytes, <Py_ssize_t> INT32_MAX)
        self.status = BATCH_OK
        self.finished = start == end
        if read_committed and aborted_transactions:
            self.read_aborted(list(aborted_transactions))

    def __repr__(self):
        return (
            f"<SliceDecoder {self.topic}-{self.partition} next_offset={self.next_offset} "
            f"{self.pos - self.start} of {self.end - self.start} bytes>"
        )

    def decode(self, Py_ssize_t max_bytes) -> RecordIndex:
        """Decode whole batches until about ``max_bytes`` of payload and index have been made.

        Parameters
        ----------
        max_bytes : int
            At least one batch is decoded, however large it is.

        Returns
        -------
        RecordIndex
            Without rows when nothing visible was there; its ``next_offset`` has moved even so.

        Raises
        ------
        CorruptRecordError, UnsupportedCompressionTypeError
            The next batch cannot be read. Raised again by every further call.
        RecordTooLargeError
            A batch decompresses to more than it may, or the slice is too short for its only batch.
        """
        cdef RecordIndex index
        cdef Chunk chunk
        cdef Py_ssize_t pos = self.pos
        cdef int64_t next_offset = self.next_offset
        cdef int32_t epoch = self.leader_epoch
        cdef Py_ssize_t cursor = self.aborted.cursor
        cdef bytes active
        if self.status != BATCH_OK:
            raise self.fault()
        active = self.aborted.active[:self.aborted.producers] if self.aborted.producers else b""
        index = new_index()
        chunk.limit = max_bytes
        chunk.made = 0
        chunk.batches = 0
        chunk.nbytes = 0
        chunk.batch_bytes = 0
        chunk.has_payload = False
        chunk.timestamp_type = 0
        try:
            self.fill(index, &chunk)
            if chunk.batches == 0 and self.status != BATCH_OK:
                raise self.fault()
            index.uniform_type = chunk.timestamp_type
            index.nbytes = chunk.nbytes
            index.seal(
                self.payload if chunk.has_payload else self.frame,
                chunk.has_payload,
                self.next_offset,
                self.leader_epoch,
            )
        except BaseException:
            # Batches of an unfinished chunk are lost with it: the next call reads them again.
            self.pos = pos
            self.next_offset = next_offset
            self.leader_epoch = epoch
            self.finished = False
            self.aborted.cursor = cursor
            if active:
                memcpy(self.aborted.active, <const char*> active, self.aborted.producers)
            raise
        finally:
            self.payload = None
        return index

    # --- one chunk --------------------------------------------------------------------------------

    cdef int fill(self, RecordIndex index, Chunk* chunk) except -1:
        """Run batches into the index until the chunk is done or a fault is met."""
        cdef Step step = STEP_END
        while self.status == BATCH_OK:
            with nogil:
                step = self.run(index, chunk)
            if step == STEP_CHECKSUM:
                self.check_long()
            elif step == STEP_PAYLOAD:
                step = self.decode_payload(index, chunk)
            elif step == STEP_MESSAGE:
                step = self.decode_message(index, chunk)
            elif step != STEP_FULL and step != STEP_NO_MORE:
                self.prepare(index, chunk, step)
            if step == STEP_FULL or step == STEP_NO_MORE:
                break
        if self.status != BATCH_OK:
            return 0
        self.finished = step == STEP_NO_MORE or read_frame_of_batch(
            self.frame.ptr + self.pos, self.end - self.pos, &self.batch
        ) == BATCH_NONE
        if self.pos == self.start and self.finished and self.end > self.start:
            self.finished = False
            self.status = BATCH_NONE
        return 0

    cdef Step run(self, RecordIndex index, Chunk* chunk) noexcept nogil:
        """Take batches as far as it goes without Python. Safe to call again for the same batch."""
        cdef BatchHeader* h = &self.batch
        cdef const char* at
        cdef Step step
        while True:
            if chunk.made >= chunk.limit and chunk.batches > 0:
                return STEP_FULL
            at = self.frame.ptr + self.pos
            self.status = read_batch_header(at, self.end - self.pos, h)
            if self.status == BATCH_NONE:
                self.status = BATCH_OK
                return STEP_NO_MORE
            if self.status != BATCH_OK:
                return STEP_FAULT
            if h.magic != 2:
                return STEP_MESSAGE
            if self.check_crcs and self.checked_pos != self.pos:
                if not crc32c_is_short(h.size - V2_CRC_START):
                    return STEP_CHECKSUM
                self.found_crc = crc32c_short(at + V2_CRC_START, h.size - V2_CRC_START)
                if self.found_crc != h.crc:
                    self.status = BATCH_CRC
                    return STEP_FAULT
                self.checked_pos = self.pos
            step = self.take(index, chunk, at)
            if step != STEP_END:
                return step

    cdef Step take(self, RecordIndex index, Chunk* chunk, const char* at) noexcept nogil:
        """Deal with a batch whose header and checksum are good; STEP_END when it is done."""
        cdef BatchHeader* h = &self.batch
        cdef bint dropped = h.last_offset < self.next_offset
        cdef bint is_control = h.attributes & CONTROL
        if self.aborted.entries > 0 and h.producer_id >= 0:
            if is_aborted(&self.aborted, h.producer_id, h.last_offset):
                dropped |= h.attributes & TRANSACTIONAL
        if dropped and not is_control:
            self.commit(chunk)
            return STEP_END
        if (h.attributes & CODEC_MASK) > CODEC_ZSTD:
            self.status = BATCH_CODEC
            return STEP_FAULT
        if h.attributes & CODEC_MASK or (chunk.has_payload and not is_control):
            if index.columns.n > 0 and not chunk.has_payload and not is_control:
                return STEP_FULL
            return STEP_PAYLOAD
        return self.index_batch(index, chunk, self.frame.ptr, self.pos + V2_HEADER,
                                self.pos + h.size)

    cdef Step index_batch(
        self, RecordIndex index, Chunk* chunk, const char* data, Py_ssize_t start, Py_ssize_t stop
    ) noexcept nogil:
        """Index the plain records of the current batch; STEP_END when it is done."""
        cdef BatchHeader* h = &self.batch
        cdef RecordBounds bounds
        cdef Py_ssize_t n = index.columns.n
        cdef bint is_control = h.attributes & CONTROL
        cdef int8_t timestamp_type = 1 if h.attributes & APPEND_TIME else 0
        chunk.batch_bytes = stop - start
        if h.records_count > (stop - start) // V2_MIN_RECORD:
            self.status = BATCH_COUNT
            return STEP_FAULT
        if n + h.records_count > index.columns.room:
            return STEP_ROOM
        if not is_control and needs_types(index, chunk, timestamp_type):
            return STEP_TYPES
        bounds.floor_offset = INT64_MIN if is_control else self.next_offset
        self.status = index_records(data, start, stop, h, &bounds, &index.columns)
        if self.status != BATCH_OK:
            return STEP_FAULT
        if bounds.needs_headers:
            return STEP_HEADERS
        if is_control:
            # A marker went into the index like a record, to be checked and read; now it leaves.
            self.status = self.read_marker(index, data, n)
            index.columns.n = n
            if self.status != BATCH_OK:
                return STEP_FAULT
        else:
            note_types(index, chunk, n, timestamp_type)
            chunk.made += (stop - start) + (index.columns.n - n) * INDEX_ROW_BYTES
            chunk.nbytes += stop - start
        self.commit(chunk)
        return STEP_END

    cdef BatchStatus read_marker(
        self, RecordIndex index, const char* data, Py_ssize_t row
    ) noexcept nogil:
        """Let an ABORT marker in row ``row`` end its producer's transaction."""
        if self.aborted.entries == 0 or index.columns.n == row:
            return BATCH_OK
        if index.columns.key_lengths[row] < MARKER_KEY_BYTES:
            return BATCH_MARKER
        if load_i16(data + index.columns.key_starts[row] + 2) == MARKER_ABORT:
            end_transaction(&self.aborted, self.batch.producer_id)
        return BATCH_OK

    cdef void commit(self, Chunk* chunk) noexcept nogil:
        """Leave the current batch behind."""
        self.pos += self.batch.size
        chunk.batches += 1
        if self.batch.last_offset >= self.next_offset:
            self.next_offset = self.batch.last_offset + 1
            self.leader_epoch = self.batch.leader_epoch

    # --- steps that need Python -------------------------------------------------------------------

    cdef int prepare(self, RecordIndex index, Chunk* chunk, Step step) except -1:
        """Give the index what it lacks for the current batch."""
        cdef Py_ssize_t rows, expected
        if step == STEP_HEADERS:
            index.add_header_columns()
        elif step == STEP_TYPES:
            index.uniform_type = chunk.timestamp_type
            index.add_type_column()
        elif step == STEP_ROOM:
            # The count has been held against the bytes. Expect the rest of the slice to be alike,
            # as far as the chunk goes.
            rows = self.batch.records_count
            expected = rows * ((self.end - self.pos) // self.batch.size + 1)
            expected = min(
                expected,
                (chunk.limit - chunk.made) // (chunk.batch_bytes // rows + INDEX_ROW_BYTES) + rows,
            )
            index.make_room(index.columns.n + rows, index.columns.n + expected)
        return 0

    cdef int check_long(self) except -1:
        """The checksum of a batch that is too long for ``crc32c_short``."""
        self.found_crc = crc32c_long(
            self.frame.ptr + self.pos + V2_CRC_START, self.batch.size - V2_CRC_START
        )
        if self.found_crc == self.batch.crc:
            self.checked_pos = self.pos
        else:
            self.status = BATCH_CRC
        return 0

    cdef bint open_payload(self, RecordIndex index, Chunk* chunk) except -1:
        """Whether the chunk has a payload that can take one more batch; else the chunk must end."""
        cdef Py_ssize_t guess
        cdef Py_ssize_t most = max(self.max_batch_bytes, <Py_ssize_t> self.batch.size)
        if not chunk.has_payload:
            if index.columns.n > 0:
                return False
            guess = min(chunk.limit, (self.end - self.pos) * PAYLOAD_GUESS)
            self.payload = new_buffer(max(guess, <Py_ssize_t> 0))
            chunk.has_payload = True
        return self.payload.size == 0 or most <= INT32_MAX - self.payload.size

    cdef int unpack(
        self, OwnedBuffer target, const char* source, Py_ssize_t size, int codec
    ) except -1:
        """Append the records of the current batch to ``target``; a refusal becomes the status."""
        try:
            decompress_into(
                codec,
                source,
                size,
                target,
                self.max_batch_bytes if codec != CODEC_NONE else size,
                self.batch.magic,
            )
        except KafkaError as error:
            self.codec_error = error
            self.status = BATCH_PAYLOAD
        return 0

    cdef Step decode_payload(self, RecordIndex index, Chunk* chunk) except *:
        """A batch of magic 2 that is compressed, or whose chunk has a payload already."""
        cdef OwnedBuffer target
        cdef Py_ssize_t before
        cdef Py_ssize_t size = self.batch.size - V2_HEADER
        cdef int codec = self.batch.attributes & CODEC_MASK
        cdef Step step = STEP_END
        if self.batch.attributes & CONTROL:
            target = new_buffer(size)
        elif not self.open_payload(index, chunk):
            return STEP_FULL
        else:
            target = self.payload
        before = target.size
        # A batch emptied by compaction may have kept its codec but has no stream.
        if size > 0:
            self.unpack(target, self.frame.ptr + self.pos + V2_HEADER, size, codec)
        while self.status == BATCH_OK:
            with nogil:
                step = self.index_batch(index, chunk, target.ptr, before, target.size)
            if step == STEP_END:
                return step
            self.prepare(index, chunk, step)
        target.size = before
        return step

    cdef Step decode_message(self, RecordIndex index, Chunk* chunk) except *:
        """A message of magic 0 or 1, plain or a wrapper."""
        cdef BatchHeader* h = &self.batch
        cdef const char* at = self.frame.ptr + self.pos
        cdef int codec = h.attributes & CODEC_MASK
        cdef int8_t kind = -1 if h.magic == 0 else 1 if h.attributes & APPEND_TIME else 0
        cdef Message m
        if self.check_crcs:
            self.found_crc = crc32_ieee(at + MESSAGE_CRC_START, h.size - MESSAGE_CRC_START)
            if self.found_crc != h.crc:
                self.status = BATCH_CRC
                return STEP_FAULT
        if codec >= CODEC_ZSTD:
            self.status = BATCH_CODEC
            return STEP_FAULT
        self.status = read_message(self.frame.ptr, self.pos, h, &m)
        if self.status == BATCH_OK and codec != CODEC_NONE and m.value_length < 0:
            self.status = BATCH_WRAPPER_NULL
        if self.status != BATCH_OK:
            return STEP_FAULT
        # A wrapper at offset 0 does not tell the offset of its last message.
        if h.last_offset < self.next_offset and (codec == CODEC_NONE or h.base_offset != 0):
            self.commit(chunk)
            return STEP_END
        if needs_types(index, chunk, kind):
            self.prepare(index, chunk, STEP_TYPES)
        if codec != CODEC_NONE:
            return self.decode_wrapper(index, chunk, &m, kind)
        if chunk.has_payload:
            if not self.open_payload(index, chunk):
                return STEP_FULL
            self.unpack(self.payload, at, h.size, CODEC_NONE)
            read_message(self.payload.ptr, self.payload.size - h.size, h, &m)
        self.make_room_for_messages(index, chunk, 1, h.size)
        add_message(&index.columns, &m, h.base_offset, h.base_timestamp)
        self.end_messages(index, chunk, 1, kind)
        return STEP_END

    cdef Step decode_wrapper(
        self, RecordIndex index, Chunk* chunk, const Message* m, int8_t kind
    ) except *:
        """The messages inside a compressed one."""
        cdef BatchHeader* h = &self.batch
        cdef Py_ssize_t before, rows
        cdef int64_t last = -1
        cdef int64_t count = 0
        cdef int64_t base = 0
        if not self.open_payload(index, chunk):
            return STEP_FULL
        before = self.payload.size
        self.unpack(
            self.payload, self.frame.ptr + m.value_start, m.value_length,
            h.attributes & CODEC_MASK,
        )
        if self.status == BATCH_OK:
            self.status = walk_wrapped(
                self.payload.ptr, before, self.payload.size, h.magic, &last, &count
            )
        if self.status == BATCH_OK:
            self.status = wrapper_base(h, last, &base)
        if self.status != BATCH_OK:
            self.payload.size = before
            return STEP_FAULT
        h.last_offset = max(h.base_offset, base + last)
        self.make_room_for_messages(index, chunk, count, self.payload.size - before)
        rows = index.columns.n
        index_wrapped(
            self.payload.ptr, before, self.payload.size, h, base, self.next_offset, &index.columns
        )
        self.end_messages(index, chunk, index.columns.n - rows, kind)
        return STEP_END

    cdef int make_room_for_messages(
        self, RecordIndex index, Chunk* chunk, Py_ssize_t rows, Py_ssize_t size
    ) except -1:
        chunk.batch_bytes = size
        if index.columns.n + rows > index.columns.room:
            index.make_room(index.columns.n + rows, 2 * index.columns.n)
        return 0

    cdef int end_messages(
        self, RecordIndex index, Chunk* chunk, Py_ssize_t rows, int8_t kind
    ) except -1:
        note_types(index, chunk, index.columns.n - rows, kind)
        chunk.made += chunk.batch_bytes + rows * INDEX_ROW_BYTES
        chunk.nbytes += chunk.batch_bytes
        self.commit(chunk)
        return 0

    # --- aborted transactions ---------------------------------------------------------------------

    cdef int read_aborted(self, list entries) except -1:
        """Lay the list out for ``aborted_transactions.pxd``; the broker's order means nothing."""
        cdef Py_ssize_t n = len(entries)
        cdef list ids = sorted({producer_id for producer_id, _ in entries})
        cdef Py_ssize_t m = len(ids)
        cdef dict owner = {producer_id: i for i, producer_id in enumerate(ids)}
        cdef int64_t* first_offsets
        cdef int64_t* producer_ids
        cdef int32_t* owners
        cdef Py_ssize_t i
        self.aborted_memory = new_buffer(8 * n + 8 * m + 4 * n + m)
        first_offsets = <int64_t*> self.aborted_memory.ptr
        producer_ids = first_offsets + n
        owners = <int32_t*> (producer_ids + m)
        self.aborted.active = <char*> (owners + n)
        for i, (producer_id, first_offset) in enumerate(sorted(entries, key=itemgetter(1))):
            first_offsets[i] = first_offset
            owners[i] = owner[producer_id]
        for i in range(m):
            producer_ids[i] = ids[i]
        memset(self.aborted.active, 0, m)
        self.aborted.entries = n
        self.aborted.cursor = 0
        self.aborted.first_offsets = first_offsets
        self.aborted.owners = owners
        self.aborted.producers = m
        self.aborted.producer_ids = producer_ids
        return 0

    # --- faults -----------------------------------------------------------------------------------

    cdef int64_t offset_after_fault(self):
        """Where reading can go on: after the damaged batch, or at the next that can be seen."""
        cdef BatchHeader following
        cdef BatchHeader* h = &self.batch
        cdef int64_t after = h.last_offset + 1 if h.last_offset >= 0 else h.base_offset + 1
        cdef int64_t left = self.end - self.pos - h.size
        if self.status != BATCH_LENGTH and self.status != BATCH_MAGIC and 0 < left:
            # The damage may be in the offsets themselves; the next batch's are as good.
            if read_batch_header(
                self.frame.ptr + self.pos + h.size, left, &following
            ) == BATCH_OK and self.next_offset < following.base_offset < after:
                after = following.base_offset
        return max(after, self.next_offset + 1)

    cdef object fault(self):
        """The exception for ``status``, with the place it was met at."""
        cdef BatchHeader* h = &self.batch
        cdef object where = f"{self.topic}-{self.partition}"
        cdef int64_t offset = h.base_offset if h.base_offset >= 0 else self.next_offset
        cdef int codec = h.attributes & CODEC_MASK
        cdef object error_class = CorruptRecordError
        cdef object inner = self.codec_error
        if self.status == BATCH_NONE:
            return RecordTooLargeError(
                f"{where}: the batch at offset {self.next_offset} does not fit the "
                f"{self.end - self.start} bytes fetched",
                hint="raise max_partition_fetch_bytes and fetch_max_bytes"
                + (f" to {h.size}" if h.size > 0 else ""),
                topic=self.topic,
                partition=self.partition,
                offset=self.next_offset,
                size_needed=h.size if h.size > 0 else None,
            )
        after = self.offset_after_fault()
        cause = FAULTS[self.status]
        found = f"{h.size} bytes at byte {self.pos} of the response"
        hint = f"seek to offset {after} to leave the batch out"
        message = f"{where}: the batch at offset {offset} is corrupt"
        if self.status == BATCH_PAYLOAD:
            error_class = type(inner)
            cause = inner.message if inner.cause is None else f"{inner.message}: {inner.cause}"
            hint = f"{inner.hint}; or {hint}" if inner.hint else hint
            if error_class is not CorruptRecordError:
                message = f"{where}: the batch at offset {offset} cannot be decompressed"
        elif self.status == BATCH_CRC:
            found = f"{self.found_crc:08x} where it says {h.crc:08x}; {found}"
        elif self.status == BATCH_MAGIC:
            found = f"magic {h.magic}; {found}"
        elif self.status == BATCH_LENGTH:
            found = f"length {h.size - LOG_OVERHEAD} at byte {self.pos} of the response"
        elif self.status == BATCH_CODEC:
            found = f"codec id {codec}; {found}"
            if codec > CODEC_ZSTD:
                error_class = UnsupportedCompressionTypeError
                message = f"{where}: the batch at offset {offset} has an unknown compression"
        elif self.status == BATCH_COUNT or self.status == BATCH_RECORDS_COUNT:
            found = f"a count of {h.records_count}; {found}"
        error = error_class(
            message,
            cause=cause,
            found=found,
            hint=hint,
            topic=self.topic,
            partition=self.partition,
            offset=offset,
            next_offset=after,
            byte_position=self.pos,
        )
        error.__cause__ = inner
        return error


cdef bint needs_types(RecordIndex index, Chunk* chunk, int8_t kind) noexcept nogil:
    """Whether rows of this timestamp type make a column necessary that is not there yet."""
    return (
        index.columns.n > 0
        and kind != chunk.timestamp_type
        and index.columns.timestamp_types is NULL
    )


cdef void note_types(
    RecordIndex index, Chunk* chunk, Py_ssize_t first, int8_t kind
) noexcept nogil:
    """Rows from ``first`` on have this timestamp type."""
    if index.columns.timestamp_types is not NULL:
        memset(index.columns.timestamp_types + first, kind, index.columns.n - first)
    elif first == 0:
        chunk.timestamp_type = kind
