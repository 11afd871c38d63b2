"""OwnThread: a thread of kfast, which no log handler or filter of the program can end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kfast._base.logs import enter_own_thread

if TYPE_CHECKING:
    from collections.abc import Callable


class OwnThread(threading.Thread):
    """A daemon thread, which does not keep the interpreter alive."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)

    def run(self) -> None:
        """Run the target."""
        enter_own_thread()
        super().run()
