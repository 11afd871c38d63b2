"""A REST catalog of Apache Iceberg, a process of this machine: ``python -m`` this fetches its jars.

Nothing of it is of kfast. Servlet and adapter are those that Iceberg tests its own clients with
(the ``tests`` jar of ``iceberg-core``), the tables are in its ``JdbcCatalog``, Jetty serves them as
``iceberg_rest.xml`` says, and files are read with the Hadoop client that pyspark has. A server that
was killed goes on with the same tables at the same port.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kfast.local.jars import JarSet, resolve_jar_set
from kfast.local.java import find_java
from kfast.local.node import HOST, Runtime, free_ports
from kfast.local.running import Reaper
from tests.integration.support import QUICK_JAVA, until

JARS: Final = JarSet(
    "iceberg-rest-1.10.1",
    "Apache Iceberg's REST server 1.10.1",
    "32 MB",
    (
        ("org.apache.iceberg", "iceberg-core", "1.10.1"),
        ("org.apache.iceberg", "iceberg-core", "1.10.1", "tests"),
        ("org.eclipse.jetty", "jetty-servlet", "11.0.26"),
        ("org.eclipse.jetty", "jetty-xml", "11.0.26"),
        ("org.xerial", "sqlite-jdbc", "3.50.3.0"),
        ("org.slf4j", "slf4j-simple", "2.0.13"),
    ),
)
_MAIN_CLASS: Final = "org.eclipse.jetty.xml.XmlConfiguration"
_CONFIGURATION: Final = Path(__file__).with_name("iceberg_rest.xml")
_FLAGS: Final = (*QUICK_JAVA, "-XX:+UseSerialGC", "-Xmx256m")


class IcebergServer:
    """One server; its catalog, metadata of tables and log are in ``folder``, which stays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_ports(1)[0]
        jars = (*resolve_jar_set(JARS), *_hadoop_jars())
        java = find_java()
        self._reaper = Reaper(None)
        self._runtime = Runtime(java, jars, self._reaper.pid)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Start the process and wait until it answers."""
        flags = (
            *_FLAGS,
            f"-Dcatalog.port={self._port}",
            f"-Dcatalog.uri=jdbc:sqlite:{self._folder}/catalog.db",
            f"-Dcatalog.warehouse=file://{self._folder}/warehouse",
        )
        command = self._runtime.command(flags, _MAIN_CLASS, str(_CONFIGURATION))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                process_group=self._runtime.process_group,
            )
        until(self._answers, f"the Iceberg server answers; see {self._log}")

    def kill(self) -> None:
        """Kill the process (SIGKILL) and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End the process for good."""
        self.kill()
        self._reaper.end()

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"it has ended:\n{self._log.read_text()[-4000:]}"
        try:
            with closing(http.client.HTTPConnection(HOST, self._port, timeout=10)) as connection:
                connection.request("GET", "/v1/config")
                return connection.getresponse().status == 200
        except ConnectionError:
            return False


def _hadoop_jars() -> list[Path]:
    """Iceberg's classes for files are above Hadoop's."""
    spec = find_spec("pyspark")
    assert spec is not None, "the Iceberg server needs pyspark's jars"
    assert spec.origin is not None
    jars = sorted((Path(spec.origin).parent / "jars").glob("hadoop-client-*.jar"))
    assert len(jars) == 2, "the Iceberg server needs the Hadoop client of pyspark"
    return jars


@contextmanager
def iceberg_server(folder: Path) -> Iterator[IcebergServer]:
    """A server; its catalog is in a folder."""
    server = IcebergServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()


if __name__ == "__main__":
    sys.stdout.write(f"{len(resolve_jar_set(JARS))} jars\n")
