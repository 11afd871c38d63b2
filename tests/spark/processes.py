"""The processes of a program under test."""

from __future__ import annotations

import os

import psutil


def session_of(leader: int) -> list[psutil.Process]:
    """Return the processes of the session that a program leads, those of Spark's workers too."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found
