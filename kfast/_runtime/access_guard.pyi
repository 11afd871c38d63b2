"""Types of the compiled module; behaviour and rules are documented in ``access_guard.pyx``."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import final

@final
class AccessGuard:
    @property
    def is_closed(self) -> bool: ...
    @property
    def is_forked(self) -> bool: ...
    @property
    def is_inside(self) -> bool: ...
    def close(self) -> None: ...
    def call_on_exit(self, action: Callable[[], object]) -> None: ...
    def __enter__(self) -> AccessGuard: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
