"""Data loss: what happens when offsets that a query is to read are not there.

Owns ``failOnDataLoss``: true raises, false says so in the log and lets the caller go on. Pure.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from kfast.errors import KafkaError, OffsetOutOfRangeError
from kfast.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_HINT: Final = "set failOnDataLoss=false to go on without what is lost"


@dataclass(frozen=True, slots=True)
class DataLoss:
    """The rule of one query.

    Parameters
    ----------
    is_fatal : bool
        ``failOnDataLoss``.
    """

    is_fatal: bool

    def report(
        self,
        message: str,
        *,
        cause: str | None = None,
        hint: str = _HINT,
        partition: TopicPartition | None = None,
        offset: int | None = None,
        log_start_offset: int | None = None,
    ) -> None:
        """Raise, or log and return.

        Raises
        ------
        OffsetOutOfRangeError
            ``failOnDataLoss`` is true.
        """
        if not self.is_fatal:
            _log.warning("%s%s", message, f" ({cause})" if cause else "")
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
