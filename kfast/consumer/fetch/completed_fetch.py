"""CompletedFetch: one partition of a Fetch response, until its records are handed out.

Owns one slice of a response frame, and its states from raw bytes to columns. It has no lock: the
stage, the chunk and the rows handed out change only under the lock of the `FetchBuffer` that
holds it; `decode_next` runs outside any lock, on whichever thread claimed the fetch there.

| stage | means | leaves on |
|---|---|---|
| RAW | the next chunk is still bytes | claimed by a decode thread or the application thread |
| DECODING | the thread that claimed it decodes | published |
| READY | one chunk of records is there | handed out: RAW, or DRAINED after the last chunk |
| FAILED | the next chunk cannot be read | seek (dropped) |
| DRAINED | everything was handed out, or it was dropped | |

A chunk whose schemas are not known yet stays READY without ``converted`` rows; the application
thread leaves it until they are looked up. One whose columns take too much memory is converted in
parts: ``first_row`` is where the next one begins.

Records come in offset order; the chunk before a FAILED stage is always handed out first. A chunk
that a decode thread has no memory for leaves the fetch RAW, to the application thread.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from kfast._base.signals import is_of_signal_handler
from kfast.errors import IllegalStateError, KafkaError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast._native.buffers import OwnedBuffer
    from kfast._native.record_index import RecordIndex
    from kfast._runtime.memory_account import FrameMemory
    from kfast.types import TopicPartition


class Stage(Enum):
    """State of a `CompletedFetch`; see the module's table."""

    RAW = "raw"
    DECODING = "decoding"
    READY = "ready"
    FAILED = "failed"
    DRAINED = "drained"


class Decoder(Protocol):
    """Decodes a slice, chunk by chunk: the native ``SliceDecoder``."""

    @property
    def finished(self) -> bool:
        """Whether the whole slice was decoded."""
        ...

    def decode(self, max_bytes: int, most_bytes: int | None) -> RecordIndex | None:
        """Decode whole batches until about ``max_bytes`` are produced, at least one batch.

        None if that one takes more than ``most_bytes``.
        """
        ...


class Consumed(Protocol):
    """Rows handed out of a fetch."""

    @property
    def fetch(self) -> CompletedFetch:
        """The fetch they are of, in READY."""
        ...

    @property
    def count(self) -> int:
        """How many."""
        ...

    @property
    def is_used_up(self) -> bool:
        """Whether no converted rows of the chunk are left."""
        ...

    @property
    def rest(self) -> int | None:
        """The row of the chunk to go on with then; None: the chunk is released."""
        ...

    @property
    def error(self) -> KafkaError | None:
        """Error of the row after them, which cannot be handed out."""
        ...


