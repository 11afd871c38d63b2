"""Python callables as deserializers, and the check of what a user passes as deserializer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kfast._base.signals import is_of_signal_handler
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.spans import object_array
from kfast.deserializers.deserializer import BadValue, DecodedColumn, Deserializer
from kfast.deserializers.numbers import Float32, Float64, Int32, Int64
from kfast.deserializers.struct import Struct
from kfast.deserializers.text import Utf8
from kfast.deserializers.uuid import Uuid
from kfast.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PerRecord:
    """Applies a Python callable to each value: the slow path.

    ``name`` names the code in errors; ``bind`` returns the function for one topic, which takes
    ``(headers, value)`` rather than ``(value)`` if ``takes_headers``.
    """

    name: str
    bind: Callable[[str], Callable[..., object]]
    takes_headers: bool = False

    def deserialize_column(
        self, column: BytesColumn, headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Call the function once per value that is not null."""
        function = self.bind(column.origin.topic if column.origin is not None else "")
        raw = column.to_list()
        arguments: list[tuple[Any, ...]]
        if self.takes_headers:
            rows = headers.to_list() if headers is not None else [[] for _ in raw]
            arguments = list(zip(rows, raw, strict=True))
        else:
            arguments = [(value,) for value in raw]
        values: list[object] = []
        first_bad, cause = -1, None
        is_bad: NDArray[np.bool_] | None = None
        for row, args in enumerate(arguments):
            if raw[row] is None:
                values.append(None)
                continue
            try:
                values.append(function(*args))
            except Exception as error:
                if is_of_signal_handler(error):
                    raise
                if is_bad is None:
                    first_bad, cause = row, error
                    is_bad = np.zeros(len(raw), np.bool_)
                is_bad[row] = True
                if stop_at_first:
                    values.extend([None] * (len(raw) - row))
                    break
                values.append(None)
        return DecodedColumn(object_array(values), first_bad, is_bad, cause)

    def explain(self, raw: bytes) -> BadValue:
        """Name the callable; the exception it raised is the error's cause."""
        return BadValue.of(f"cannot be read by {self.name}", raw)


_COLUMNAR: Final = (Utf8, Int32, Int64, Float32, Float64, Uuid, Struct)
_OWN: Final = (*_COLUMNAR, PerRecord)
_WITHOUT_HEADERS: Final = frozenset(_COLUMNAR)


def as_deserializer(deserializer: object) -> Deserializer | None:
    """Return the deserializer for what a user passed as ``key_`` or ``value_deserializer``.

    Parameters
    ----------
    deserializer : None, Deserializer, callable or object with ``deserialize``
        ``deserialize`` is called as ``(topic, bytes)``, or as ``(topic, headers, bytes)`` when it
        requires three arguments (kafka-python 3).

    Raises
    ------
    ConfigurationError
        It is none of these.
    """
    if deserializer is None:
        return None
    if isinstance(deserializer, _OWN):  # called for every chunk; the protocol check below is slow
        return deserializer
    if isinstance(deserializer, type) and hasattr(deserializer, "deserialize_column"):
        raise ConfigurationError(
            f"a deserializer must be an object, not the class {deserializer.__name__}",
            hint=f"write {deserializer.__name__}(...) instead of {deserializer.__name__}",
        )
    if isinstance(deserializer, Deserializer):
        return deserializer
    method = getattr(deserializer, "deserialize", None)
    if callable(method) and not isinstance(deserializer, type):
        takes_headers = _required_arguments(method) >= 3
        return PerRecord(
            type(deserializer).__name__, functools.partial(functools.partial, method), takes_headers
        )
    if callable(deserializer):
        function: Callable[..., object] = deserializer
        return PerRecord(
            getattr(deserializer, "__qualname__", repr(deserializer)), lambda _topic: function
        )
    raise ConfigurationError(
        f"{deserializer!r} is no deserializer",
        hint="give None, a kfast deserializer such as Utf8(), a callable of bytes, or an object "
        "with deserialize(topic, bytes)",
    )


def needs_headers(deserializer: Deserializer) -> bool:
    """Return whether the headers may matter to a deserializer: not to most of kfast's own."""
    declared = getattr(deserializer, "needs_headers", None)
    if declared is not None:
        return bool(declared)
    return type(deserializer) not in _WITHOUT_HEADERS


def _required_arguments(method: Callable[..., object]) -> int:
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return 2
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters)
