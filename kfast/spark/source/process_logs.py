"""Warnings of kfast in the logs of Spark's Python processes.

kfast writes no logs unless the program configures them; in the processes that Spark starts nothing
does, and what was lost or skipped would be seen nowhere. What they write to standard error is in
the logs of Spark's driver or executor.
"""

from __future__ import annotations

import logging


def log_to_stderr() -> None:
    """Write warnings to standard error, unless the process has handlers for them."""
    ours = logging.getLogger("kfast")
    handlers = [*logging.getLogger().handlers, *ours.handlers]
    if all(isinstance(handler, logging.NullHandler) for handler in handlers):
        handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        ours.addHandler(handler)
