"""DataLoss: reports offsets that a query should read and the log no longer has.

Owns ``failOnDataLoss``: true raises, false logs a warning and lets the caller continue. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kfast._base.logs import get_logger
from kfast.errors import KafkaError, OffsetOutOfRangeError
from kfast.types import TopicPartition

logger = get_logger(__name__)
HINT: Final = "set failOnDataLoss=false to continue without the lost records"


@dataclass(frozen=True, slots=True)
class DataLoss:
    """``failOnDataLoss`` of one query."""

    is_fatal: bool

    def report(
        self,
        message: str,
        *,
        cause: str | None = None,
        hint: str = HINT,
        partition: TopicPartition | None = None,
        offset: int | None = None,
        log_start_offset: int | None = None,
    ) -> None:
        """Raise `OffsetOutOfRangeError`, or log a warning and return."""
        if not self.is_fatal:
            logger.warning("%s%s", message, f" ({cause})" if cause else "")
            return
        error: KafkaError = OffsetOutOfRangeError(
            message,
            cause=cause,
            hint=hint,
            topic=partition.topic if partition else None,
            partition=partition.partition if partition else None,
            offset=offset,
            log_start_offset=log_start_offset,
        )
        raise error

    def report_start(
        self, partition: TopicPartition, start: int, end: int, *, option: str, log_end: int
    ) -> None:
        """Report a start after the end that a query has, or that the log has."""
        if start > log_end:
            message = f"{partition} would be read from {start}, but its log ends at {log_end}"
            cause = "the topic was created anew, or lost its last records; or the offset is wrong"
        else:
            message = f"{partition} would be read from {start} to {end}"
            cause = "the end is before the start"
        self.report(
            message,
            cause=cause,
            hint=f"correct {option}, or set failOnDataLoss=false to read nothing of it",
            partition=partition,
            offset=start,
        )
