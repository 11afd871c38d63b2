"""Ledger: what one reader of a topic was given, and what it must be given next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kfast import ConsumerRecords, PartitionRecords, TopicPartition


class Ledger:
    """Offsets received per partition, compared with those that had to come.

    Parameters
    ----------
    starts : Mapping of TopicPartition to int
        The first offset that has to come of each partition.
    passes : callable, optional
        Whether an interceptor lets a record of this offset pass. By default there is none.
    """

    def __init__(
        self, starts: Mapping[TopicPartition, int], passes: Callable[[int], bool] | None = None
    ) -> None:
        self.next = dict(starts)
        self._passes = passes

    def take(self, records: ConsumerRecords) -> list[tuple[str, str]]:
        """Note what a poll returned; return what is wrong with it, by kind."""
        return [wrong for tp in records for wrong in self.take_batch(tp, records[tp])]

    def take_batch(self, tp: TopicPartition, batch: PartitionRecords) -> list[tuple[str, str]]:
        """Note a batch; return what is wrong with it."""
        return self.take_offsets(tp, batch.offsets.tolist())

    def take_offsets(self, tp: TopicPartition, offsets: list[int]) -> list[tuple[str, str]]:
        """Note offsets of one partition; return what is wrong with them."""
        wrong = []
        for offset in offsets:
            expected = self.next[tp]
            if self._passes is not None:
                if not self._passes(offset):
                    wrong.append(("an interceptor was bypassed", f"{tp} {offset}"))
                while expected < offset and not self._passes(expected):
                    expected += 1
            if offset > expected:
                wrong.append(("records were lost", f"{tp} {expected} to {offset - 1}"))
            elif offset < expected:
                wrong.append(("records came twice", f"{tp} {offset}, not {expected}"))
            self.next[tp] = offset + 1
        return wrong

    def past(self, committed: Mapping[TopicPartition, Any]) -> list[tuple[str, str]]:
        """Return which committed offsets are past what was received."""
        return [
            ("committed past what was handed out", f"{tp} {int(at)}, handed out to {self.next[tp]}")
            for tp, at in committed.items()
            if tp in self.next
            and any(self._passes is None or self._passes(n) for n in range(self.next[tp], int(at)))
        ]
