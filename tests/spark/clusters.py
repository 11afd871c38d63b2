"""Spark clusters on this machine: a standalone master and workers, started as the guide says."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kfast.local.spark import spark_environment
from tests.class_archives import spark_java_options
from tests.document_examples import examples
from tests.integration.support import until

CONF: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.ui.enabled": "false",
}
JAVA: Final = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
"""Variables that let Spark start sooner in tests."""

LOCALHOST: Final = ("127.0.0.1", "127.0.0.1")


@contextlib.contextmanager
def shell_program(command: str, log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run a command of a document meanwhile, with its children."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", command],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def spark_home() -> Path:
    """Return the folder of pyspark, which is a whole Spark."""
    import pyspark  # noqa: PLC0415 - takes a second

    return Path(pyspark.__file__).parent


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of Spark's programs, with all packages but kfast.

    That is installed for editing, which takes effect in folders that Python finds by itself only.
    """
    kept = ("PATH", "HOME", "TMPDIR", *JAVA)
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        **spark_environment(folder),
        "PYTHONPATH": sysconfig.get_paths()["purelib"],
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": spark_java_options(),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(folder / "work"),
    }


def _commands() -> tuple[str, str, str]:
    """Return the guide's lines: the setting of a variable, the master's, a worker's."""
    (block,) = examples("docs/cluster.md", "A standalone cluster", "sh")
    setting, master, worker = block.splitlines()
    return setting, master, worker


def _with(command: str, replacements: Mapping[str, str]) -> str:
    for old, new in replacements.items():
        assert old in command, old
        command = command.replace(old, new)
    return command


@contextlib.contextmanager
def standalone(
    folder: Path, given: Mapping[str, str], hosts: Sequence[str] = LOCALHOST
) -> Iterator[str]:
    """Run a master, and a worker with a core at each of some addresses; yield the master's URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    url = f"spark://127.0.0.1:{port}"
    setting, master, worker = _commands()
    given = {name: value for name, value in given.items() if name != "SPARK_HOME"}
    with contextlib.ExitStack() as stack:
        master = _with(
            master,
            {
                "--host master": "--host 127.0.0.1",
                "7077": port,
                "--webui-port 8080": "--webui-port 0",
            },
        )
        stack.enter_context(
            shell_program(f"{setting}\nexec {master}", folder / "master.log", given)
        )
        logs = [folder / f"worker-{number}.log" for number in range(len(hosts))]
        for log, host in zip(logs, hosts, strict=True):
            command = _with(
                worker,
                {
                    "--host worker-1": f"--host {host}",
                    "--cores 4 --memory 8g": "--cores 1 --memory 1g",
                    "--webui-port 8081": "--webui-port 0",
                    "spark://master:7077": url,
                },
            )
            variables = {**given, "SPARK_LOCAL_IP": host}
            stack.enter_context(shell_program(f"{setting}\nexec {command}", log, variables))
        until(
            lambda: all("Successfully registered" in log.read_text() for log in logs),
            f"{len(hosts)} workers",
            100,
        )
        yield url
