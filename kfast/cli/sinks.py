"""Where the slices of a read go as text, and as tables; `BinarySink` is in ``binary``.

A sink takes slices, says how many rows it has written, and writes what it has in blocks of whole
records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kfast._native.text_writer import TextWriter
from kfast.cli.formats import TABLE, TextFormat, TextOptions, table, text_format
from kfast.errors import DeserializationError

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


class TextSink:
    """Writes text."""

    def __init__(
        self,
        form: TextFormat,
        output: Output,
        *,
        is_terminal: bool,
        on_error: str,
    ) -> None:
        self._form = form
        self._output = output
        self._kinds = {
            each.field: each.form
            for each in reversed(form.operations)
            if each.field in {"key", "value"} and each.form not in {"raw", "auto"}
        }
        self._writer = TextWriter(
            form.operations,
            on_error=on_error,
            is_terminal=is_terminal,
            line_width=form.line_width,
            **({"block_bytes": _TERMINAL_BLOCK} if is_terminal else {}),
        )

    @property
    def nulled(self) -> int:
        """See `Sink`."""
        return self._writer.nulled

    @property
    def skipped(self) -> int:
        """See `Sink`."""
        return self._writer.skipped

    @property
    def is_pending(self) -> bool:
        """See `Sink`."""
        return len(self._writer) > 0

    def begin(self) -> None:
        """Write the heading."""
        self._output.write(self._form.begin)

    def put(self, rows: Slice, most: int | None, stopped: Callable[[], bool]) -> tuple[int, int]:
        """Write rows; a full block goes out at once."""
        writer = self._writer
        tp, index = rows.topic_partition, rows.index
        topic = tp.topic.encode()
        row, before = rows.start, writer.records
        left = -1 if most is None else most
        while row < rows.stop and left:
            written = writer.records
            row = writer.write(index, topic, tp.partition, row, rows.stop, left)
            left -= (writer.records - written) if left > 0 else 0
            if writer.bad is not None:
                raise undecodable(rows, *writer.bad, self._kinds)
            if row < rows.stop and left:
                self.flush()
                if stopped():
                    break
        return row - rows.start, writer.records - before

    def flush(self) -> None:
        """Write the block."""
        self._output.write(self._writer)
        self._writer.clear()

    def end(self) -> None:
        """Write the rest and the end of the format."""
        self.flush()
        self._output.write(self._form.end if self._writer.records else self._form.end_of_none)


class TableSink(TextSink):
    """Lays out all records at the end, when the widths of the columns are known."""

    def __init__(
        self, form: TextFormat, output: Output, options: TextOptions, on_error: str
    ) -> None:
        super().__init__(form, output, is_terminal=False, on_error=on_error)
        self._options = options
        self._lines: list[bytes] = []

    @property
    def is_pending(self) -> bool:
        """Return False: nothing is written before the end."""
        return False

    def flush(self) -> None:
        """Keep the block."""
        self._lines.append(bytes(self._writer))
        self._writer.clear()

    def end(self) -> None:
        """Write the table."""
        self.flush()
        self._output.write(table(b"".join(self._lines), self._options))


def text_sink(name: str, options: TextOptions, output: Output, on_error: str) -> TextSink:
    """Return the sink of a text format."""
    form = text_format(name, options)
    if name == TABLE:
        return TableSink(form, output, options, on_error)
    return TextSink(form, output, is_terminal=options.is_terminal, on_error=on_error)


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
    start, length = (memoryview(each).cast("i")[row] for each in (starts, lengths))
    if length <= 0:
        return None if length < 0 else b""
    return bytes(memoryview(index.data)[start : start + length])
