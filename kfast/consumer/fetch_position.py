"""FetchPosition: where a partition is read next, and what is known about that place.

A value; any thread.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class FetchPosition:
    """The next offset to hand out, with the epochs KIP-320 validates it by.

    Parameters
    ----------
    offset : int
        The next offset to return.
    offset_epoch : int or None
        Leader epoch of the record before ``offset``; None when unknown, which means that the
        position cannot be validated.
    leader_id, leader_epoch : int or None
        Leader of the partition, and its epoch, when the position was last known to be valid.
    """

    offset: int
    offset_epoch: int | None = None
    leader_id: int | None = None
    leader_epoch: int | None = None

    def __str__(self) -> str:
        epoch = "unknown" if self.offset_epoch is None else self.offset_epoch
        return f"offset {self.offset} (leader epoch {epoch})"
