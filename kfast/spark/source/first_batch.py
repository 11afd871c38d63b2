"""FirstBatch: where a new query starts, and that it stays there.

Spark's checkpoint has the end of each micro-batch, but not the start of the first: that is asked
for again when the first batch has to be repeated. By then the end of a log, where
``startingOffsets=latest`` starts, is elsewhere. So the first batch of a query that starts at the
end of a log ends there as well: it is empty, and its end in the checkpoint is where the query
started. A partition whose start does not move with the log's end is read at once.

A query that dies before Spark has noted its first batch has not begun: started again, it takes its
options as they are then. Where "latest" must not mean a later moment even so, ``startingOffsets``
has to give offsets. The same holds for options that were changed before the first batch was done.

Driver only, one thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

from kfast.spark.source.driver import Lookup
from kfast.spark.source.options import SourceOptions
from kfast.types import TopicPartition

Offsets = dict[TopicPartition, int]


class FirstBatch:
    """The first micro-batch of one query, whether this run plans it or repeats it.

    Parameters
    ----------
    options : SourceOptions
        Of the query.
    lookup : Lookup
        Answers questions.
    """

    def __init__(self, options: SourceOptions, lookup: Lookup) -> None:
        self._options = options
        self._lookup = lookup
        self._start: Offsets | None = None
        self._growing: set[TopicPartition] = set()
        self._is_due = False
        self._is_repeated = False

    def start(self) -> Offsets:
        """Return where a new query starts: the same whenever Spark asks, though logs grow.

        Raises
        ------
        KafkaError
            A topic does not exist, or the start cannot be resolved.
        """
        if self._start is None:
            partitions = self._lookup.partitions(must_exist=bool(self._options.topics.names))
            self._start = self._lookup.resolve(self._options.start, partitions)
            self._growing = self._options.start.growing(partitions)
            self._is_due = True
        return dict(self._start)

    def held(self, start: Mapping[TopicPartition, int] | None) -> Offsets:
        """Return the partitions for which the next batch must end where it starts.

        Parameters
        ----------
        start : Mapping of TopicPartition to int, or None
            Where the next batch starts, if Spark says so.
        """
        is_first, self._is_due, self._is_repeated = self._is_due, False, False
        if start is None or not is_first:
            return {}
        return {tp: at for tp, at in start.items() if tp in self._growing}

    def true_start(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Return where the batch with this end starts.

        That is `start`, unless the batch is the first, of an earlier run: then `start` is where a
        query would start now. Partitions that the batch did not have are new.
        """
        if self._is_due:  # planned without a question where it ends: Spark knew
            self._is_due, self._is_repeated = False, True
        if not self._is_repeated:
            return start
        return {
            tp: min(at, end[tp]) if tp in self._growing else at
            for tp, at in start.items()
            if tp in end
        }

    def __repr__(self) -> str:
        state = "not asked for" if self._start is None else "due" if self._is_due else "planned"
        return f"<FirstBatch {self._options.topics} {state}>"
