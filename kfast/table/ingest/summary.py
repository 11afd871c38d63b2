"""IngestSummary: what one ingest has added to its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from kfast.table.ingest_totals import IngestTotals
from kfast.types import TopicPartition


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """What one ingest has added to its table.

    Attributes
    ----------
    rows, bytes, files : int
        Of the files that were published.
    batches : int
        Number of entries in the table's log.
    seconds : float
        From the beginning to the end of the call.
    lost_offsets : int
        Offsets that retention had removed before they were read (``lost="skip"``).
    bad_records : int
        Keys and values that are not of their kind (``on_error``).
    dead_letters : int
        Those that were written to the folder or the topic of ``dead_letter``.
    unknown_fields : int
        Fields of JSON documents that no column is read from.
    ends : dict of TopicPartition to int
        Next offset of each partition of the topics, as the table has it.

    Examples
    --------
    >>> summary = kfast.ingest("orders", to="/data/table", bootstrap_servers="localhost:9092")
    >>> summary.rows, summary.ends[kfast.TopicPartition("orders", 0)]
    (3, 2)
    """

    rows: int = 0
    bytes: int = 0
    files: int = 0
    batches: int = 0
    seconds: float = 0.0
    lost_offsets: int = 0
    bad_records: int = 0
    dead_letters: int = 0
    unknown_fields: int = 0
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def of(cls, totals: IngestTotals, seconds: float, ends: Mapping[TopicPartition, int]) -> Self:
        """Make the summary of a run from the sums of its batches."""
        return cls(
            rows=totals.rows,
            bytes=totals.bytes,
            files=totals.files,
            batches=totals.batches,
            seconds=seconds,
            lost_offsets=totals.lost_offsets,
            bad_records=totals.bad_records,
            dead_letters=totals.dead_letters,
            unknown_fields=totals.unknown_fields,
            ends=dict(sorted(ends.items())),
        )
