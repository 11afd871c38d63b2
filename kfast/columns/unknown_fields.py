"""UnknownFields: fields of documents that no column is read from, counted for each row.

Owns the counts of some rows and the paths of the first such fields. They go with the rows of a
column wherever these are selected or joined, so that each is counted once, where its row is
written. Pickles and compact copies have none.

Thread: any; immutable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from kfast.columns.spans import read_only, take

MOST_PATHS: Final = 8
"""Paths that are kept."""


class UnknownFields:
    """The fields without a column of some rows; see the module."""

    __slots__ = ("counts", "paths")

    def __init__(self, counts: NDArray[np.int32], paths: tuple[str, ...]) -> None:
        self.counts = counts
        """Of each row; int32."""
        self.paths = paths
        """Of the first fields, such as ``user.age``: those of the rows, and of others decoded with
        them."""

    @property
    def total(self) -> int:
        """The number of fields in all rows."""
        return int(self.counts.sum(dtype=np.int64))

    def select(self, rows: Any) -> Self | None:
        """Return those of some rows, None if they have none."""
        counts = take(self.counts, rows)
        return type(self)(counts, self.paths) if counts.any() else None

    def without(self, rows: NDArray[np.bool_]) -> Self | None:
        """Return those of all rows but some, None if the others have none."""
        counts = read_only(np.where(rows, np.int32(0), self.counts))
        return type(self)(counts, self.paths) if counts.any() else None

    @classmethod
    def concat(cls, columns: Sequence[tuple[UnknownFields | None, int]]) -> UnknownFields | None:
        """Return those of columns that are joined, each with its number of rows."""
        if all(fields is None for fields, _ in columns):
            return None
        counts = [
            np.zeros(rows, np.int32) if fields is None else fields.counts
            for fields, rows in columns
        ]
        paths = dict.fromkeys(
            path for fields, _ in columns if fields is not None for path in fields.paths
        )
        return cls(read_only(np.concatenate(counts)), tuple(paths)[:MOST_PATHS])

    def __repr__(self) -> str:
        return f"<UnknownFields {self.total} in {len(self.counts)} rows: {', '.join(self.paths)}>"
