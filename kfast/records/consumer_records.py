"""ConsumerRecords: the result of one poll.

Owns: the records of several partitions as a mapping, stored in chunks as they were decoded. A
partition's chunks are joined only when that partition is looked up; iteration over
:meth:`ConsumerRecords.batches` and every Arrow export work chunk by chunk without joining.

It behaves as ``Mapping[TopicPartition, PartitionRecords]`` but is deliberately not registered as
one: DataFrame libraries check for mappings before Arrow, so that ``polars.DataFrame(records)``
would take the partitions for column names.

Thread: any; immutable but for the cache of joined chunks.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, overload

from numpy.typing import NDArray

from kfast.columns.arrow import Capsule, requested_columns
from kfast.columns.record_errors import RecordErrors
from kfast.columns.spans import block_bytes
from kfast.records.arrow_stream import Flatten, Form, PartitionRows, record_stream
from kfast.records.building import empty_partition_records
from kfast.records.consumer_record import ConsumerRecord
from kfast.records.data_frames import arrow_table, pandas_frame, polars_frame, structured_array
from kfast.records.partition_records import PartitionRecords, with_rows
from kfast.records.preview import html_preview, result_title, text_preview
from kfast.types import OffsetAndMetadata, OffsetOfTopic, TopicPartition

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    _RecordMapping = Mapping[TopicPartition, PartitionRecords]
else:
    _RecordMapping = object

D = TypeVar("D")


class ConsumerRecords(_RecordMapping):
    """Records of any number of partitions: ``{TopicPartition: PartitionRecords}``.

    ``len(records)`` is the number of partitions with records, ``count()`` the number of records; an
    empty result is false.

    Parameters
    ----------
    batches : iterable of PartitionRecords, or mapping of TopicPartition to them
        The chunks. Those of one partition must be in offset order; a mapping may give one chunk or
        a sequence of chunks. A chunk without rows only contributes its ``next_offset``.
    template : PartitionRecords, optional
        Columns and types of exports when there are no records; raw bytes without it.

    Examples
    --------
    >>> orders = kfast.read_topic("orders", bootstrap_servers="localhost:9092")
    >>> orders.count(), len(orders)
    (3, 2)
    >>> orders.to_arrow().column("offset").to_pylist()
    [0, 1, 0]
    """

    __slots__ = ("_chunks", "_count", "_joined", "_last", "_template")

    def __init__(
        self,
        batches: Iterable[PartitionRecords]
        | Mapping[TopicPartition, PartitionRecords | Sequence[PartitionRecords]] = (),
        *,
        template: PartitionRecords | None = None,
    ) -> None:
        self._chunks: dict[TopicPartition, list[PartitionRecords]] = {}
        self._last: dict[TopicPartition, PartitionRecords] = {}
        self._joined: dict[TopicPartition, PartitionRecords] = {}
        self._template = template
        self._count = 0
        if isinstance(batches, ConsumerRecords):
            self._template = batches._template if template is None else template
            batches = batches._all()
        by_partition: Any
        if hasattr(batches, "items"):
            by_partition = batches.items()
        else:
            by_partition = ((batch.topic_partition, batch) for batch in batches)
        skipped = set()
        for tp, chunks in by_partition:
            for batch in (chunks,) if isinstance(chunks, PartitionRecords) else chunks:
                self._last[tp] = batch
                if count := len(batch):
                    self._count += count
                    self._chunks.setdefault(tp, []).append(batch)
                elif batch.deserialization_errors:
                    skipped.add(tp)
                    self._chunks.setdefault(tp, []).append(batch)
        for tp in skipped:
            parts = self._chunks[tp]
            self._chunks[tp] = with_rows(parts)
            if not self._chunks[tp]:
                del self._chunks[tp]
                self._last[tp] = PartitionRecords.concat(parts)

    def _all(self) -> list[PartitionRecords]:
        """Return all chunks and, of partitions that advanced without a record, the last one."""
        return [*self.batches(), *(last for last in self._last.values() if not len(last))]

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._all(), self._template)

    def replaced(
        self,
        batches: Iterable[PartitionRecords]
        | Mapping[TopicPartition, PartitionRecords | Sequence[PartitionRecords]],
    ) -> ConsumerRecords:
        """Return other records instead of these; without any their exports have these columns."""
        if isinstance(batches, ConsumerRecords) and (
            batches._template is not None or self._template is None
        ):
            return batches
        return ConsumerRecords(batches, template=self._template)

    # --- a mapping --------------------------------------------------------------------------------

    def __getitem__(self, partition: TopicPartition) -> PartitionRecords:
        joined = self._joined.get(partition)
        if joined is None:
            chunks = self._chunks[partition]
            if len(chunks) == 1:
                return chunks[0]
            joined = PartitionRecords.concat(chunks)
            self._joined[partition] = joined
        return joined

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, partition: object) -> bool:
        return partition in self._chunks

    def keys(self) -> KeysView[TopicPartition]:
        """Return the partitions that have records."""
        return KeysView(self)

    def values(self) -> ValuesView[PartitionRecords]:
        """Return the records of each partition."""
        return ValuesView(self)

    def items(self) -> ItemsView[TopicPartition, PartitionRecords]:
        """Return pairs of partition and records."""
        return ItemsView(self)

    @overload
    def get(self, partition: TopicPartition, /) -> PartitionRecords | None: ...
    @overload
    def get(self, partition: TopicPartition, /, default: D) -> PartitionRecords | D: ...
    def get(self, partition: TopicPartition, /, default: Any = None) -> Any:
        """Return the records of a partition, or the default when it has none."""
        return self[partition] if partition in self._chunks else default

    # --- Kafka's methods --------------------------------------------------------------------------

    def count(self) -> int:
        """Return the number of records of all partitions."""
        return self._count

    def partitions(self) -> set[TopicPartition]:
        """Return the partitions that have records."""
        return set(self._chunks)

    def records(self, topic: str | TopicPartition) -> Iterator[ConsumerRecord]:
        """Iterate over the records of one topic, or of one partition, as objects."""
        for tp, chunks in self._chunks.items():
            if topic in (tp.topic, tp):
                for batch in chunks:
                    yield from batch

    def batches(self) -> Iterator[PartitionRecords]:
        """Iterate over the chunks; those of one partition are in offset order."""
        for chunks in self._chunks.values():
            yield from chunks

    def last_batches(self) -> ItemsView[TopicPartition, PartitionRecords]:
        """Return the last chunk of each partition, empty where only the position advanced."""
        return self._last.items()

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit after processing all of these records.

        Partitions that advanced without a record (aborted transactions, compaction) are included.
        They carry leader epoch and topic id: those of a topic that was deleted and created again
        since are not committed to the new one.
        """
        return {
            tp: OffsetOfTopic.of(batch.next_offset, "", batch.leader_epoch, batch.topic_id)
            for tp, batch in self._last.items()
        }

    @property
    def errors(self) -> RecordErrors:
        """The values of all partitions that could not be read; of all-skipped partitions, too."""
        return RecordErrors.concat([batch.errors for batch in self._all()])

    @property
    def nbytes(self) -> int:
        """Bytes of the serialized keys and values and of the index columns."""
        return sum(batch.nbytes for batch in self.batches())

    @property
    def pinned_nbytes(self) -> int:
        """Bytes of the memory blocks that these records keep alive, each block counted once.

        Usually whole received frames. Python objects made by a callable are not counted.
        """
        kept = (*self._all(), *self._joined.values())
        return block_bytes(chain.from_iterable(batch.blocks() for batch in kept))

    # --- conversions ------------------------------------------------------------------------------

    def _rows(self) -> list[PartitionRows]:
        chunks = [batch.partition_rows for batch in self.batches()]
        if not chunks:
            template = self._template
            if template is None:
                template = next(iter(self._last.values()), None)
            chunks.append(
                (empty_partition_records() if template is None else template).partition_rows
            )
        return chunks

    def to_numpy(self) -> NDArray[Any]:
        """Return a structured array of shape (count,), one field per column.

        Variable-length columns are ``object`` fields; numeric nulls make it a ``MaskedArray``.
        """
        return structured_array(self._rows())

    def to_arrow(
        self, view: bool = False, topic_dictionary: bool = True, flatten: Flatten = False
    ) -> pa.Table:
        """Return a ``pyarrow.Table`` with one chunk per batch.

        Parameters
        ----------
        view : bool
            Bytes and strings as ``binary_view`` and ``string_view`` over the received memory,
            without a copy. Not every function of Arrow takes them.
        topic_dictionary : bool
            ``topic`` as ``dictionary<int32, string>``, 4 bytes a row; False: as ``string``.
        flatten : bool or "all"
            Members of struct keys and values as columns of their own, null where the struct is; a
            name that is taken becomes ``value.name``. ``"all"``: those of nested structs too.

        Raises
        ------
        MissingDependencyError
            pyarrow is not installed.
        """
        form = Form.of(view=view, topic_dictionary=topic_dictionary, flatten=flatten)
        return arrow_table(self._rows(), form, "to_arrow()")

    def to_pandas(self, topic_dictionary: bool = True, flatten: Flatten = False) -> pd.DataFrame:
        """Return a pandas DataFrame, made through Arrow; the README says which dtypes it has.

        Parameters
        ----------
        topic_dictionary : bool
            ``topic`` as ``category``; False: as strings.
        flatten : bool or "all"
            Members of struct keys and values as columns of their own, null where the struct is; a
            name that is taken becomes ``value.name``. ``"all"``: those of nested structs too.

        Raises
        ------
        MissingDependencyError
            pandas or pyarrow is not installed.
        """
        return pandas_frame(self._rows(), topic_dictionary=topic_dictionary, flatten=flatten)

    def to_polars(self, topic_dictionary: bool = True, flatten: Flatten = False) -> pl.DataFrame:
        """Return a polars DataFrame; pyarrow is not needed.

        Parameters
        ----------
        topic_dictionary : bool
            ``topic`` as ``Categorical``; False: as ``String``.
        flatten : bool or "all"
            Members of struct keys and values as columns of their own, null where the struct is; a
            name that is taken becomes ``value.name``. ``"all"``: those of nested structs too.

        Raises
        ------
        MissingDependencyError
            polars is not installed.
        """
        return polars_frame(self._rows(), topic_dictionary=topic_dictionary, flatten=flatten)

    def __arrow_c_stream__(self, requested_schema: Capsule = None) -> Capsule:
        return record_stream(self._rows(), Form(dict(requested_columns(requested_schema))))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Refuse: NumPy and ``pandas.DataFrame(records)`` would take the partitions for the data.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(
            "these are the records of several partitions, not an array: use to_pandas() or "
            "to_numpy(), or look a partition up"
        )

    def __repr__(self) -> str:
        batches = self._in_order()
        return text_preview(result_title(batches), batches)

    def _repr_html_(self) -> str:
        batches = self._in_order()
        return html_preview(result_title(batches), batches)

    def _in_order(self) -> list[PartitionRecords]:
        return [batch for tp in sorted(self._chunks) for batch in self._chunks[tp]]

    def __str__(self) -> str:
        counts = ", ".join(f"{tp}: {sum(map(len, chunks))}" for tp, chunks in self._chunks.items())
        return f"<ConsumerRecords n={self.count()} {{{counts}}}>"


def _restored(
    batches: list[PartitionRecords], template: PartitionRecords | None
) -> ConsumerRecords:
    return ConsumerRecords(batches, template=template)
