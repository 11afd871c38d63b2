"""Secret: a password, key or token that is never shown.

Owns the rule that a secret is visible only where it is used: ``reveal`` is called by the code that
builds the message with it, and nowhere else. ``repr``, ``str`` and ``format`` give ``<secret>``, so
that log lines, messages of exceptions and local variables in a traceback contain nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T", str, bytes)

HIDDEN = "<secret>"


class Secret(Generic[T]):
    """A text or bytes that must not be shown, or a callable of the user's that returns it.

    A callable is asked by every ``reveal``, so that a password can be replaced while a consumer
    runs. It is user code: it may raise or block.
    """

    __slots__ = ("source",)

    def __init__(self, source: T | Callable[[], T]) -> None:
        self.source: T | Callable[[], T] = source
        """What it was made of: the secret itself, or the callable."""

    @property
    def is_callable(self) -> bool:
        """Whether ``reveal`` runs code of the user's, which the network thread must not."""
        return callable(self.source)

    def reveal(self) -> T:
        """Return the secret itself."""
        source = self.source
        return source if isinstance(source, str | bytes) else source()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        mine, theirs = self.source, other.source
        if callable(mine) or callable(theirs):
            return mine is theirs
        return type(mine) is type(theirs) and _is_same(mine, theirs)

    def __hash__(self) -> int:
        return hash((Secret, self.source))  # keyed per process

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled; a ConsumerConfig is, with its secrets")


def _is_same(mine: str | bytes, theirs: str | bytes) -> bool:
    # It loads OpenSSL, which a consumer without secrets does without.
    from hmac import compare_digest  # noqa: PLC0415

    return compare_digest(_encoded(mine), _encoded(theirs))


def _encoded(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
