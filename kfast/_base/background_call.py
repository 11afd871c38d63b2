"""BackgroundCall: one call on a thread of its own, with its outcome.

Owns the thread for as long as the call takes. Begun and ended by the same thread; what the call
raises is raised by ``end``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.own_thread import OwnThread

if TYPE_CHECKING:
    from collections.abc import Callable


class BackgroundCall:
    """Starts a daemon thread of this name, which makes the call and drops what it returns.

    A call that hangs does not keep the interpreter alive.
    """

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = OwnThread(self._run, name)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the call has not ended."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Wait for the end of the call, with or without an error."""
        self._thread.join()

    def end(self) -> None:
        """Wait for the end of the call and raise what it raised, every time."""
        self.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # raised by `end`; a store of the user may exit
            self._error = error

    def __repr__(self) -> str:
        return f"<BackgroundCall {self._thread.name} {'running' if self.is_running else 'ended'}>"
