"""Remembers which partitions moved between whom while an assignment is balanced.

Owns the moves of one run of the general sticky algorithm. When a partition of a topic is to move
from a to b though another one of that topic moved from b to a before, moving that one back gives
the same balance and leaves one more partition where it was.
"""

from __future__ import annotations


class Moves:
    """Moves so far. Partitions and members are numbers, topics too.

    Parameters
    ----------
    topic_of : list of int
        Topic of each partition.
    """

    __slots__ = ("_by_pair", "_moved", "_topic_of")

    def __init__(self, topic_of: list[int]) -> None:
        self._topic_of = topic_of
        self._moved: dict[int, tuple[int, int]] = {}
        self._by_pair: dict[tuple[int, int, int], dict[int, None]] = {}

    def instead(self, partition: int, owner: int, to: int) -> int:
        """Return the partition to move rather than this one; itself if there is no better one.

        Of several the one with the highest number: Java takes what its hash table has first, which
        most often is that one.
        """
        source = self._moved[partition][0] if partition in self._moved else owner
        reverse = self._by_pair.get((self._topic_of[partition], to, source))
        return max(reverse) if reverse else partition

    def record(self, partition: int, owner: int, to: int) -> None:
        """Take note that a partition moved."""
        topic = self._topic_of[partition]
        before = self._moved.pop(partition, None)
        source = owner
        if before is not None:
            source = before[0]
            del self._by_pair[topic, *before][partition]
        if source != to:
            self._moved[partition] = source, to
            self._by_pair.setdefault((topic, source, to), {})[partition] = None

    def __repr__(self) -> str:
        return f"<Moves {len(self._moved)} partitions>"
