"""Where the slices of a read go as text, and as tables; `BinarySink` is in ``binary``.

A sink takes slices, says how many rows it has written, and writes what it has in blocks of whole
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from kfast.cli.formats import TABLE, TextFormat, TextOptions, TypedColumn, table, text_format
from kfast.errors import ConfigurationError, DeserializationError
from kfast.internals import TextWriter

if TYPE_CHECKING:
    from kfast.cli.output import Output
    from kfast.cli.slices import Slice

_TERMINAL_BLOCK: Final = 4 << 10
"""Bytes that go to a terminal at a time: it may be slow, and a signal waits for them."""


class Sink(Protocol):
    """Takes what is read."""

    @property
    def nulled(self) -> int:
        """Keys and values that were not of their kind, and are null."""

    @property
    def skipped(self) -> int:
        """Records that were left out because they had such a key or value."""

    @property
    def is_pending(self) -> bool:
        """Whether there is anything that `flush` would write."""

    def begin(self) -> None:
        """Write what comes before the first record."""

    def put(self, rows: Slice, most: int | None, stopped: Callable[[], bool]) -> tuple[int, int]:
        """Take rows, at most so many; return how many were used, and how many of those written.

        Ends early when ``stopped``, between blocks. Raises DeserializationError behind the rows
        before the one that is not of its kind.
        """

    def flush(self) -> None:
        """Write what there is."""

    def end(self) -> None:
        """Write the rest, and what comes behind the last record."""


@dataclass(slots=True, frozen=True)
class Piece:
    """Rows of a slice, up to ``stop``, and what the text writer needs of their typed columns."""

    stop: int
    columns: Mapping[str, Sequence[TypedColumn]] = field(default_factory=dict)
    typed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `TextWriter.write`."""
    error: DeserializationError | None = None
    """Of the row at ``stop``."""


class Typed(Protocol):
    """Typed keys and values of slices, as texts: `kfast.cli.typed_text`."""

    nulled: int

    @property
    def is_flat(self) -> bool:
        """Whether members are columns of their own, which depend on the schema."""

    def pieces(self, rows: Slice) -> Iterator[Piece]:
        """Decode rows, some at a time."""

    def note(self, stop: int) -> None:
        """Count what is bad in the rows of the last piece before a row: those are written."""

    def columns(self) -> Mapping[str, Sequence[TypedColumn]]:
        """Return the columns where no record has come."""


class TextSink:
    """Writes text."""

    def __init__(
        self,
        name: str,
        options: TextOptions,
        output: Output,
        *,
        is_terminal: bool,
        on_error: str,
        typed: Typed | None = None,
    ) -> None:
        self._name = name
        self._options = options
        self._output = output
        self._is_terminal = is_terminal
        self._on_error = on_error
        self._typed = typed
        self._form: TextFormat | None = None
        self._writer: TextWriter | None = None
        self._kinds: dict[str, str] = {}

    @property
    def nulled(self) -> int:
        """See `Sink`."""
        of_typed = 0 if self._typed is None else self._typed.nulled
        return of_typed + (0 if self._writer is None else self._writer.nulled)

    @property
    def skipped(self) -> int:
        """See `Sink`."""
        return 0 if self._writer is None else self._writer.skipped

    @property
    def is_pending(self) -> bool:
        """See `Sink`."""
        return self._writer is not None and len(self._writer) > 0

    def begin(self) -> None:
        """Write the heading, if it does not depend on a schema that only records name."""
        if self._typed is None or not self._typed.is_flat:
            self._begin({} if self._typed is None else self._typed.columns())

    def _begin(self, columns: Mapping[str, Sequence[TypedColumn]]) -> TextWriter:
        """Make the writer, and write the heading; once."""
        options = replace(self._options, typed=columns)
        self._form = form = text_format(self._name, options)
        self._options = options
        self._kinds = {
            operation.field: operation.form
            for operation in reversed(form.operations)
            if operation.field in {"key", "value"} and operation.form not in {"raw", "auto"}
        }
        self._writer = TextWriter(
            form.operations,
            on_error=self._on_error,
            is_terminal=self._is_terminal,
            line_width=form.line_width,
            **({"block_bytes": _TERMINAL_BLOCK} if self._is_terminal else {}),
        )
        self._output.write(form.begin)
        return self._writer

    def _writer_of(self, piece: Piece) -> TextWriter:
        if self._writer is None:
            return self._begin(piece.columns)
        is_flat = self._typed is not None and self._typed.is_flat
        if is_flat and piece.columns and piece.columns != self._options.typed:
            raise ConfigurationError(
                "--flatten: the records have schemas with different columns",
                hint="one topic at a time, --value-schema for one reader's schema, or no --flatten",
            )
        return self._writer

    def put(self, rows: Slice, most: int | None, stopped: Callable[[], bool]) -> tuple[int, int]:
        """Write rows; a full block goes out at once."""
        tp, index = rows.topic_partition, rows.index
        topic = tp.topic.encode()
        row, records = rows.start, 0
        left = -1 if most is None else most
        for piece in (Piece(rows.stop),) if self._typed is None else self._typed.pieces(rows):
            writer = self._writer_of(piece)
            while row < piece.stop and left:
                before = writer.records
                row = writer.write(index, topic, tp.partition, row, piece.stop, left, **piece.typed)
                records += writer.records - before
                left -= (writer.records - before) if left > 0 else 0
                if self._typed is not None:
                    self._typed.note(row)
                if writer.bad is not None:
                    raise undecodable(rows, *writer.bad, self._kinds)
                if row < rows.stop and left and (row < piece.stop or stopped()):
                    self.flush()
                    if stopped():
                        return row - rows.start, records
            if not left:
                break
            if piece.error is not None:
                raise piece.error
        return row - rows.start, records

    def flush(self) -> None:
        """Write the block."""
        if self._writer is not None:
            self._output.write(self._writer)
            self._writer.clear()

    def end(self) -> None:
        """Write the rest and the end of the format."""
        writer = self._writer
        if writer is None:
            writer = self._begin({} if self._typed is None else self._typed.columns())
        assert self._form is not None
        self.flush()
        self._output.write(self._form.end if writer.records else self._form.end_of_none)


