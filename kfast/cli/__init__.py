"""The command line, ``kfast`` or ``python -m kfast``: ``root`` and one module per command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, NoReturn

_INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; see ``kfast.cli.root``."""
    try:
        from kfast.cli.root import main as run  # noqa: PLC0415 - loads all of kfast

        return run(argv)
    except KeyboardInterrupt:  # while modules were imported
        return _INTERRUPTED
    except RuntimeError as error:  # likewise, while a class was made: ``__set_name__`` wraps it
        if isinstance(error.__cause__, KeyboardInterrupt):
            return _INTERRUPTED
        raise


def program() -> NoReturn:
    """Run the command of this process, and end the process with its status."""
    sys.exit(main())
