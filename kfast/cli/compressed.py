"""Text that is compressed on its way into a file: what ends in ``.gz`` or ``.zst``.

One stream per file. It is whole when `CompressedOutput.finish` has been called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kfast.cli.output import Output

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_GZIP: Final = 31
"""What zlib calls the format of gzip with the largest window."""
_LEVEL: Final = 3


class CompressedOutput(Output):
    """Compresses what another output gets."""

    def __init__(self, output: Output, ending: str) -> None:
        super().__init__(output.fileno(), output.name)
        self._compressor = _compressor(ending)
        self.is_replaced = output.is_replaced

    def write(self, data: ReadableBuffer, /) -> int:
        """Take everything; raises as an `Output`."""
        view = memoryview(data).cast("B")
        super().write(self._compressor.compress(view))
        return len(view)

    def finish(self) -> None:
        """Write the end of the stream."""
        super().write(self._compressor.flush())


def _compressor(ending: str) -> Any:
    if ending == ".gz":
        import zlib  # noqa: PLC0415 - for this ending only

        return zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    import zstandard  # noqa: PLC0415 - for this ending only

    return zstandard.ZstdCompressor(_LEVEL).compressobj()
