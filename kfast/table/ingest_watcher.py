"""IngestWatcher: what an ingest calls as it goes on, for those who report on it.

A seam: an ingest knows of no log, no terminal and no lines. Its thread makes all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.table.entries import Entry

ReadLag = Callable[[], int | None]
"""Returns the number of offsets that are not in the table yet, None if it is not known."""


@dataclass(frozen=True, slots=True)
class IngestStart:
    """What an ingest is about to do."""

    url: str
    """Of the table."""
    topics: str
    """Names and globs, for people."""
    begins: Mapping[TopicPartition, int]
    """The first offset of each partition that will be read."""
    offsets: int | None
    """Number of offsets to read up to the ends as of now; None if that is not known."""
    rows: int
    """Of the table."""


class IngestWatcher(Protocol):
    """Reports on one ingest."""

    def begin(self, start: IngestStart) -> None:
        """Take the start; nothing was read yet."""
        ...

    def add(self, entry: Entry) -> None:
        """Take the manifest of a batch that was published."""
        ...

    def tick(self, lag: ReadLag) -> None:
        """Report what is due; called about once a second, also while no records come."""
        ...

    def close(self, *, is_complete: bool) -> None:
        """Report the rest; the ingest has ended, ``is_complete`` unless by an error."""
        ...
