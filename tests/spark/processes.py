"""The processes of a program under test."""

from __future__ import annotations

import contextlib
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


def java_in_session(leader: int) -> list[psutil.Process]:
    """Return the JVMs of a session; a process that ends meanwhile is none."""
    found = []
    for process in session_of(leader):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "java":
                found.append(process)
    return found
