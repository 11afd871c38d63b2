"""The command line, ``kfast`` or ``python -m kfast``: ``root`` and one module per command."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; see ``kfast.cli.root``."""
    from kfast.cli.root import main as run  # noqa: PLC0415 - loads all of kfast

    return run(argv)
