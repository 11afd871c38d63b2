"""Q-11: a Python process of Spark that lacks kfast, or has another one, is named with the fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from kfast.errors import ConfigurationError, MissingDependencyError
from kfast.local.spark import spark_java_home
from kfast.spark.source.worker_check import explain_failure, explain_processes
from tests.document_examples import ROOT
from tests.spark.support import options

pytest.importorskip("pyspark")

PACKAGES = Path(sysconfig.get_paths()["purelib"])


def interpreter(folder: Path, *packages: Path) -> Path:
    """Make an environment with these packages and no others; return its interpreter."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=100
    )
    site = next((folder / "lib").glob("python*/site-packages"))
    for package in packages:
        (site / package.name).symlink_to(package)
    return folder / "bin" / "python"


def without_kfast(folder: Path) -> Path:
    """Make an environment with pyspark and pyarrow only."""
    return interpreter(folder, *(PACKAGES / name for name in ("pyspark", "py4j", "pyarrow")))


UNPICKLE = """
import pickle, sys
thing = pickle.loads(bytes.fromhex(sys.stdin.read()))
print(thing.schema())
"""


def error_of(python: Path, thing: object, folder: Path) -> str:
    """Return what a process prints at its end that unpickles and uses something."""
    from pyspark import cloudpickle  # noqa: PLC0415 - imported lazily

    done = subprocess.run(
        [str(python), "-W", "ignore", "-c", UNPICKLE],
        input=cloudpickle.dumps(thing).hex(),
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 1, done.stdout
    return str(done.stderr[done.stderr.rindex("ImportError") :])


def test_sources_and_readers_name_the_process_that_has_no_kfast(tmp_path: Path) -> None:
    """Q-11: also where an executor joins after an ingest has begun."""
    from kfast.spark import KafkaDataSource  # noqa: PLC0415 - needs pyspark
    from kfast.spark.source.batch_reader import KafkaBatchReader  # noqa: PLC0415
    from kfast.spark.source.stream_reader import KafkaStreamReader  # noqa: PLC0415
    from kfast.spark.source.worker_check import checked_source  # noqa: PLC0415

    python = without_kfast(tmp_path / "bare")
    projection: Any = None
    for thing in (
        checked_source(KafkaDataSource)({}),
        KafkaBatchReader(options(), projection),
        KafkaStreamReader(options(is_stream=True), projection),
    ):
        text = error_of(python, thing, tmp_path)
        assert "this Python process of Spark cannot import kfast" in text
        assert "cause: No module named 'kfast'" in text
        assert f"found: {python} on {os.uname().nodename}: Python {sys.version_info[0]}." in text
        assert "PYSPARK_PYTHON" in text


def test_a_kfast_that_does_not_have_the_class_is_named(tmp_path: Path) -> None:
    """Q-11: it is another version's."""
    from kfast.spark import KafkaDataSource  # noqa: PLC0415 - needs pyspark
    from kfast.spark.source.worker_check import checked_source  # noqa: PLC0415

    other = other_kfast(tmp_path)
    python = interpreter(tmp_path / "other", PACKAGES / "pyspark", PACKAGES / "py4j", other)
    text = error_of(python, checked_source(KafkaDataSource)({}), tmp_path)
    assert "has another kfast than the one that started the query" in text
    assert "kfast 9.9.9, no pyarrow" in text


def other_kfast(folder: Path) -> Path:
    """Write a kfast of another version; return its folder."""
    package = folder / "elsewhere" / "kfast"
    (package / "_native").mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "9.9.9"\n')
    for name in ("__init__", "fetch_response"):
        (package / "_native" / f"{name}.py").touch()
    return package


CHECKS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import json, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
import kfast.spark
from kfast.errors import KafkaError
if kfast.__version__ == "0.0.0":  # a tree that was never installed is like every version
    kfast.__version__ = "1.0.0"
from kfast.spark.source.worker_check import check_workers

folder, conf, *interpreters = sys.argv[1:]
builder = SparkSession.builder
for name, value in json.loads(conf).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
lines = []
for spark.sparkContext.pythonExec in interpreters:
    try:
        kfast.spark.ingest(
            spark,
            bootstrap_servers="127.0.0.1:9",
            topics="t",
            output=folder + "/table",
            checkpoint=folder + "/checkpoint",
        )
    except KafkaError as error:
        lines.append([type(error).__name__, str(error)])
spark.sparkContext.pythonExec = interpreters[0]
kfast.spark.register(spark)
try:
    spark.read.format("kfast").option("subscribe", "t").load()
except Exception as error:
    lines.append([type(error).__name__, str(error)])
spark.sparkContext.pythonExec = sys.executable
import os
os.environ["PYTHONPATH"] = {str(ROOT)!r}
spark.sparkContext.environment["PYTHONPATH"] = {str(ROOT)!r}
for _ in range(2):
    check_workers(spark)
print(json.dumps(lines))
spark.stop()
"""


def test_an_ingest_checks_the_workers_before_it_begins(tmp_path: Path) -> None:
    """Q-11: neither table nor checkpoint is made."""
    compiled = [ROOT / "kfast", ROOT / "pyspark_kfast", PACKAGES / "numpy"]
    other = other_kfast(tmp_path)
    spark_packages = [PACKAGES / "pyspark", PACKAGES / "py4j"]
    interpreters = [
        without_kfast(tmp_path / "bare"),
        interpreter(tmp_path / "no-arrow", *spark_packages, *compiled),
        interpreter(tmp_path / "other", *spark_packages, PACKAGES / "pyarrow", other),
        tmp_path / "nowhere" / "python",
    ]
    conf = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.log.level": "OFF",
    }
    done = subprocess.run(
        [sys.executable, "-c", CHECKS, str(tmp_path), json.dumps(conf), *interpreters],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "JAVA_HOME": str(spark_java_home(tmp_path / "java")),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    lines = json.loads(done.stdout.splitlines()[-1])
    kinds, texts = zip(*lines, strict=True)
    assert kinds[:2] == ("MissingDependencyError",) * 2
    assert texts[0].startswith(
        "Spark's workers cannot import kfast\ncause: No module named 'kfast'"
    )
    assert f"found: {interpreters[0]} on {os.uname().nodename}: Python" in texts[0]
    assert "try: install kfast[spark] of the driver's version" in texts[0]
    assert texts[1].startswith("Spark's workers cannot import pyarrow\nfound: ")
    assert kinds[2] == kinds[3] == "ConfigurationError"
    assert "another version of kfast than the driver" in texts[2]
    assert "kfast 9.9.9" in texts[2]
    assert texts[3].startswith("Spark's workers cannot start their Python")
    assert f'Cannot run program "{interpreters[3]}"' in texts[3]
    assert "this Python process of Spark cannot import kfast" in texts[4]
    assert not (tmp_path / "table").exists()
    assert not (tmp_path / "checkpoint").exists()


def process(**more: str) -> dict[str, str]:
    """Describe a worker."""
    like = {"host": "n1", "executable": "/p", "python": "3.11.7", "kfast": "1", "pyarrow": "x"}
    return {**like, "error": "", **more}


def test_workers_like_the_driver_pass() -> None:
    """Q-11: so do those that were copied, which have no version."""
    assert explain_processes([process(), process(host="n2")], "1") is None
    assert explain_processes([process(kfast="0.0.0")], "1") is None
    assert explain_processes([process()], "0.0.0") is None


def test_the_first_hosts_are_named() -> None:
    """Q-11: of many with the same trouble."""
    bad = [process(host=f"n{number}", kfast="", error="no") for number in range(9)]
    error = explain_processes([process(host="good"), *bad], "1")
    assert isinstance(error, MissingDependencyError)
    assert "n0" in str(error)
    assert str(error.found).endswith("and 6 more")
    assert "good" not in str(error)


def test_failures_of_other_kinds_are_not_explained() -> None:
    """Q-11: another version of Python is, in pyspark's own words."""
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - imported lazily

    versions = {"worker_version": "3.11", "driver_version": "3.12"}
    text = str(
        PySparkRuntimeError(errorClass="PYTHON_VERSION_MISMATCH", messageParameters=versions)
    )
    error = explain_failure(f"org.apache.spark.SparkException: Job aborted\n{text}\n\tat a.b(c:1)")
    assert isinstance(error, ConfigurationError)
    assert "another version of Python" in error.message
    assert "3.12" in str(error.cause)
    assert explain_failure("Job aborted: executor lost") is None
