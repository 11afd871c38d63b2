"""Exceptions of what a log holds: offsets, batches, keys and values."""

from __future__ import annotations

from kfast.errors.base import KafkaError


class CorruptRecordError(KafkaError):
    """A batch failed its checksum or is malformed inside.

    Attributes
    ----------
    offset : int
        The batch's base offset.
    next_offset, following_offset, batch_bytes, bytes_behind : int
        Where to ``seek`` to leave it out, by its own header if nothing was received behind it; base
        offset of the batch behind it, size of this one, bytes received behind. -1: unknown.
    """

    next_offset: int = -1
    following_offset: int = -1
    batch_bytes: int = -1
    bytes_behind: int = -1


class RecordTooLargeError(KafkaError):
    """A batch is larger than the client accepts.

    Attributes
    ----------
    size_needed : int or None
        Bytes the limit would have to be.
    """

    size_needed: int | None = None


class UnsupportedCompressionTypeError(KafkaError):
    """The compression is unknown, or the package that reads it is not installed."""


class DeserializationError(KafkaError):
    """A key or value is not what the deserializer expects.

    Attributes
    ----------
    column : str
        ``"key"`` or ``"value"``.
    key_bytes, value_bytes : bytes or None
        The record as it came.
    code, path, byte_position, schema_id : str, str, int, and int or str or None
        Why it cannot be read, where, and by which schema; see :class:`kfast.records.RecordError`.
    """

    column: str = ""
    code: str = ""  # type: ignore[assignment]  # Kafka has no number for it
    path: str = ""
    byte_position: int = -1
    schema_id: int | str | None = None
    key_bytes: bytes | None = None
    value_bytes: bytes | None = None


class OffsetOutOfRangeError(KafkaError):
    """The log does not hold the position, and no policy says where to go on.

    Attributes
    ----------
    log_start_offset : int or None
        First offset the log still holds.
    """

    hint = 'seek_to_beginning(), or auto_offset_reset="earliest"'
    log_start_offset: int | None = None


class NoOffsetForPartitionError(KafkaError):
    """There is no position to start from and ``auto_offset_reset`` is ``"none"``."""

    hint = 'seek(), or auto_offset_reset="earliest" or "latest"'


class LogTruncationError(KafkaError):
    """The log was cut behind the position by an unclean leader election (KIP-320).

    Attributes
    ----------
    divergent_offset : OffsetAndMetadata or None
        Where the log that was read and the log there is now part, if known.
    """

    divergent_offset: object = None


class InvalidTopicError(KafkaError):
    """The name is not allowed for a topic."""


class UnsupportedForMessageFormatError(KafkaError):
    """The topic's record format is too old for the request."""


class InvalidFetchSizeError(KafkaError):
    """The requested fetch size is not valid."""


class RecordBatchTooLargeError(KafkaError):
    """The batch is larger than a log segment."""


class InvalidRecordError(KafkaError):
    """The broker refused the record."""
