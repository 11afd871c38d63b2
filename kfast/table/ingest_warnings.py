"""IngestWarnings: what is not in a table as it is in Kafka, as warnings of `logging`.

Owns when to warn: of each kind at its first time, and from then on at most once a minute, with the
count since the warning before; of unknown fields at the first time only. Counts come from the
manifests of batches, so that nothing counts that is not in the table, and nothing twice. A message
has names, offsets and counts, never keys or values.

=================  =============================================================================
lost offsets       retention had removed them, and the ingest may go on without (``lost="skip"``)
bad records        keys and values that are not of their format: null, or their records left out
dead letters       of these, the ones that were written to a folder or a topic
skipped batches    record batches that are corrupt, and left out
unknown fields     fields of JSON documents that no column is read from, unless the table has the
                   column ``_rescued_data``
created anew       partitions that Spark's ingest reads again, as their topics are others now
gone               partitions that Spark's ingest has no more
=================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast.table.ingest_totals import skipped_in
from kfast.table.projection import RESCUED

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.table.entries import Entry
    from kfast.table.ingest_watcher import IngestStart, ReadLag

logger = get_logger(__name__)

EVERY_MS: Final = 60_000
"""Least time between two warnings of a kind."""

_TEXTS: Final[Mapping[str, str]] = {
    "lost": "offsets lost: retention had removed them before they were read",
    "bad": "malformed keys and values: they are null, or their records left out",
    "letters": "dead letters",
    "skipped": "corrupt record batches left out",
    "unknown": "fields have no column and are left out; later ones are only counted "
    "(unknown_fields), a column _rescued_data would have them",
    "anew": "partitions of topics that were created anew are read again",
    "gone": "partitions that are gone",
}
_ONCE: Final = "unknown"
"""The kind that is warned of once in a run: every document may have such fields."""


@dataclass(slots=True)
class _Kind:
    """What was not warned of yet, and when the last warning was."""

    text: str
    count: int = 0
    place: str = ""
    """Of the first that counts."""
    places: int = 0
    warned_ms: int | None = None


class IngestWarnings:
    """Warns of the batches of one ingest; an `IngestWatcher`."""

    def __init__(self, clock: Clock, every_ms: int = EVERY_MS) -> None:
        self._url = ""
        self._clock = clock
        self._every_ms = every_ms
        self._kinds = {name: _Kind(text) for name, text in _TEXTS.items()}

    def begin(self, start: IngestStart) -> None:
        """Take the name of the table; a start is no warning."""
        self._url = start.url

    def add(self, entry: Entry) -> None:
        """Count what a batch has, and warn of it if that is due."""
        skipped: set[tuple[str, int, str]] = set()
        bad_place = ""
        for batch_range in entry.ranges:
            first, last = batch_range.from_offset, batch_range.until_offset - 1
            place = f"{batch_range.topic_partition} offsets {first} to {last}"
            self._note("lost", batch_range.lost_offsets, place)
            self._note("bad", batch_range.bad_records, place)
            self._note("skipped", len(skipped_in(batch_range) - skipped), place)
            skipped |= skipped_in(batch_range)
            bad_place = bad_place or (place if batch_range.bad_records else "")
        if RESCUED not in entry.shape.schema and self._kinds[_ONCE].warned_ms is None:
            paths = f"such as {', '.join(entry.unknown_paths)}"
            self._note("unknown", entry.counts.unknown_fields, paths)
        for name, partitions in (("anew", entry.restarted), ("gone", entry.gone)):
            for tp in partitions:
                self._note(name, 1, str(tp))
        # Of the batch as a whole: the logs of catalogs do not keep its files.
        self._note("letters", entry.counts.dead_letters, bad_place)
        self._warn()

    def _note(self, name: str, count: int, place: str) -> None:
        if not count:
            return
        kind = self._kinds[name]
        kind.place = kind.place if kind.count else place
        kind.count += count
        kind.places += 1

    def tick(self, lag: ReadLag) -> None:  # noqa: ARG002 - the seam's
        """Warn of what has waited for its minute."""
        self._warn()

    def close(self, *, is_complete: bool) -> None:  # noqa: ARG002 - the seam's
        """Warn of what is left, however soon it is after the warning before."""
        self._warn(is_last=True)

    def _warn(self, *, is_last: bool = False) -> None:
        now_ms = self._clock.now_ms()
        for kind in self._kinds.values():
            last_ms = kind.warned_ms
            is_due = is_last or last_ms is None or now_ms - last_ms >= self._every_ms
            if not kind.count or not is_due:
                continue
            count, place, places = kind.count, kind.place, kind.places
            kind.count, kind.places, kind.warned_ms = 0, 0, now_ms
            more = f" and {places - 1} more" if places > 1 else ""
            since = "" if last_ms is None else f" in {(now_ms - last_ms) // 1000} s"
            logger.warning("%s: %d %s (%s%s)%s", self._url, count, kind.text, place, more, since)

    def __repr__(self) -> str:
        waiting = {name: kind.count for name, kind in self._kinds.items() if kind.count}
        return f"<IngestWarnings of {self._url}, waiting {waiting}>"
