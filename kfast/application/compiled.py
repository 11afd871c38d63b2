"""The modules of the consumer that have to be compiled, and the check that they are.

They are written in Python, and would be imported as such if their compiled form were missing. Then
an exception of a signal handler could leave their state between two changes.
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

COMPILED: Final = (
    "kfast.consumer.subscription",
    "kfast.consumer.read_offsets",
    "kfast.consumer.topic_partition_state",
    "kfast.consumer.partition_states",
    "kfast.consumer.subscription_state",
    "kfast.consumer.application_wakeup",
    "kfast.consumer.error_mailbox",
    "kfast.consumer.fetch.completed_fetch",
    "kfast.consumer.fetch.decode_queue",
    "kfast.consumer.fetch.memory_gate",
    "kfast.consumer.fetch.decode_scheduler",
    "kfast.consumer.fetch.buffer",
    "kfast.consumer.fetch.collector",
    "kfast.application.rests",
)
"""Those of ``setup.py``."""


def check_compiled() -> None:
    """Raise if one of the modules is imported as bytecode."""
    for name in COMPILED:
        path = str(sys.modules[name].__file__)
        if not path.endswith(tuple(EXTENSION_SUFFIXES)):
            raise ImportError(
                f"{name} is not compiled: install kfast again, or run `make build` in a checkout",
                name=name,
                path=path,
            )
