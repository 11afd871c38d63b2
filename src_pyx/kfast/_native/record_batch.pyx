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
The rows of a chunk are of one leader epoch, the one a position behind any of them has (KIP-320).

Must never: touch a Python object per record, read outside the slice, believe a count or length, or
keep anything of one slice for another. Faults leave the C code as a BatchStatus;
``batch_faults.pyx`` gives them words and a place.

Threads: any, one at a time. The GIL is released for whole runs of plain batches, and around
decompression and indexing for others.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int8_t, int32_t, int64_t

from kfast._native.aborted_transactions cimport (
    AbortedTransactions,
    end_transaction,
    is_aborted,
    read_aborted,
)
from kfast._native.batch_faults cimport BatchFault, batch_error, too_short_error
from kfast._native.batch_header cimport (
    APPEND_TIME,
    BATCH_CODEC,
    BATCH_CRC,
    BATCH_MARKER,
    BATCH_NONE,
    BATCH_OK,
    BATCH_PAYLOAD,
    BATCH_WRAPPER_NULL,
    CODEC_MASK,
    CONTROL,
    MESSAGE_CRC_START,
    TRANSACTIONAL,
    V2_CRC_START,
    V2_HEADER,
    BatchHeader,
    read_batch_header,
)
from kfast._native.buffers cimport OwnedBuffer, new_buffer
from kfast._native.chunk_builder cimport (
    MARKER_ABORT,
    MARKER_NONE,
    MARKER_UNREADABLE,
    NEED_NOTHING,
    ChunkBuilder,
    Need,
    new_chunk,
)
from kfast._native.codecs cimport CODEC_NONE, CODEC_ZSTD, decompress_into
from kfast._native.crc32c cimport crc32_ieee, crc32c_direct, crc32c_packaged, is_crc32c_direct
from kfast._native.message_set cimport (
    Message,
    add_message,
    index_wrapped,
    read_message,
    walk_wrapped,
    wrapper_base,
)

from kfast._native.record_index import RecordIndex as RecordIndex
from kfast.errors import KafkaError


