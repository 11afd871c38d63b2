"""SliceDecoder: decodes the record data of one partition of a Fetch response into RecordIndexes.

Owns the order of steps for every batch of a slice, per record data format (KIP-32, KIP-98)::

    complete? -> checksum -> below the position, aborted? -> decompress -> index -> marker?

and the difference between a normal end and a corrupt batch:

* A batch longer than the bytes left ends the slice without an error (D-05). All other
  inconsistencies are errors: the batches before are returned, then every further ``decode`` raises
  with the position unchanged (D-06, F-08). No record of a corrupt batch is returned.
* The checksum is verified before anything it covers is used, of dropped batches too: a flipped bit
  must not make a valid batch look aborted or old (D-04).
* Offsets ascend: records below ``next_offset`` are dropped, and a batch whose offsets do not ascend
  up to its last one is corrupt (F-11).

One ``decode`` makes one chunk with one ``data``: the frame itself as long as batches are not
compressed; from a compressed batch on, a payload with all later batches of the chunk. The rows of a
chunk have one leader epoch, that of a position after any of them (KIP-320).

Memory: ``max_decompressed_batch_bytes`` bounds what one batch may decompress to, and as much again
is allowed for its index (1 MiB at least); a codec's own memory is given back before the index is
made. Both are checked before anything is written.

Must never: use a Python object per record, read outside the slice, trust a count or length, or keep
state of one slice for another. Faults leave the C code as a BatchStatus; ``batch_faults.pyx`` makes
the exceptions.

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
    BATCH_LENGTH,
    BATCH_MARKER,
    BATCH_NONE,
    BATCH_OK,
    BATCH_PAYLOAD,
    BATCH_RECORDS_LIMIT,
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
    INDEX_ROW_MOST,
    MARKER_ABORT,
    MARKER_NONE,
    MARKER_UNREADABLE,
    NEED_NOTHING,
    ChunkBuilder,
    Need,
    new_chunk,
)
from kfast._native.codecs cimport CODEC_NONE, CODEC_ZSTD, decompress_into, too_large
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


cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX


cdef enum:
    LEAST_INDEX_BYTES = 1048576    # that a batch may have in any case


# Why the nogil loop returned.
cdef enum Step:
    STEP_DONE                  # the batch is done
    STEP_NO_MORE               # no complete batch is left
    STEP_FULL                  # the chunk has the requested size, or no room for the batch
    STEP_OVER                  # the batch needs more than the chunk may have at all
    STEP_FAULT                 # the status says which
    STEP_CHECKSUM              # a checksum that the package has to compute
    STEP_NEED                  # `need` is what the chunk lacks
    STEP_PAYLOAD               # a batch that goes through the payload
    STEP_MESSAGE               # magic 0 or 1


cdef inline bint is_end(Step step) noexcept nogil:
    return step == STEP_NO_MORE or step == STEP_FULL or step == STEP_OVER or step == STEP_FAULT


@cython.final
cdef class SliceDecoder:
    """Decodes ``frame[start:end]``, the records of one partition, chunk by chunk.

    Records below ``position`` are dropped; ``topic`` and ``partition`` are for errors. The list of
    ``aborted_transactions`` has (producer_id, first_offset) in any order and is ignored unless
    ``read_committed``. Every chunk that points into the frame keeps it alive.

    Attributes
    ----------
    finished : bool
        Whether nothing is left to decode. An unfinished decoder may be at a corrupt batch.
    next_offset : int
        Position after everything decoded so far, at first ``position``.
    leader_epoch : int
        Leader epoch of the last batch that advanced the position, -1 if unknown.
    """
    cdef OwnedBuffer frame
    cdef Py_ssize_t start
    cdef Py_ssize_t end
    cdef Py_ssize_t pos
    cdef Py_ssize_t checked_pos       # start of the last batch whose checksum was verified
    cdef object topic
    cdef int32_t partition
    cdef bint check_crcs
    cdef Py_ssize_t max_batch_bytes
    cdef Py_ssize_t max_batch_rows
    cdef AbortedTransactions aborted
    cdef bint has_aborted
    cdef BatchHeader batch            # the one at `pos`
    cdef BatchFault fault             # its status is kept
    cdef object codec_error
    cdef bint is_over                 # the last step was STEP_OVER
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
        self.max_batch_rows = max(
            self.max_batch_bytes, <Py_ssize_t> LEAST_INDEX_BYTES
        ) // INDEX_ROW_MOST
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

    def decode(self, Py_ssize_t max_bytes, most_bytes=None) -> RecordIndex | None:
        """Decode batches, at least one, until payload and index have about ``max_bytes``.

        The index has no rows if all records were dropped; its ``next_offset`` advances even so.
        None when the next batch needs more than ``most_bytes``; nothing has changed then. The
        blocks of a chunk have up to a quarter more.

        Raises
        ------
        CorruptRecordError, UnsupportedCompressionTypeError
            The next batch cannot be read. Raised again by every further call.
        RecordTooLargeError
            A batch exceeds ``max_decompressed_batch_bytes``, or the slice ends in its only batch.
        """
        cdef Py_ssize_t pos = self.pos
        cdef int64_t next_offset = self.next_offset
        cdef int32_t leader_epoch = self.leader_epoch
        cdef bint finished = self.finished
        cdef tuple aborted = self.aborted.snapshot() if self.has_aborted else None
        if self.fault.status != BATCH_OK:
            raise self.error()
        self.chunk = new_chunk(
            max_bytes, PY_SSIZE_T_MAX if most_bytes is None else most_bytes, self.max_batch_rows
        )
        try:
            self.fill()
            if self.chunk.batches == 0:
                if self.fault.status != BATCH_OK:
                    raise self.error()
                if self.is_over:
                    return None
            return self.chunk.seal(self.frame, self.next_offset, self.leader_epoch)
        except BaseException:
            # An unfinished chunk is dropped: the next call decodes its batches again.
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
        """Decode batches until the chunk is full or a fault is found."""
        cdef Step step = STEP_DONE
        cdef BatchHeader following
        while not is_end(step):
            with nogil:
                step = self.run()
            if step == STEP_CHECKSUM:
                step = self.check_packaged()
            elif step == STEP_NEED:
                if not self.chunk.provide(self.need, &self.batch, self.end - self.pos):
                    step = STEP_OVER
            elif step == STEP_PAYLOAD:
                step = self.decode_payload()
            elif step == STEP_MESSAGE:
                step = self.decode_message()
        if step == STEP_FAULT:
            self.fault.batch = self.batch
            self.fault.pos = self.pos
            return 0
        self.is_over = step == STEP_OVER
        if self.is_over:
            return 0
        self.finished = step == STEP_NO_MORE or read_batch_header(
            self.frame.ptr + self.pos, self.end - self.pos, &following
        ) == BATCH_NONE
        if self.finished and self.pos == self.start < self.end:
            # No complete batch: fetching again would never end.
            self.finished = False
            self.fault.status = BATCH_NONE
            self.fault.batch = self.batch
        return 0

    # --- without the GIL --------------------------------------------------------------------------

    cdef Step run(self) noexcept nogil:
        """Decode batches as far as possible without Python. Can be repeated for the same batch."""
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
        """Handle a batch of magic 2 whose header and checksum are valid."""
        cdef BatchHeader* h = &self.batch
        cdef bint is_dropped = h.last_offset < self.next_offset
        cdef bint is_control = h.attributes & CONTROL
        cdef int codec = h.attributes & CODEC_MASK
        # The list is consulted for every batch of a producer, dropped or not: it has a cursor.
        if self.has_aborted and h.producer_id >= 0:
            if is_aborted(&self.aborted.list, h.producer_id, h.last_offset):
                is_dropped |= h.attributes & TRANSACTIONAL
        if is_dropped and not is_control:
            return self.leave()
        if codec > CODEC_ZSTD:
            self.fault.status = BATCH_CODEC
            return STEP_FAULT
        if codec != CODEC_NONE or (self.chunk.has_payload and not is_control):
            if h.records_count > self.max_batch_rows:
                self.fault.status = BATCH_RECORDS_LIMIT
                return STEP_FAULT
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
        """Advance past the current batch."""
        self.pos += self.batch.size
        self.chunk.batches += 1
        if self.batch.last_offset >= self.next_offset:
            self.next_offset = self.batch.last_offset + 1
            self.leader_epoch = self.batch.leader_epoch
        return STEP_DONE

    # --- with the GIL -----------------------------------------------------------------------------

    cdef Step check_packaged(self) except *:
        """Verify a checksum with the package, where ``is_crc32c_direct`` is false."""
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
        """Decompress ``source`` and append it to ``target``; a codec's error is a fault."""
        cdef Py_ssize_t most = size if codec == CODEC_NONE else self.max_batch_bytes
        cdef Py_ssize_t left = most
        if target is self.chunk.payload:
            left = self.chunk.payload_left()
        try:
            if left < 0:
                return STEP_OVER
            if not decompress_into(
                codec, source, size, target, min(most, left), self.batch.magic
            ):
                return STEP_DONE
            if left < most:
                return STEP_OVER
            self.codec_error = too_large(most)
        except KafkaError as error:
            self.codec_error = error
        self.fault.status = BATCH_PAYLOAD
        return STEP_FAULT

    cdef Step decode_payload(self) except *:
        """Decode a batch of magic 2 that is compressed, or whose chunk has a payload already."""
        cdef OwnedBuffer target
        cdef Py_ssize_t before
        cdef Py_ssize_t made = self.chunk.made
        cdef Py_ssize_t size = self.batch.size - V2_HEADER
        cdef int codec = self.batch.attributes & CODEC_MASK
        cdef Step step = STEP_DONE
        if self.batch.attributes & CONTROL:
            target = new_buffer(size)
        elif self.chunk.batches > 0 and made > self.chunk.most - self.chunk.last_unpacked:
            return STEP_FULL  # one like the last would be decompressed for nothing
        elif self.open_payload():
            target = self.chunk.payload
        else:
            return STEP_FULL
        before = target.size
        # A batch emptied by compaction may still name its codec, but has no data.
        if size > 0:
            step = self.unpack(target, self.frame.ptr + self.pos + V2_HEADER, size, codec)
        while not is_end(step):
            with nogil:
                step = self.add(target.ptr, before, target.size)
            if step == STEP_DONE:
                self.chunk.last_unpacked = self.chunk.made - made
                return step
            if step == STEP_NEED and not self.chunk.provide(
                self.need, &self.batch, self.end - self.pos
            ):
                step = STEP_OVER
        target.size = before
        return step

    cdef Step decode_message(self) except *:
        """Decode a message of magic 0 or 1, plain or a wrapper."""
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
        # A wrapper at offset 0 does not have the offset of its last message.
        if h.last_offset < self.next_offset and (codec == CODEC_NONE or h.base_offset != 0):
            return self.leave()
        if codec != CODEC_NONE:
            return self.decode_wrapper(&m, kind)
        if self.chunk.rows_left() < 1:
            return STEP_OVER
        if self.chunk.has_payload:
            if not self.open_payload():
                return STEP_FULL
            if self.unpack(self.chunk.payload, at, h.size, CODEC_NONE) == STEP_OVER:
                return STEP_OVER
            read_message(self.chunk.payload.ptr, self.chunk.payload.size - h.size, h, &m)
        self.chunk.before_messages(1, h.size, kind)
        add_message(&self.chunk.index.columns, &m, h.base_offset, h.base_timestamp)
        self.chunk.after_messages(1, kind)
        return self.leave()

    cdef Step decode_wrapper(self, const Message* m, int8_t kind) except *:
        """Decode the messages inside a compressed one."""
        cdef BatchHeader* h = &self.batch
        cdef OwnedBuffer payload
        cdef Py_ssize_t before, rows
        cdef int64_t last = -1
        cdef int64_t count = 0
        cdef int64_t base = 0
        cdef const char* value = self.frame.ptr + m.value_start
        cdef Step step
        if not self.open_payload():
            return STEP_FULL
        payload = self.chunk.payload
        before = payload.size
        step = self.unpack(payload, value, m.value_length, h.attributes & CODEC_MASK)
        if step == STEP_DONE:
            self.fault.status = walk_wrapped(
                payload.ptr, before, payload.size, h.magic, &last, &count
            )
            if self.fault.status == BATCH_OK:
                self.fault.status = wrapper_base(h, last, &base)
            if self.fault.status == BATCH_OK and count > self.max_batch_rows:
                self.fault.status = BATCH_RECORDS_LIMIT
            if self.fault.status != BATCH_OK:
                step = STEP_FAULT
            elif count > self.chunk.rows_left():
                step = STEP_OVER
        if step != STEP_DONE:
            payload.size = before
            return step
        h.last_offset = max(h.base_offset, base + last)
        rows = self.chunk.index.columns.n
        self.chunk.before_messages(count, payload.size - before, kind)
        index_wrapped(
            payload.ptr, before, payload.size, h, base, self.next_offset, &self.chunk.index.columns
        )
        self.chunk.after_messages(self.chunk.index.columns.n - rows, kind)
        return self.leave()

    cdef object error(self):
        """Return the exception for the batch at ``pos``."""
        cdef BatchHeader following
        cdef int64_t left
        cdef const char* behind
        cdef bint has_size, is_known
        if self.fault.status == BATCH_NONE:
            return too_short_error(
                &self.fault.batch, self.topic, self.partition, self.next_offset,
                self.end - self.start,
            )
        self.fault.following_offset = -1
        left = self.end - self.fault.pos - self.fault.batch.size
        # Of a magic that is none the length has not been looked at.
        has_size = self.fault.status != BATCH_LENGTH and self.fault.batch.size > 0
        self.fault.bytes_behind = left if has_size and left >= 0 else -1
        if self.fault.bytes_behind > 0:
            behind = self.frame.ptr + self.fault.pos + self.fault.batch.size
            is_known = read_batch_header(behind, left, &following) == BATCH_OK
            if is_known and self.fault.batch.last_offset < 0:
                # Nothing in the corrupt header confirms where it is: it has to be whole.
                is_known = (
                    following.magic == 2
                    and V2_CRC_START < following.size <= left
                    and crc32c_packaged(behind + V2_CRC_START, following.size - V2_CRC_START)
                    == following.crc
                )
            if is_known:
                self.fault.following_offset = following.base_offset
        return batch_error(
            &self.fault, self.topic, self.partition, self.next_offset, self.codec_error
        )
