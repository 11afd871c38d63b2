"""How kfast's programs end: one exit status for every way.

Owns the statuses and the signal handler. Main thread only, since it handles SIGTERM.

| what ends it | status | on standard error |
|---|---|---|
| the end | 0 | |
| a ``KafkaError`` | 1 | its text |
| Ctrl-C | 130 | |
| SIGTERM, after everything started has been removed | 143 | |
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from kfast.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

_FAILED: Final = 1
_INTERRUPTED: Final = 130
_TERMINATED: Final = 143


def run_program(body: Callable[[], object]) -> int:
    """Run a program's body; return its exit status.

    Raises
    ------
    SystemExit
        SIGTERM came; what the body has started is removed on the way.
    """
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        body()
    except KafkaError as error:
        sys.stderr.write(f"{error}\n")
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, previous)
    return 0


def _terminate(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(_TERMINATED)
