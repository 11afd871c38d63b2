"""``LocalRegistry``: a real schema registry on this machine, for development and tests.

Apicurio Registry (Apache-2.0), the one that the package registries have, in a process of its own on
loopback. Its files are in the cache beside Kafka's jars (``jars``); it needs Java 21. Schemas live
in memory and end with it. It is ready when our process says that it listens and ``/subjects`` is
answered with JSON: another program on its port may answer too. The process is ended by ``stop``,
when the object is collected, when the interpreter exits, and when the program is killed
(``reaper``).

Not thread-safe. A forked child must not use the object; its copy does nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError, IllegalStateError, LocalKafkaError
from kfast.local.jars import JarSet, Progress, resolve_jar_set
from kfast.local.java import find_java
from kfast.local.node import HOST, free_ports
from kfast.local.running import Reaper

logger = get_logger(__name__)

DEFAULT_VERSION: Final = "3.3.3"
MINIMUM_JAVA: Final = 21
PATH: Final = "/apis/ccompat/v7"
_RUNNER: Final = "quarkus-run.jar"
_CHECK_SECONDS: Final = 0.05
_ANSWER_SECONDS: Final = 5.0
_SHUTDOWN_SECONDS: Final = 10.0
_PORT_TRIES: Final = 3
_LISTENING: Final = "Listening on: "
_PORT_TAKEN: Final = "seems to be in use by another process"
_FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true")


def registry_files(version: str) -> JarSet:
    """Return the files of an Apicurio Registry."""
    return JarSet(
        f"apicurio-registry-{version}",
        f"Apicurio Registry {version}",
        "159 MB",
        (("io.apicurio", "apicurio-registry-app", version),),
        with_dependencies=False,
        classifier="all",
        landmark=_RUNNER,
    )


def resolve_registry(
    version: str = DEFAULT_VERSION, *, progress: Progress | None = None
) -> list[Path]:
    """Return the files of an Apicurio Registry, downloading them at the first use.

    Raises LocalKafkaError if they cannot be had; the message lists what was tried.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+(?:\.[A-Za-z0-9]+)?", version):
        raise ConfigurationError(
            f'version = "{version}": not a release of Apicurio Registry',
            hint=f'such as "{DEFAULT_VERSION}"',
        )
    return resolve_jar_set(registry_files(version), progress=progress)


class LocalRegistry:
    """A real schema registry in a process of this machine.

    Parameters
    ----------
    version : str
        Release of Apicurio Registry. It is downloaded at the first use (159 MB) and cached per
        user.
    heap : str
        Java's ``-Xmx``.
    port : int, optional
        Default: any free one.
    java_options : sequence of str
        Further options for its Java, such as ``-Dapicurio.ccompat.max-subjects=10``.
    startup_timeout_ms : int
        Longest time to start, without the download.
    progress : callable, optional
        Called with a short text when there is something to wait for.

    Raises
    ------
    LocalKafkaError
        When started: no Java 21, no files, or it did not start; the message has the end of its log.

    Notes
    -----
    It takes 3 to 5 s to start and 300 MB of memory. It answers Confluent's API; GUIDs and
    ``format=serialized`` it does not have.

    Examples
    --------
    >>> with kfast.LocalRegistry() as registry:
    ...     kfast.SchemaRegistry(registry.url).latest("orders-value")
    """

    def __init__(
        self,
        *,
        version: str = DEFAULT_VERSION,
        heap: str = "384m",
        port: int | None = None,
        java_options: Sequence[str] = (),
        startup_timeout_ms: int = 60_000,
        progress: Progress | None = None,
    ) -> None:
        self._version = version
        self._flags = (f"-Xmx{heap}", *_FLAGS, *java_options)
        self._port = port
        self._startup_timeout_ms = startup_timeout_ms
        self._progress = progress
        self._running: _Process | None = None
        self._end: Callable[[], object] = _nothing

    def start(self) -> Self:
        """Start the registry and wait until it answers.

        Returns
        -------
        LocalRegistry
            Itself.
        """
        if self._running is not None:
            raise IllegalStateError("this LocalRegistry runs already", hint="stop() it first")
        java = find_java(MINIMUM_JAVA, "Apicurio Registry")
        files = resolve_registry(self._version, progress=self._progress)
        runner = next(path for path in files if path.name == _RUNNER)
        for attempt in range(1, _PORT_TRIES + 1):
            port = self._port if self._port is not None else free_ports(1)[0]
            running = self._running = _Process(port)
            self._end = weakref.finalize(self, running.remove, os.getpid())
            try:
                running.spawn([str(java.path), *self._flags], runner)
                running.wait(self._startup_timeout_ms)
                return self
            except BaseException:
                is_taken = running.found_port_taken()
                self.stop()
                if not is_taken or self._port is not None or attempt == _PORT_TRIES:
                    raise
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Stop the registry; its schemas are gone."""
        self._end()
        self._end = _nothing
        self._running = None

    def __enter__(self) -> Self:
        return self.start() if self._running is None else self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL for `SchemaRegistry` and for clients of Confluent's registry."""
        return f"http://{HOST}:{self._state.port}{PATH}"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._state.pid

    def log_tail(self, lines: int = 40) -> str:
        """Return the end of its log."""
        return self._state.log_tail(lines)

    @property
    def _state(self) -> _Process:
        if self._running is None:
            raise IllegalStateError(
                "this LocalRegistry does not run",
                hint="call start(), or use it in a with statement",
            )
        return self._running

    def __repr__(self) -> str:
        state = "stopped" if self._running is None else self.url
        return f"<LocalRegistry {self._version} {state}>"


