"""TopicScan: one pass over a bounded range of topics, as batches or as an Arrow stream.

Owns when the range is read: nothing is before the first use, and nothing after the pass was left or
closed. A pass comes to its end only where all of the range was handed out: after an exception in it
or beside it, such as that of a signal handler, going on with it is an error. Any one thread at a
time: Arrow consumers may read a stream on threads of their own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from inspect import GEN_RUNNING, getgeneratorstate
from typing import TYPE_CHECKING, Any, Final

from kfast._base.optional import optional_package
from kfast.columns.arrow import Capsule, requested_columns
from kfast.columns.operations import is_object_array
from kfast.errors import IllegalStateError
from kfast.records.arrow_stream import Form, PartitionRows, grouped_stream

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    import pyarrow as pa

    from kfast.records.partition_records import PartitionRecords

GROUP_ROWS: Final = 64 << 10
GROUP_BYTES: Final = 16 << 20
"""A batch of the Arrow stream has at least so many rows, or bytes of keys and values."""

Batches = Generator["PartitionRecords", None, None]


class _Outcome:
    """Whether a pass has come to its end, or was closed; it outlives the pass."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


class _Pass:
    """The batches of one pass. With the last reference to it the consumer is closed."""

    __slots__ = ("__weakref__", "_batches", "_first", "_is_interrupted", "_outcome")

    def __init__(self, batches: Batches, outcome: _Outcome) -> None:
        self._batches = batches
        self._outcome = outcome
        self._first: PartitionRecords | None = None
        self._is_interrupted = False

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> PartitionRecords:
        if self._first is None:
            self.peek()
        batch, self._first = self._first, None
        if batch is None:
            raise StopIteration
        return batch

    def peek(self) -> PartitionRecords | None:
        """Return the next batch without taking it, None at the end of the range."""
        if self._first is not None:
            return self._first
        if getgeneratorstate(self._batches) == GEN_RUNNING:
            raise _being_read()
        if self._is_interrupted:
            raise _interrupted()
        # Until the batch is where the next call finds it: the generator has gone on behind it.
        self._is_interrupted = True
        try:
            self._first = next(self._batches, None)
        except BaseException:
            self._batches.close()
            raise
        self._outcome.is_over = self._first is None
        self._is_interrupted = False
        return self._first

    def close(self) -> None:
        """Disconnect."""
        if getgeneratorstate(self._batches) == GEN_RUNNING:
            raise _being_read()
        self._batches.close()


def _being_read() -> IllegalStateError:
    return IllegalStateError(
        "this scan is inside of another call",
        hint="leave the loop that reads it; use it in one thread at a time",
    )


def _interrupted() -> IllegalStateError:
    return IllegalStateError(
        "this scan was left or interrupted before its end",
        hint="call scan_topic() again; start={tp: next_offset of its last batch} goes on there",
    )


class TopicScan:
    """What `kfast.scan_topic` returns: a bounded range of topics, to be read once.

    It is an iterator of `PartitionRecords`, a context manager, and an Arrow stream, which
    ``pyarrow.table(scan)``, ``polars.DataFrame(scan)``, DuckDB and ``deltalake`` read in constant
    memory: columns as those of ``to_arrow()``, in batches of at least 65 536 rows or 16 MB.

    It connects at the first use. Leaving the loop, the end of the ``with`` block, `close` and any
    exception, of a signal handler too, end it; another pass is another `scan_topic`. Going on after
    an exception raises `IllegalStateError`: it is not taken for the end of the range.

    Examples
    --------
    >>> with kfast.scan_topic("orders", bootstrap_servers="localhost:9092") as scan:
    ...     sum(len(batch) for batch in scan)
    3
    """

    def __init__(self, begin: Callable[[list[str]], Batches], template: PartitionRecords) -> None:
        """Take what begins the pass, and puts the names of the topics into the list it is given."""
        self.template = template
        """No rows, with the columns and types that rows have."""
        self._topics: list[str] = []
        self._is_begun = False
        self._schema: Any = None
        self._outcome = _Outcome()
        own = _Pass(begin(self._topics), self._outcome)
        self._own: _Pass | None = own  # until a loop has it
        self._pass = weakref.ref(own)

    def __iter__(self) -> Iterator[PartitionRecords]:
        if self._own is None:
            raise IllegalStateError(
                "this scan was begun before: it is one pass",
                hint="call scan_topic() again for another pass",
            )
        self._is_begun = True
        # A loop that is left drops the only reference, which ends the pass.
        batches, self._own = self._own, None
        return batches

    def __next__(self) -> PartitionRecords:
        self._is_begun = True
        batches = self._pass()
        if batches is not None:
            return next(batches)
        if self._outcome.is_over:
            raise StopIteration
        raise _interrupted()

    def close(self) -> None:
        """End the pass and disconnect. Idempotent."""
        self._outcome.is_over = True
        if not self._is_begun:
            self._is_begun, self._own = True, None
        batches = self._pass()
        if batches is not None:
            batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the stream, a ``pyarrow.Schema``.

        What a callable makes of keys and values is known only from records: then this is a use.
        """
        pyarrow = optional_package("pyarrow", "schema")
        rows = self.template.partition_rows.rows
        has_objects = any(map(is_object_array, (rows.keys, rows.values)))
        if has_objects and self._schema is None and self._own is not None and not self._is_begun:
            self._is_begun = True
            first = self._own.peek()
            if first is not None:
                self._schema = pyarrow.schema(first)
        if self._schema is None:
            self._schema = pyarrow.schema(self.template)
        return self._schema

    def __arrow_c_stream__(self, requested_schema: Capsule = None) -> Capsule:
        groups = _groups(iter(self))
        first = next(groups, None)
        return grouped_stream(
            groups if first is None else _resumed(first, groups),
            [self.template.partition_rows] if first is None else first,
            self._topics,
            Form(dict(requested_columns(requested_schema))),
        )

    def __repr__(self) -> str:
        return f"<TopicScan: {'begun' if self._is_begun else 'new'}>"


def _resumed(first: Any, rest: Iterator[Any]) -> Generator[Any, None, None]:
    yield first
    del first
    yield from rest


def _groups(batches: Iterator[PartitionRecords]) -> Iterator[Sequence[PartitionRows]]:
    """Yield the parts of some batches together that make one batch of the stream."""
    group: list[PartitionRows] = []
    rows = nbytes = 0
    for batch in batches:
        group.append(batch.partition_rows)
        rows += len(batch)
        nbytes += batch.nbytes
        if rows >= GROUP_ROWS or nbytes >= GROUP_BYTES:
            yield group
            group, rows, nbytes = [], 0, 0
    if group:
        yield group
