"""ValueDecoder: the keys or values of some records, decoded and in Spark's types.

Owns what ``mode`` needs to know of those that cannot be read: which rows, the sentence that names
one, and ``code path`` of each. A row whose value Spark cannot hold is one of them.

Schemas of a registry that are not known yet are waited for, here in the calling thread. Any thread,
one at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from kfast.columns.bytes import BytesColumn
from kfast.columns.operations import select_values
from kfast.columns.record_errors import ErrorKind, error_message
from kfast.columns.uuid import UuidColumn
from kfast.deserializers import (
    BadValue,
    Deserializer,
    FoundErrors,
    NativeDeserializer,
    describe,
    is_native,
    needs_headers,
)
from kfast.errors import DeserializationError
from kfast.table.option_spelling import OptionSpelling

if TYPE_CHECKING:
    from kfast.columns.column_data import ColumnData
    from kfast.columns.headers import HeadersColumn
    from kfast.columns.nested import NestedColumn
    from kfast.columns.operations import Values
    from kfast.columns.text import StringColumn
    from kfast.deserializers.json import Json
    from kfast.records.partition_records import PartitionRecords
    from kfast.schemas.types import SchemaField
    from kfast.table.value_columns import BadRows


COLUMN_BYTES: Final = 64 << 20
"""Most bytes of decoded columns, give or take a row: small values may be large ones decoded."""


class DecodedValues:
    """The keys or values of some records; without ``raw`` if the consumer has decoded them."""

    def __init__(
        self,
        raw: BytesColumn | None,
        deserializer: Deserializer,
        values: Values,
        node: ColumnData | None = None,
        is_bad: NDArray[np.bool_] | None = None,
        errors: FoundErrors | None = None,
        beyond: tuple[BadRows, ...] = (),
    ) -> None:
        self.raw = raw
        self.values = values
        self.node = node
        """Of typed columns, in the type of the query's column; then ``values`` are not used."""
        self.is_bad = is_bad
        """True where a value could not be read; None without any."""
        self._deserializer = deserializer
        self._errors = errors
        self._beyond = beyond

    def __len__(self) -> int:
        if self.raw is None:
            assert self.node is not None
            return self.node.length
        return len(self.raw)

    def cut(self, count: int) -> DecodedValues:
        """Return the first rows."""
        if count == len(self):
            return self
        rows, errors = slice(0, count), self._errors
        if errors is not None:
            errors = errors.within(errors.rows["row"] < count)
        return DecodedValues(
            None if self.raw is None else self.raw[rows],
            self._deserializer,
            self.values if self.node is not None else select_values(self.values, rows),
            None if self.node is None else self.node.select(rows),
            None if self.is_bad is None else self.is_bad[rows],
            errors,
            tuple(bad._replace(rows=bad.rows[bad.rows < count]) for bad in self._beyond),
        )

    def select(self, rows: NDArray[np.intp]) -> DecodedValues:
        """Return some rows, none of which is bad."""
        values = self.values if self.node is not None else select_values(self.values, rows)
        node = None if self.node is None else self.node.select(rows)
        raw = None if self.raw is None else self.raw.select(rows)
        return DecodedValues(raw, self._deserializer, values, node)

    def bad_value(self, row: int) -> BadValue:
        """Return why a value could not be read."""
        raw = self.raw_value(row) or b""
        for path, rows in self._beyond:
            if row in rows:
                reason = "is a time that Spark's microseconds cannot hold"
                if self.raw is None:
                    return BadValue(reason, "", code="range", path=path)
                return BadValue.of(reason, raw, is_number=True).detailed("range", path, -1)
        errors = self._errors
        if errors is None:
            return self._deserializer.explain(raw)
        number = int(np.searchsorted(errors.rows["row"], row))
        schema_id = None if errors.schema_ids is None else errors.schema_ids[number]
        return describe(self._deserializer, errors.root, raw, errors.rows[number], schema_id)

    def rescued(self, headers: HeadersColumn | None) -> StringColumn | None:
        """Return the fields of the values that have no column, None if there are none."""
        unknown = None if self.node is None else self.node.unknown
        if unknown is None or self.raw is None:
            return None
        form = cast("Json", self._deserializer)  # only documents have such fields
        return form.rescued(self.raw, headers, unknown.counts)

    def raw_value(self, row: int) -> bytes | None:
        """Return the bytes of a value, None if there are none any more."""
        return None if self.raw is None else self.raw[row]

    def reasons(self) -> dict[int, str]:
        """Return ``code path`` of each bad row, or the code alone if it is the whole value."""
        if self.is_bad is None:
            return {}
        reasons: dict[int, str] = {}
        errors = self._errors
        if errors is not None:
            paths = [] if errors.root is None else [path for path, _node in errors.root.nodes()]
            codes = {kind.value: kind.text for kind in ErrorKind}
            for error in errors.rows:
                node = int(error["node"])
                path = paths[node] if 0 <= node < len(paths) else ""
                for index in error["indexes"][: error["depth"]].tolist():
                    path = path.replace("[]", f"[{index}]", 1)
                reasons[int(error["row"])] = f"{codes[int(error['code'])]} {path}".rstrip()
        for path, rows in self._beyond:
            reasons.update(dict.fromkeys(rows.tolist(), f"range {path}".rstrip()))
        if errors is None and not self._beyond:
            return {int(row): self.bad_value(int(row)).code for row in np.flatnonzero(self.is_bad)}
        return reasons


