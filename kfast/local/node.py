"""LocalNode: one Kafka process of a LocalKafka, broker and controller in one.

Owns the process, its ports and its folder::

    <folder>/server.properties   written anew at every start
    <folder>/server.log          Kafka's output, appended
    <folder>/data/               Kafka's log.dirs, formatted once

A node is ready when Kafka prints ``Kafka Server started``: it is then unfenced and serves requests.
Ports are below the kernel's range for outgoing connections; else a client that keeps connecting to
a stopped broker would at some time get the broker's own port and connect to itself.

``ClassArchive`` owns Java class data sharing (CDS) archives, with which a JVM starts in half the
time: ``<main class>-<key>-<size>.jsa`` in the cache beside the jars, one per program, where the key
is a hash of the Java and the jars it was made with. A JVM maps its archive read-only.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfast.errors import LocalKafkaError
from kfast.local.jars import cache_folder
from kfast.local.java import Java

_SUFFIX: Final = ".jsa"
_QUIET: Final = "-Xlog:cds*=off"
"""A JVM ignores an archive that does not fit without a message."""


@dataclass(slots=True, frozen=True)
class ClassArchive:
    """The archive of one program, which may not exist."""

    java: Java
    jars: tuple[Path, ...]
    """The class path, or other files whose change invalidates the archive."""
    main_class: str

    def flags(self) -> tuple[str, ...]:
        """Return the options of a JVM that uses the archive; none if there is none."""
        path = self._find()
        return () if path is None else (f"-XX:SharedArchiveFile={path}", _QUIET)

    def make(self, run: Callable[[Sequence[str]], object]) -> bool:
        """Make the archive if there is none; return whether there is one now.

        ``run`` runs the program with further options until it exits normally.
        """
        if self._find() is not None:
            return True
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".archive-", dir=folder) as scratch:
            archive = Path(scratch) / f"made{_SUFFIX}"
            run((f"-XX:ArchiveClassesAtExit={archive}", _QUIET))
            if not archive.exists():  # not every Java supports it
                return False
            for old in folder.glob(f"{self.main_class}-*{_SUFFIX}"):
                old.unlink(missing_ok=True)
            archive.rename(folder / f"{self._name()}{archive.stat().st_size}{_SUFFIX}")
        return True

    def _find(self) -> Path | None:
        for path in cache_folder().glob(f"{self._name()}*{_SUFFIX}"):
            try:
                if path.stat().st_size == int(path.stem.rpartition("-")[2]):
                    return path
            except (OSError, ValueError):
                continue
        return None

    def _name(self) -> str:
        """Return the beginning of the file's name."""
        files = (self.java.path.resolve(), *self.jars)
        states = [(os.fspath(path), _state_of(path)) for path in files]
        key = hashlib.sha256(repr(states).encode()).hexdigest()[:16]
        return f"{self.main_class}-{key}-"


def _state_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


HOST: Final = "127.0.0.1"
_BOOTSTRAP: Final = "bootstrap.checkpoint"
_STARTED: Final = b"Kafka Server started"
_PORT_TAKEN: Final = b"Address already in use"
_LOWEST_PORT: Final = 15_000
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_EPHEMERAL: Final = 32_768

BROKER_FLAGS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
BROKER_CLASS: Final = "kafka.Kafka"
FORMATTER_CLASS: Final = "kafka.tools.StorageTool"
TOOL_FLAGS: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.logFile=System.out",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server=info",
    "-Dorg.slf4j.simpleLogger.log.kafka.log=info",
    "-Dorg.slf4j.simpleLogger.log.kafka.coordinator=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


@dataclass(slots=True, frozen=True)
class Runtime:
    """Java and class path of every process of one cluster."""

    java: Java
    jars: tuple[Path, ...]
    process_group: int
    """Of all of them, so that they can be killed together."""

    def command(self, flags: Sequence[str], main_class: str, *args: str) -> list[str]:
        """Return the command line of a Java program."""
        class_path = os.pathsep.join(map(str, self.jars))
        flags = (*self.archive(main_class).flags(), *flags)
        return [str(self.java.path), *flags, "-cp", class_path, main_class, *args]

    def archive(self, main_class: str) -> ClassArchive:
        """Return the archive of a Java program's classes."""
        return ClassArchive(self.java, self.jars, main_class)

    def run_tool(
        self, main_class: str, *args: str, stdin: str | None = None, timeout_ms: int = 60_000
    ) -> subprocess.CompletedProcess[str]:
        """Run a Java program to its end."""
        return subprocess.run(
            self.command(TOOL_FLAGS, main_class, *args),
            input=stdin or "",
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_ms / 1000,
            process_group=self.process_group,
        )


def random_uuid() -> str:
    """Return a random id in Kafka's notation: 16 bytes in base 64, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that nothing listens on at the moment."""
    try:
        highest = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        highest = _DEFAULT_EPHEMERAL
    low, high = (_LOWEST_PORT, highest) if highest > 2 * _LOWEST_PORT else (32_768, 60_000)
    ports: list[int] = []
    for port in random.sample(range(low, high), 500):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise LocalKafkaError(f"no free port on {HOST} between {low} and {high}")


