"""The command line, ``kfast`` or ``python -m kfast``: ``root`` and one module per command."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Final

_OBJECTS: Final = 50_000
"""How many are made before garbage is looked for: importing makes many and leaves none."""
_INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; see ``kfast.cli.root``."""
    thresholds = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *thresholds[1:])
    try:
        from kfast.cli.root import main as run  # noqa: PLC0415 - loads all of kfast

        return run(argv)
    except KeyboardInterrupt:  # while modules were imported
        return _INTERRUPTED
    finally:
        gc.set_threshold(*thresholds)
        if argv is None:  # the process ends: what is left need not be looked through once more
            gc.freeze()
