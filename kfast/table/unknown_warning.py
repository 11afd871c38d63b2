"""UnknownWarning: one warning of a run about fields of documents that have no column.

It comes with the first batch that has some: a run that follows its topics may end in a year. The
counts of all batches are in their manifests. One thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.logs import get_logger
from kfast.table.projection import RESCUED

if TYPE_CHECKING:
    from kfast.table.entries import Entry

logger = get_logger(__name__)


class UnknownWarning:
    """Logs it at the first batch, unless the table has a column for such fields."""

    def __init__(self) -> None:
        self._is_logged = False

    def note(self, entry: Entry) -> None:
        """Log the fields of a batch, unless a batch before had some."""
        count = entry.counts.unknown_fields
        if not count or self._is_logged or RESCUED in entry.shape.schema:
            return
        self._is_logged = True
        logger.warning(
            "%d fields in the %d rows of batch %d have no column and are left out, such as %s; "
            "later ones are only counted (unknown_fields); a column _rescued_data would have them",
            count,
            entry.counts.rows,
            entry.sequence,
            ", ".join(entry.unknown_paths),
        )

    def __repr__(self) -> str:
        return f"<UnknownWarning {'logged' if self._is_logged else 'not logged'}>"
