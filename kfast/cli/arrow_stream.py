"""An Arrow stream whose batches are compressed on threads of their own, and written in order.

Compressing takes longer than reading and decoding together. pyarrow compresses the buffers of one
batch at once, and one of them has nearly all bytes. Application thread; the threads only encode.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kfast._base.ordered_calls import OrderedCalls

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from kfast.cli.output import Output

_PENDING_BYTES: Final = 16 << 20
"""Of batches that are not written: what is left to do when the reader has gone."""


class ArrowStream:
    """Writes the batches of tables; a context manager, whose end is that of the stream."""

    def __init__(self, pa: Any, output: Output, schema: Any, options: Any) -> None:
        self._pa = pa
        self._output = output
        self._schema = schema
        self._options = options
        self._writer = pa.ipc.new_stream(output, schema, options=options)
        self._has_inner_dictionaries = any(
            "dictionary<" in str(kind) for kind in schema.types if not pa.types.is_dictionary(kind)
        )
        self._dictionaries: list[Any] | None = None
        """Those that were written last."""
        self._encoding: OrderedCalls[memoryview] = OrderedCalls()

    def write_table(self, table: Any) -> None:
        """Write a table. A batch with other dictionaries than the one before it has them first."""
        for batch in table.to_batches():
            dictionaries = [
                column.dictionary
                for column in batch.columns
                if self._pa.types.is_dictionary(column.type)
            ]
            if self._has_inner_dictionaries or dictionaries != self._dictionaries:
                self._drain(0)
                self._writer.write_batch(batch)
                self._dictionaries = dictionaries
            else:
                self._encoding.submit(batch.nbytes, partial(self._encoded, batch))
                self._drain(_PENDING_BYTES)

    def _drain(self, most_bytes: int) -> None:
        """Write what is encoded, and wait until no more bytes than these are not."""
        for message in self._encoding.results(most_bytes):
            self._output.write(message)

    def _encoded(self, batch: Any) -> memoryview:
        """Return the message of a batch: a stream of its own without what comes before it."""
        into = self._pa.BufferOutputStream()
        with self._pa.ipc.new_stream(into, self._schema, options=self._options) as writer:
            writer.write_batch(batch.slice(0, 0))
            begin = into.tell()
            writer.write_batch(batch)
            end = into.tell()
        return memoryview(into.getvalue())[begin:end]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc_type is None:
                self._drain(0)
                self._writer.close()
        finally:
            self._encoding.close()