class CompletedFetch:
    """One partition slice of a Fetch response.

    ``version`` is that of the partition when the request was sent, ``fetch_offset`` the offset
    requested: records before it are never handed out. Without a ``decoder``, ``error`` is why the
    slice cannot be read. ``high_watermark`` and ``log_start_offset`` are -1 if unknown, and
    ``topic_id`` is None.
    """

    __slots__ = (
        "_converted",
        "_decoded",
        "chunk",
        "column_bytes",
        "converted",
        "decoder",
        "error",
        "fetch_offset",
        "first_row",
        "frame",
        "frame_memory",
        "high_watermark",
        "is_dropped",
        "is_for_application",
        "is_last_chunk",
        "log_start_offset",
        "next_fetch_offset",
        "raw_bytes",
        "reserved_bytes",
        "rows_taken",
        "stage",
        "topic_id",
        "topic_partition",
        "version",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        version: int,
        fetch_offset: int,
        next_fetch_offset: int,
        raw_bytes: int,
        decoder: Decoder | None,
        error: KafkaError | None = None,
        frame: OwnedBuffer | None = None,
        high_watermark: int = -1,
        log_start_offset: int = -1,
        topic_id: bytes | None = None,
    ) -> None:
        if (decoder is None) is (error is None):
            raise IllegalStateError("a CompletedFetch has either a decoder or an error")
        self.topic_partition = topic_partition
        self.version = version
        self.fetch_offset = fetch_offset
        self.next_fetch_offset = next_fetch_offset
        self.raw_bytes = raw_bytes
        self.decoder = decoder
        self.error = error
        self.frame = frame
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.topic_id = topic_id
        self.stage = Stage.RAW if decoder is not None else Stage.FAILED
        self.frame_memory: FrameMemory | None = None
        self.chunk: RecordIndex | None = None  # the decoded records, in READY
        self.is_last_chunk = decoder is None
        self.is_dropped = False  # out of the buffer: what is decoded goes nowhere
        self.is_for_application = False  # a decode thread has no memory for the next chunk
        self.reserved_bytes = 0  # set aside for the chunk that is decoded
        self.rows_taken = 0  # rows of ``chunk`` that were handed out
        self.converted: Any = None  # made of ``chunk``; kept while rows of it are left
        self.column_bytes = 0  # memory of ``converted`` besides that of ``chunk``
        self.first_row = 0  # of ``chunk``, that ``converted`` begins with
        self._converted: Any = None
        self._decoded: RecordIndex | KafkaError | None = None

    def decode_next(self, max_bytes: int, most_bytes: int | None = None) -> None:
        """Decode the next chunk. Outside any lock, by the thread that claimed the fetch only.

        Chunks without a visible record (aborted, control, emptied batches) are skipped; the last
        one of the slice is kept, because it advances the position. The chunk or the error takes
        effect with `publish`; neither is there when a batch takes more than ``most_bytes``.

        What a signal handler raises, while an error is made, leaves it: the same chunk can be
        decoded again.

        Raises
        ------
        MemoryError
            There is not enough memory now. The same decode may succeed later.
        """
        decoder = self.decoder
        if decoder is None:
            raise IllegalStateError(f"{self!r} has nothing to decode")
        try:
            chunk = decoder.decode(max_bytes, most_bytes)
            while chunk is not None and len(chunk) == 0 and not decoder.finished:
                self._decoded = chunk  # in case that the next one is too large
                chunk = decoder.decode(max_bytes, most_bytes)
            if chunk is not None:
                self._decoded = chunk
        except KafkaError as error:
            self._decoded = error
        except MemoryError as error:
            self._decoded = None
            raise MemoryError(
                f"{self.topic_partition}: no memory to decode from offset {self.fetch_offset} on"
            ) from error
        except Exception as cause:  # a broker's bytes may raise KafkaError only
            if is_of_signal_handler(cause):
                raise
            failure = ProtocolError(
                f"{self.topic_partition}: decoding from offset {self.fetch_offset} on failed",
                cause=f"{type(cause).__name__}: {cause}",
                topic=self.topic_partition.topic,
                partition=self.topic_partition.partition,
                offset=self.fetch_offset,
            )
            failure.__cause__ = cause
            self._decoded = failure

    def convert_ahead(
        self, convert: Callable[[CompletedFetch, RecordIndex, int], Any], most_bytes: int
    ) -> None:
        """Convert what `decode_next` gave, if ``convert`` can: it has ``most_bytes`` of memory.

        By the thread that has decoded it. What fails is left to the application thread.
        """
        chunk = self._decoded
        if chunk is None or isinstance(chunk, KafkaError):
            return
        try:
            self._converted = convert(self, chunk, most_bytes - chunk.memory_bytes)
        except (KafkaError, MemoryError):
            self._converted = None

    def publish(self) -> None:
        """Apply the result of `decode_next`. Under the buffer's lock."""
        decoded, self._decoded = self._decoded, None
        converted, self._converted = self._converted, None
        if isinstance(decoded, KafkaError):
            self.fail(decoded)
        elif decoded is None:  # interrupted, or without memory: the next claimer starts again
            self.stage = Stage.RAW
        else:
            self.chunk = decoded
            self.is_for_application = False
            self.rows_taken = self.first_row = 0
            self.converted = converted
            self.column_bytes = 0 if converted is None else converted.column_bytes
            self.is_last_chunk = self.decoder is None or self.decoder.finished
            self.stage = Stage.READY

    @property
    def has_done_with_frame(self) -> bool:
        """Whether the frame is not needed any more: all is decoded, the chunk is elsewhere."""
        chunk = self.chunk
        return self.is_last_chunk and (chunk is None or chunk.data is not self.frame)

    def fail(self, error: KafkaError) -> None:
        """Enter FAILED: nothing more is read until a seek. Under the buffer's lock."""
        self.stage = Stage.FAILED
        self.error = error
        self.chunk = None
        self.converted = None

    def __repr__(self) -> str:
        return (
            f"<CompletedFetch {self.topic_partition} {self.stage.name}"
            f" offsets {self.fetch_offset} to {self.next_fetch_offset}"
            f" version={self.version} {self.raw_bytes} bytes>"
        )
