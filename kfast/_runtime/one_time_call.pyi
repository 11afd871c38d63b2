from collections.abc import Callable
from types import TracebackType
from typing import Self, final

@final
class OneTimeCall:
    @property
    def is_begun(self) -> bool: ...
    @property
    def is_running(self) -> bool: ...
    @property
    def error(self) -> BaseException | None: ...
    def run(self, function: Callable[..., object], *args: object) -> None: ...

@final
class CallDepth:
    @property
    def depth(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
