"""FetchPosition: the next offset of a partition, with the epochs that validate it.

A value; any thread.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class FetchPosition:
    """The next offset to hand out, with the epochs KIP-320 validates it by.

    ``offset_epoch`` is the leader epoch of the record before ``offset``; without it the position
    cannot be validated. ``leader_id`` and ``leader_epoch`` are those of the partition's leader when
    the position was last known to be valid. None: unknown.
    """

    offset: int
    offset_epoch: int | None = None
    leader_id: int | None = None
    leader_epoch: int | None = None

    def __str__(self) -> str:
        epoch = "unknown" if self.offset_epoch is None else self.offset_epoch
        return f"offset {self.offset} (leader epoch {epoch})"
