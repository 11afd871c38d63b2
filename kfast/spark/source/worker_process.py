"""What a Python worker of Spark's does once in its life.

Spark collects garbage after each task: some 40 ms over the objects of modules, which live as long
as the process, and longer than a small task has taken. They are taken out of it when the first task
is done, by which time all modules are there.
"""

from __future__ import annotations

import functools
import gc
import os


def settle_process() -> None:
    """Collect garbage, and let no later collection look at what is left; once per process."""
    _settle(os.getpid())


@functools.cache
def _settle(_: int) -> None:
    gc.collect()
    gc.freeze()