# Why the nogil loop came back.
cdef enum Step:
    STEP_DONE                  # the batch is left behind
    STEP_NO_MORE               # no complete batch is left
    STEP_FULL                  # the chunk is as large as asked, or cannot take the batch
    STEP_FAULT                 # the status says which
    STEP_CHECKSUM              # a checksum that the package has to make
    STEP_NEED                  # `need` says what the chunk lacks
    STEP_PAYLOAD               # a batch that goes through the payload
    STEP_MESSAGE               # magic 0 or 1


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
    cdef AbortedTransactions aborted
    cdef bint has_aborted
    cdef BatchHeader batch            # the one at `pos`
    cdef BatchFault fault             # its status sticks
    cdef object codec_error
    cdef ChunkBuilder chunk           # only while decoding
    cdef Need need
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
        self.fault.status = BATCH_OK
        self.finished = start == end
        self.has_aborted = False
        if read_committed and aborted_transactions:
            self.aborted = read_aborted(aborted_transactions)
            self.has_aborted = True

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
        cdef Py_ssize_t pos = self.pos
        cdef int64_t next_offset = self.next_offset
        cdef int32_t leader_epoch = self.leader_epoch
        cdef bint finished = self.finished
        cdef tuple aborted = self.aborted.snapshot() if self.has_aborted else None
        if self.fault.status != BATCH_OK:
            raise self.error()
        self.chunk = new_chunk(max_bytes)
        try:
            self.fill()
            if self.chunk.batches == 0 and self.fault.status != BATCH_OK:
                raise self.error()
            return self.chunk.seal(self.frame, self.next_offset, self.leader_epoch)
        except BaseException:
            # An unfinished chunk is lost with what it held: the next call reads it again.
            self.pos = pos
            self.next_offset = next_offset
            self.leader_epoch = leader_epoch
            self.finished = finished
            if aborted is not None:
                self.aborted.restore(aborted)
            raise
        finally:
            self.chunk = None

    cdef int fill(self) except -1:
        """Take batches until the chunk is done or a fault is met."""
        cdef Step step = STEP_DONE
        cdef BatchHeader following
        while step != STEP_NO_MORE and step != STEP_FULL and step != STEP_FAULT:
            with nogil:
                step = self.run()
            if step == STEP_CHECKSUM:
                step = self.check_packaged()
            elif step == STEP_NEED:
                self.chunk.provide(self.need, &self.batch, self.end - self.pos)
            elif step == STEP_PAYLOAD:
                step = self.decode_payload()
            elif step == STEP_MESSAGE:
                step = self.decode_message()
        if step == STEP_FAULT:
            self.fault.batch = self.batch
            self.fault.pos = self.pos
            return 0
        self.finished = step == STEP_NO_MORE or read_batch_header(
            self.frame.ptr + self.pos, self.end - self.pos, &following
        ) == BATCH_NONE
        if self.finished and self.pos == self.start < self.end:
            # Not one complete batch: going on like this would never end.
            self.finished = False
            self.fault.status = BATCH_NONE
            self.fault.batch = self.batch
        return 0

    # --- without the GIL --------------------------------------------------------------------------

    cdef Step run(self) noexcept nogil:
        """Take batches as far as it goes without Python. Safe to call again for the same batch."""
        cdef BatchHeader* h = &self.batch
        cdef const char* at
        cdef Step step = STEP_DONE
        while step == STEP_DONE:
            if self.chunk.made >= self.chunk.limit and self.chunk.batches > 0:
                return STEP_FULL
            at = self.frame.ptr + self.pos
            self.fault.status = read_batch_header(at, self.end - self.pos, h)
            if self.fault.status == BATCH_NONE:
                self.fault.status = BATCH_OK
                return STEP_NO_MORE
            if self.fault.status != BATCH_OK:
                return STEP_FAULT
            if h.leader_epoch != self.leader_epoch and self.chunk.index.columns.n > 0:
                return STEP_FULL
            if h.magic != 2:
                return STEP_MESSAGE
            if self.check_crcs and self.checked_pos != self.pos:
                if not is_crc32c_direct(h.size - V2_CRC_START):
                    return STEP_CHECKSUM
                self.fault.found_crc = crc32c_direct(at + V2_CRC_START, h.size - V2_CRC_START)
                if self.fault.found_crc != h.crc:
                    self.fault.status = BATCH_CRC
                    return STEP_FAULT
                self.checked_pos = self.pos
            step = self.take()
        return step

    cdef Step take(self) noexcept nogil:
        """Deal with a batch of magic 2 whose header and checksum are good."""
        cdef BatchHeader* h = &self.batch
        cdef bint is_dropped = h.last_offset < self.next_offset
        cdef bint is_control = h.attributes & CONTROL
        cdef int codec = h.attributes & CODEC_MASK
        # The list is asked for every batch of a producer, dropped or not: it keeps a cursor.
        if self.has_aborted and h.producer_id >= 0:
            if is_aborted(&self.aborted.list, h.producer_id, h.last_offset):
                is_dropped |= h.attributes & TRANSACTIONAL
        if is_dropped and not is_control:
            return self.leave()
        if codec > CODEC_ZSTD:
            self.fault.status = BATCH_CODEC
            return STEP_FAULT
        if codec != CODEC_NONE or (self.chunk.has_payload and not is_control):
            return STEP_PAYLOAD
        return self.add(self.frame.ptr, self.pos + V2_HEADER, self.pos + h.size)

    cdef Step add(self, const char* data, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        """Index the plain records of the current batch, or read its marker."""
        cdef int32_t marker = MARKER_NONE
        if self.batch.attributes & CONTROL:
            self.need = self.chunk.read_marker(
                data, start, stop, &self.batch, &self.fault.status, &marker
            )
        else:
            self.need = self.chunk.add_records(
                data, start, stop, &self.batch, self.next_offset, &self.fault.status
            )
        if self.fault.status != BATCH_OK:
            return STEP_FAULT
        if self.need != NEED_NOTHING:
            return STEP_NEED
        if self.has_aborted and marker == MARKER_UNREADABLE:
            self.fault.status = BATCH_MARKER
            return STEP_FAULT
        if self.has_aborted and marker == MARKER_ABORT:
            end_transaction(&self.aborted.list, self.batch.producer_id)
        return self.leave()

    cdef Step leave(self) noexcept nogil:
        """Leave the current batch behind."""
        self.pos += self.batch.size
        self.chunk.batches += 1
        if self.batch.last_offset >= self.next_offset:
            self.next_offset = self.batch.last_offset + 1
            self.leader_epoch = self.batch.leader_epoch
        return STEP_DONE

    # --- with the GIL -----------------------------------------------------------------------------

    cdef Step check_packaged(self) except *:
        """The checksum of a batch that ``crc32c_direct`` refuses."""
        self.fault.found_crc = crc32c_packaged(
            self.frame.ptr + self.pos + V2_CRC_START, self.batch.size - V2_CRC_START
        )
        if self.fault.found_crc != self.batch.crc:
            self.fault.status = BATCH_CRC
            return STEP_FAULT
        self.checked_pos = self.pos
        return STEP_DONE

    cdef bint open_payload(self) except -1:
        return self.chunk.open_payload(
            self.end - self.pos, max(self.max_batch_bytes, <Py_ssize_t> self.batch.size)
        )

    cdef Step unpack(
        self, OwnedBuffer target, const char* source, Py_ssize_t size, int codec
    ) except *:
        """Append what ``source`` holds to ``target``; a codec's refusal is a fault."""
        cdef Py_ssize_t most = size if codec == CODEC_NONE else self.max_batch_bytes
        try:
            decompress_into(codec, source, size, target, most, self.batch.magic)
        except KafkaError as error:
            self.codec_error = error
            self.fault.status = BATCH_PAYLOAD
            return STEP_FAULT
        return STEP_DONE

    cdef Step decode_payload(self) except *:
        """A batch of magic 2 that is compressed, or whose chunk has a payload already."""
        cdef OwnedBuffer target
        cdef Py_ssize_t before
        cdef Py_ssize_t size = self.batch.size - V2_HEADER
        cdef int codec = self.batch.attributes & CODEC_MASK
        cdef Step step = STEP_DONE
        if self.batch.attributes & CONTROL:
            target = new_buffer(size)
        elif self.open_payload():
            target = self.chunk.payload
        else:
            return STEP_FULL
        before = target.size
        # A batch emptied by compaction may have kept its codec, but has no stream.
        if size > 0:
            step = self.unpack(target, self.frame.ptr + self.pos + V2_HEADER, size, codec)
        while step != STEP_FAULT:
            with nogil:
                step = self.add(target.ptr, before, target.size)
            if step == STEP_DONE:
                return step
            if step == STEP_NEED:
                self.chunk.provide(self.need, &self.batch, self.end - self.pos)
        target.size = before
        return step

    cdef Step decode_message(self) except *:
        """A message of magic 0 or 1, plain or a wrapper."""
        cdef BatchHeader* h = &self.batch
        cdef const char* at = self.frame.ptr + self.pos
        cdef int codec = h.attributes & CODEC_MASK
        cdef int8_t kind = -1 if h.magic == 0 else 1 if h.attributes & APPEND_TIME else 0
        cdef Message m
        if self.check_crcs:
            self.fault.found_crc = crc32_ieee(
                at + MESSAGE_CRC_START, h.size - MESSAGE_CRC_START
            )
            if self.fault.found_crc != h.crc:
                self.fault.status = BATCH_CRC
                return STEP_FAULT
        if codec >= CODEC_ZSTD:
            self.fault.status = BATCH_CODEC
            return STEP_FAULT
        self.fault.status = read_message(self.frame.ptr, self.pos, h, &m)
        if self.fault.status == BATCH_OK and codec != CODEC_NONE and m.value_length < 0:
            self.fault.status = BATCH_WRAPPER_NULL
        if self.fault.status != BATCH_OK:
            return STEP_FAULT
        # A wrapper at offset 0 does not tell the offset of its last message.
        if h.last_offset < self.next_offset and (codec == CODEC_NONE or h.base_offset != 0):
            return self.leave()
        if codec != CODEC_NONE:
            return self.decode_wrapper(&m, kind)
        if self.chunk.has_payload:
            if not self.open_payload():
                return STEP_FULL
            self.unpack(self.chunk.payload, at, h.size, CODEC_NONE)
            read_message(self.chunk.payload.ptr, self.chunk.payload.size - h.size, h, &m)
        self.chunk.before_messages(1, h.size, kind)
        add_message(&self.chunk.index.columns, &m, h.base_offset, h.base_timestamp)
        self.chunk.after_messages(1, kind)
        return self.leave()

    cdef Step decode_wrapper(self, const Message* m, int8_t kind) except *:
        """The messages inside a compressed one."""
        cdef BatchHeader* h = &self.batch
        cdef OwnedBuffer payload
        cdef Py_ssize_t before, rows
        cdef int64_t last = -1
        cdef int64_t count = 0
        cdef int64_t base = 0
        cdef const char* value = self.frame.ptr + m.value_start
        if not self.open_payload():
            return STEP_FULL
        payload = self.chunk.payload
        before = payload.size
        if self.unpack(payload, value, m.value_length, h.attributes & CODEC_MASK) != STEP_FAULT:
            self.fault.status = walk_wrapped(
                payload.ptr, before, payload.size, h.magic, &last, &count
            )
            if self.fault.status == BATCH_OK:
                self.fault.status = wrapper_base(h, last, &base)
        if self.fault.status != BATCH_OK:
            payload.size = before
            return STEP_FAULT
        h.last_offset = max(h.base_offset, base + last)
        rows = self.chunk.index.columns.n
        self.chunk.before_messages(count, payload.size - before, kind)
        index_wrapped(
            payload.ptr, before, payload.size, h, base, self.next_offset, &self.chunk.index.columns
        )
        self.chunk.after_messages(self.chunk.index.columns.n - rows, kind)
        return self.leave()

    cdef object error(self):
        """The exception for the batch at ``pos``."""
        cdef BatchHeader following
        cdef int64_t left
        if self.fault.status == BATCH_NONE:
            return too_short_error(
                &self.fault.batch, self.topic, self.partition, self.next_offset,
                self.end - self.start,
            )
        self.fault.following_offset = -1
        left = self.end - self.fault.pos - self.fault.batch.size
        if self.fault.batch.last_offset >= 0 and left > 0 and read_batch_header(
            self.frame.ptr + self.fault.pos + self.fault.batch.size, left, &following
        ) == BATCH_OK:
            self.fault.following_offset = following.base_offset
        return batch_error(
            &self.fault, self.topic, self.partition, self.next_offset, self.codec_error
        )
