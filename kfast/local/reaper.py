"""Kills a LocalKafka's brokers when the program that started them has exited or was killed.

A script, run as a process of its own beside the brokers: ``python reaper.py PARENT FOLDER``,
with an empty FOLDER to remove nothing. It leads the brokers' process group and waits for the end of
its standard input, which only the program has open, or for that program to be no longer its parent.
Then it kills the group and removes the folder; a byte on its input means that this has been done
and makes it exit. Exit handlers are not enough, since the program may have been killed; and the
brokers' process ids are not used, since an id may by then belong to another process, while a group
keeps its id as long as it has a member.

Imports nothing of kfast: it is started without the package's dependencies.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

_CHECK_SECONDS = 2.0
_REMOVE_TRIES = 50


def main(parent: int, folder: str) -> None:
    """Wait for the end of the program ``parent``, then clean up after it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _CHECK_SECONDS)
        if readable:
            if os.read(0, 1):
                return
            break
    group = os.getpgrp()
    if os.fork() == 0:  # kills from outside the group, which contains this process itself
        os.setsid()
        os.killpg(group, signal.SIGKILL)
        _remove(folder)
        os._exit(0)
    signal.pause()


def _remove(folder: str) -> None:
    for _ in range(_REMOVE_TRIES if folder else 0):
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            return
        time.sleep(0.1)  # a killed broker may still be writing


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