class TableSink(TextSink):
    """Lays out all records at the end, when the widths of the columns are known."""

    def __init__(
        self,
        options: TextOptions,
        output: Output,
        *,
        is_terminal: bool,
        on_error: str,
        typed: Typed | None = None,
    ) -> None:
        super().__init__(TABLE, options, output, is_terminal=False, on_error=on_error, typed=typed)
        self._is_shown = is_terminal
        self._lines: list[bytes] = []

    @property
    def is_pending(self) -> bool:
        """Return False: nothing is written before the end."""
        return False

    def flush(self) -> None:
        """Keep the block."""
        if self._writer is not None:
            self._lines.append(bytes(self._writer))
            self._writer.clear()

    def end(self) -> None:
        """Write the table."""
        if self._writer is None:
            self._begin({} if self._typed is None else self._typed.columns())
        assert self._form is not None
        self.flush()
        lines = b"".join(self._lines)
        self._output.write(table(lines, self._form.headings, is_terminal=self._is_shown))


def text_sink(
    name: str, options: TextOptions, output: Output, on_error: str, typed: Typed | None = None
) -> TextSink:
    """Return the sink of a text format."""
    is_terminal = options.is_terminal
    if name == TABLE:
        return TableSink(options, output, is_terminal=is_terminal, on_error=on_error, typed=typed)
    return TextSink(name, options, output, is_terminal=is_terminal, on_error=on_error, typed=typed)


def undecodable(
    rows: Slice, row: int, column: str, byte: int, kinds: dict[str, str]
) -> DeserializationError:
    """Return the error for a key or value of a slice that is not of its kind."""
    # NumPy and all columns: what is wrong is said in the words of their deserializers.
    from kfast import Float32, Float64, Int32, Int64, Utf8, Uuid  # noqa: PLC0415
    from kfast.deserializers.deserializer import BadValue  # noqa: PLC0415

    values = {name: _bytes_of(rows, name, row) for name in ("key", "value")}
    raw = values[column] or b""
    kind = kinds.get(column, "text").removesuffix("le")
    classes: dict[str, Any] = {
        "int32": Int32,
        "int64": Int64,
        "float32": Float32,
        "float64": Float64,
        "uuid": Uuid,
    }
    if kind == "json":
        at = f"byte {byte}: 0x{raw[byte]:02x}" if byte < len(raw) else f"it ends at byte {byte}"
        bad = BadValue.of(f"is not JSON ({at})", raw)
    else:
        bad = classes.get(kind, Utf8)().explain(raw)
    tp = rows.topic_partition
    offset = int(memoryview(rows.index.offsets).cast("q")[row])
    is_text = kind in {"auto", "text"}
    return DeserializationError(
        f"{tp} offset {offset}: {column} {bad.reason}",
        found=bad.found,
        hint=f"--{column} base64" if is_text else "--on-error null, or --on-error skip",
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        column=column,
        key_bytes=values["key"],
        value_bytes=values["value"],
    )


def _bytes_of(rows: Slice, column: str, row: int) -> bytes | None:
    index = rows.index
    starts, lengths = (
        (index.key_starts, index.key_lengths)
        if column == "key"
        else (index.value_starts, index.value_lengths)
    )
    start, length = (memoryview(column_view).cast("i")[row] for column_view in (starts, lengths))
    if length <= 0:
        return None if length < 0 else b""
    return bytes(memoryview(index.data)[start : start + length])