class _Process:
    """One run of a registry; has no reference to the ``LocalRegistry``."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._folder = Path(tempfile.mkdtemp(prefix="kfast-registry-"))
        self._reaper = Reaper(self._folder)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self, java: Sequence[str], runner: Path) -> None:
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *java,
                    f"-Dquarkus.http.host={HOST}",
                    f"-Dquarkus.http.port={self.port}",
                    # Otherwise on port 9000 of all interfaces.
                    f"-Dquarkus.management.host={HOST}",
                    "-Dquarkus.management.port=0",
                    *("-jar", str(runner)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                process_group=self._reaper.pid,
            )

    def wait(self, timeout_ms: int) -> None:
        """Wait until it answers; raises LocalKafkaError if it ends, or does not in time."""
        assert self._process is not None
        started = time.monotonic()
        while not self._answers():
            status = self._process.poll()
            if status is not None:
                raise LocalKafkaError(
                    f"Apicurio Registry ended while starting, with status {status}",
                    cause=f"the end of its log:\n{self.log_tail(20)}",
                )
            if time.monotonic() - started > timeout_ms / 1000:
                raise LocalKafkaError(
                    f"Apicurio Registry did not start in {timeout_ms / 1000:g} s",
                    cause=f"the end of its log:\n{self.log_tail(20)}",
                    hint="raise startup_timeout_ms",
                )
            time.sleep(_CHECK_SECONDS)
        logger.info("Apicurio Registry started in %.1f s", time.monotonic() - started)

    def _answers(self) -> bool:
        if _LISTENING not in self.log_tail(100):
            return False
        connection = http.client.HTTPConnection(HOST, self.port, timeout=_ANSWER_SECONDS)
        try:
            with contextlib.closing(connection):
                connection.request("GET", f"{PATH}/subjects")
                with connection.getresponse() as response:
                    return response.status == 200 and isinstance(json.loads(response.read()), list)
        except (OSError, ValueError, http.client.HTTPException):
            return False

    @property
    def _log_file(self) -> Path:
        return self._folder / "registry.log"

    def log_tail(self, lines: int) -> str:
        try:
            text = self._log_file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def found_port_taken(self) -> bool:
        return _PORT_TAKEN in self.log_tail(100)

    def remove(self, owner: int) -> None:
        """End the process and remove its folder; nothing if not in ``owner``."""
        if os.getpid() != owner:
            return
        if self._process is not None:
            self._process.kill()  # its schemas are in memory: there is nothing to save
            self._process.wait(_SHUTDOWN_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._reaper.end()


def _nothing() -> None:
    """Stand in for the end of what does not run."""
