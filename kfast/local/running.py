"""Running: the processes of a LocalKafka and their folder, and how they are removed.

Has no reference to the ``LocalKafka``, whose finalizer calls ``remove``. `Reaper` serves other
programs too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from kfast.local import reaper
from kfast.local.node import LocalNode, Runtime
from kfast.local.security import LocalSecurity

SHUTDOWN_TIMEOUT_MS: Final = 30_000


class Reaper:
    """The process that kills a group of processes when this program has ended; see ``reaper``.

    Its ``pid`` is the id of the process group. ``folder`` is removed too, if it is one.
    """

    def __init__(self, folder: Path | None) -> None:
        parent = str(os.getpid())
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__, parent, "" if folder is None else folder],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        self.pid = self._process.pid

    def end(self) -> None:
        """End it, after the group has been ended."""
        assert self._process.stdin is not None
        try:
            with self._process.stdin as pipe:
                pipe.write(b"q")
        except OSError:
            pass  # it has exited already
        self._process.wait()


class Running:
    """One run: from its folder, made here or given as ``log_dir``, to ``remove``."""

    def __init__(self, log_dir: Path | None, security: LocalSecurity) -> None:
        self.nodes: dict[int, LocalNode] = {}
        self.runtime: Runtime | None = None
        self._security = security
        self._is_temporary = log_dir is None
        self.folder = log_dir or Path(tempfile.mkdtemp(prefix="kfast-kafka-"))
        self.reaper = Reaper(self.folder if self._is_temporary else None)

    def remove(self, owner: int) -> None:
        """Stop every process and remove the temporary folder; nothing if not in ``owner``."""
        if os.getpid() != owner:
            return
        nodes = self.nodes.values()
        if not self._is_temporary:
            for node in nodes:  # all at once: the last one would lose the quorum
                node.begin_shutdown()
            for node in nodes:
                node.terminate(SHUTDOWN_TIMEOUT_MS)
        for node in nodes:
            node.kill()
        self._security.stop()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.reaper.end()
