"""The command line, ``kfast`` or ``python -m kfast``: ``root`` and one module per command."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

_OBJECTS: Final = 50_000
"""How many are made before garbage is looked for: importing makes many and leaves none."""
_INTERRUPTED: Final = 130
_STACK: Final = 16_000
"""Entries of a frame for which Python maps 256 KiB at once, of which it leaves half to the calls.

Otherwise frames lie in chunks of 16 KiB, which are mapped and unmapped by every call that does not
fit into the last one: 900 times while modules that import one another are loaded, or never, as it
happens.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; see ``kfast.cli.root``."""
    try:
        from kfast.cli.root import main as run  # noqa: PLC0415 - loads all of kfast

        return run(argv)
    except KeyboardInterrupt:  # while modules were imported
        return _INTERRUPTED


def program() -> NoReturn:
    """Run the command of this process, and end the process with its status."""
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's others wait on a processor
    statuses: list[int] = []
    atexit.register(_end, statuses)  # the first to be registered is the last to be called
    statuses.append(_with_room(main))
    sys.exit(statuses[0])


def _with_room(function: Callable[[], int]) -> int:
    return function()


_with_room.__code__ = _with_room.__code__.replace(co_stacksize=_STACK)


def _end(statuses: list[int]) -> None:
    """End the process without freeing modules and objects one by one, which takes 5 ms.

    Python has joined its threads and called the other functions of ``atexit``.
    """
    if statuses:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(statuses[0])
