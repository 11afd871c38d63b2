"""As much of ``PartitionRecords`` as the formats of ``kfast read`` use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import kfast
from kfast.cli.formats import TextFormat, TextOptions

START_MS = 1_735_689_600_000  # 2025-01-01


class Batch:
    """Records of one partition, a millisecond apart."""

    topic = "t"

    def __init__(
        self,
        partition: int = 0,
        values: Sequence[bytes | None] = (),
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (("h", b"1"),),
        timestamps: Sequence[int] | None = None,
    ) -> None:
        count = len(values)
        self.partition = partition
        self.offsets = np.arange(count, dtype=np.int64)
        self.timestamps = np.array(
            [START_MS + row for row in range(count)] if timestamps is None else timestamps, np.int64
        )
        self.datetimes = self.timestamps.view("M8[ms]").copy()
        self.datetimes[self.timestamps == -1] = np.datetime64("NaT")
        self.timestamp_types = np.zeros(count, np.int8)
        self.keys = kfast.BytesColumn.from_values([b"k"] * count if keys is None else list(keys))
        self.values = kfast.BytesColumn.from_values(list(values))
        self.headers = [list(headers)] * count

    def __len__(self) -> int:
        return len(self.offsets)

    def select(self, rows: slice) -> Batch:
        """Return some rows, numbered anew."""
        return Batch(self.partition, self.values.to_list()[rows])


def text_of(make: type[TextFormat], *batches: Batch, **options: object) -> bytes:
    """Return the whole output of a format."""
    text = make(TextOptions(**options))  # type: ignore[arg-type]
    parts = [text.begin(), *(text.batch(batch) for batch in batches), text.end()]  # type: ignore[arg-type]
    return b"".join(parts)
