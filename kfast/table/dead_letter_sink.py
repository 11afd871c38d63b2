"""DeadLetterSink: where the malformed keys and values of one range go.

A seam between what decodes records and the two places that dead letters may have: a folder
(`DeadLetters`) and a topic (`DeadLetterTopic`). All are delivered when `close` returns: what it
returns is published with the files of the range. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from kfast.records.partition_records import PartitionRecords
    from kfast.table.batches import DataFile
    from kfast.table.offset_ranges import OffsetRange
    from kfast.table.time_limits import BadTimes
    from kfast.table.value_decoder import DecodedValues


_TOPIC: Final = "topic:"


class DeadLetterSink(Protocol):
    """The dead letters of a range."""

    def take(
        self, records: PartitionRecords, columns: Mapping[str, DecodedValues | BadTimes]
    ) -> None:
        """Take what could not be read of some records, by column."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """Bytes, about, that are not delivered yet."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        ...

    def spill(self) -> None:
        """Deliver what waits."""
        ...

    def close(self, offset_range: OffsetRange) -> list[DataFile]:
        """Deliver all of the range; return the files that have them, if there were any."""
        ...

    @property
    def produced(self) -> int:
        """Number of letters that are in a topic and in no file, after `close`."""
        ...

    def discard(self) -> None:
        """Forget what was taken: the range is read again."""
        ...


def letter_topic(dead_letter: str | None) -> str:
    """Return the topic that ``topic:NAME`` names, "" for a folder.

    Raises ``InvalidTopicError`` for a name that no topic has.
    """
    if dead_letter is None or not dead_letter.startswith(_TOPIC):
        return ""
    from kfast.internals import check_topic  # noqa: PLC0415 - where one is given

    name = dead_letter.removeprefix(_TOPIC)
    check_topic(name)
    return name