class LocalNode:
    """A broker of a LocalKafka, in a folder of its own, which is made if missing.

    ``port`` is for clients of the PLAINTEXT listener, ``listeners`` has names and ports of further
    ones, ``controller_port`` is for the other controllers; ``flags`` are further options for Java,
    after the standard ones.
    """

    __slots__ = (
        "_flags",
        "_is_paused",
        "_listeners",
        "_log_start",
        "_process",
        "_runtime",
        "controller_port",
        "folder",
        "node_id",
        "port",
    )

    def __init__(
        self,
        node_id: int,
        folder: Path,
        *,
        port: int,
        controller_port: int,
        runtime: Runtime,
        flags: Sequence[str],
        listeners: Mapping[str, int] | None = None,
    ) -> None:
        self.node_id = node_id
        self.folder = folder
        self.port = port
        self.controller_port = controller_port
        self._listeners = {"PLAINTEXT": port, **(listeners or {})}
        self._runtime = runtime
        self._flags = (*BROKER_FLAGS, *flags)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._is_paused = False

    def __repr__(self) -> str:
        state = "paused" if self._is_paused else "running" if self.is_running else "stopped"
        return f"<LocalNode {self.node_id} {self.address} {state}>"

    @property
    def address(self) -> str:
        """``host:port`` for clients of the PLAINTEXT listener."""
        return f"{HOST}:{self.port}"

    def client_address(self, listener: str) -> tuple[str, int]:
        """Return the host and port of a listener."""
        return HOST, self._listeners[listener]

    @property
    def voter(self) -> str:
        """Entry of ``controller.quorum.voters``."""
        return f"{self.node_id}@{HOST}:{self.controller_port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process exists, also if it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        """Whether the process is suspended by ``pause``."""
        return self._is_paused and self.is_running

    @property
    def log_file(self) -> Path:
        """Where Kafka's output goes."""
        return self.folder / "server.log"

    def configure(self, config: Mapping[str, str]) -> None:
        """Write ``server.properties`` from ``config`` and the node's own settings."""
        clients = ",".join(f"{name}://{HOST}:{port}" for name, port in self._listeners.items())
        own = {
            "node.id": str(self.node_id),
            "listeners": f"{clients},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": clients,
            "log.dirs": str(self.folder / "data"),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={_escape(value)}\n" for key, value in {**config, **own}.items()]
        path = self.folder / "server.properties"
        with open(path, "w", encoding="ascii", opener=_open_private) as file:
            file.writelines(lines)

    def cluster_id(self) -> str | None:
        """Return the id of the cluster its data belongs to; None before it is formatted."""
        try:
            text = (self.folder / "data" / "meta.properties").read_text(encoding="utf-8")
        except OSError:
            return None
        match = re.search(r"^cluster\.id=(\S+)$", text, re.MULTILINE)
        return match.group(1) if match else None

    def format(self, cluster_id: str) -> None:
        """Prepare the data folder with Kafka's ``StorageTool``."""
        properties = str(self.folder / "server.properties")
        done = self._runtime.run_tool(
            FORMATTER_CLASS, "format", "--config", properties, "--cluster-id", cluster_id
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
            raise LocalKafkaError(
                f"Kafka cannot prepare {self.folder / 'data'}",
                cause=lines[-1] if lines else f"exit status {done.returncode}",
                node=self.node_id,
            )

    def format_like(self, other: LocalNode, cluster_id: str) -> None:
        """Prepare the data folder as ``StorageTool`` does, from that of a formatted node.

        The bootstrap features are the same for all nodes; ``meta.properties`` is each node's own.
        """
        data = self.folder / "data"
        data.mkdir(parents=True)
        shutil.copyfile(other.folder / "data" / _BOOTSTRAP, data / _BOOTSTRAP)
        own = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(self.node_id),
            "directory.id": random_uuid(),
        }
        text = "".join(f"{key}={value}\n" for key, value in own.items())
        (data / "meta.properties").write_text(text, encoding="ascii")

    def spawn(self) -> None:
        """Start the process; it can be used once ``is_ready``."""
        properties = str(self.folder / "server.properties")
        with self.log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._runtime.command((*self._flags, *_LOGGING), BROKER_CLASS, properties),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                process_group=self._runtime.process_group,
            )
        self._is_paused = False

    def is_ready(self) -> bool:
        """Return whether the broker started by the last ``spawn`` serves clients."""
        return _STARTED in self._log_since_spawn()

    def found_port_taken(self) -> bool:
        """Return whether the last ``spawn`` failed because another program has its port."""
        return _PORT_TAKEN in self._log_since_spawn()

    def _log_since_spawn(self) -> bytes:
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read()

    def log_tail(self, lines: int) -> str:
        """Return the end of Kafka's output."""
        try:
            text = self.log_file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self._end(signal.SIGKILL, timeout_ms=10_000)

    def begin_shutdown(self) -> None:
        """Begin a controlled shutdown, without waiting for it."""
        if self._process is not None and self.is_running:
            self.resume()
            self._process.terminate()

    def terminate(self, timeout_ms: int) -> None:
        """Shut Kafka down in a controlled way; kill it if that takes too long."""
        self.resume()
        self._end(signal.SIGTERM, timeout_ms)

    def _end(self, number: signal.Signals, timeout_ms: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._is_paused = False

    def pause(self) -> None:
        """Suspend the process: connections stay open and no response is sent."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGSTOP)
            # Its threads stop one after another: wait for the last, or for the process to end.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            self._is_paused = True

    def resume(self) -> None:
        """Resume a suspended process."""
        if self._process is not None and self.is_paused:
            self._process.send_signal(signal.SIGCONT)
            self._is_paused = False


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # users' passwords may be in it


def _escape(value: str) -> str:
    """Return a value as a properties file has it: in ASCII, characters of Java as escapes."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    text = re.sub(r"[^ -~]", _escape_character, text)
    return f"\\{text}" if text.startswith(" ") else text


def _escape_character(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