class ValueDecoder:
    """Decodes ``"key"`` or ``"value"``; ``target`` is the type of the column, None without one."""

    def __init__(self, column: str, deserializer: Deserializer, target: SchemaField | None) -> None:
        self._column = column
        self._deserializer = deserializer
        self._target = target

    def decode(
        self,
        records: PartitionRecords,
        *,
        stops: bool,
        spelling: OptionSpelling = OptionSpelling.SPARK,
    ) -> DecodedValues:
        """Decode the keys or values of records, or of the first ones if columns get large.

        ``spelling`` is that of options in hints.

        Raises
        ------
        DeserializationError
            One cannot be read, and ``stops`` is true.
        SchemaRegistryError
            A schema cannot be looked up.
        """
        raw = records.keys if self._column == "key" else records.values
        if not isinstance(raw, BytesColumn):
            return self._received(records, raw, spelling, stops=stops)
        deserializer = self._deserializer
        headers = records.headers if needs_headers(deserializer) else None
        wait_for_schemas = getattr(deserializer, "wait_for_schemas", None)
        if wait_for_schemas is not None:
            wait_for_schemas(raw, headers)
        if isinstance(deserializer, NativeDeserializer) and is_native(deserializer):
            column = deserializer.decode_some(
                raw, headers, stop_at_first=stops, most_bytes=COLUMN_BYTES
            )
            is_cut = column.first_bad < 0 or not stops
            if is_cut and len(column.values) < len(raw):
                raw = raw[: len(column.values)]
        else:
            column = deserializer.deserialize_column(raw, headers, stop_at_first=stops)
        node, beyond = self._converted(column.values, column.node)
        is_bad = _with_beyond(column.is_bad, beyond, len(raw))
        if beyond and node is not None and is_bad is not None and not stops:
            node = node.with_nulls(is_bad)
        decoded = DecodedValues(
            raw, deserializer, column.values, node, is_bad, column.errors, beyond
        )
        if stops and is_bad is not None:
            raise self._error(records, decoded, int(np.argmax(is_bad)), spelling)
        if stops and column.first_bad >= 0:
            raise self._error(records, decoded, column.first_bad, spelling)
        return decoded

    def _received(
        self,
        records: PartitionRecords,
        values: NestedColumn,
        spelling: OptionSpelling,
        *,
        stops: bool,
    ) -> DecodedValues:
        """Take what the consumer has decoded; what it could not read is counted with it."""
        node, beyond = self._converted(values, values.node)
        is_bad = _with_beyond(None, beyond, len(values))
        if is_bad is not None and node is not None and not stops:
            node = node.with_nulls(is_bad)
        decoded = DecodedValues(None, self._deserializer, values, node, is_bad, None, beyond)
        if stops and is_bad is not None:
            raise self._error(records, decoded, int(np.argmax(is_bad)), spelling)
        return decoded

    def _converted(
        self, values: Values, node: ColumnData | None
    ) -> tuple[ColumnData | None, tuple[BadRows, ...]]:
        is_uuid = isinstance(values, UuidColumn)
        if self._target is None or (node is None and not is_uuid):
            return node, ()
        from kfast.table import value_columns  # noqa: PLC0415 - typed columns only

        if isinstance(values, UuidColumn):
            node = value_columns.node_of_uuids(values.data, values.is_null)
        assert node is not None
        return value_columns.convert(node, self._target)

    def _error(
        self,
        records: PartitionRecords,
        decoded: DecodedValues,
        row: int,
        spelling: OptionSpelling,
    ) -> DeserializationError:
        bad = decoded.bad_value(row)
        is_framed = bad.hint.startswith('framing="confluent"')
        offset = int(records.offsets[row])
        return DeserializationError(
            error_message(f"{records.topic_partition} offset {offset}", self._column, bad),
            cause=f"code {bad.code}" if decoded.node is not None else None,
            found=bad.found or None,
            hint=spelling.framing_hint(self._column) if is_framed else spelling.on_error_hint,
            topic=records.topic,
            partition=records.partition,
            offset=offset,
            column=self._column,
            value_bytes=decoded.raw_value(row),
            code=bad.code,
            path=bad.path,
            byte_position=bad.byte_position,
        )

    def __repr__(self) -> str:
        return f"<ValueDecoder {self._column} {self._deserializer!r}>"


def _with_beyond(
    is_bad: NDArray[np.bool_] | None, beyond: tuple[BadRows, ...], count: int
) -> NDArray[np.bool_] | None:
    """Return which rows are bad, those included whose values Spark cannot hold."""
    if not beyond:
        return is_bad
    mask = np.zeros(count, np.bool_)
    if is_bad is not None:
        mask[: len(is_bad)] = is_bad
    for bad in beyond:
        mask[bad.rows] = True
    return mask
