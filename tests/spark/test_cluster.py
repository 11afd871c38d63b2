"""Q-06, Q-07: the guide from one machine to a cluster, followed, with an executor that is killed.

The job of ``docs/cluster.md`` is a batch query, a stream and an ingest. While the ingest writes its
first file, the process of a task kills the executor that has started it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from kfast.local.local_kafka import LocalKafka
from tests.class_archives import spark_java_options
from tests.document_examples import ROOT, examples
from tests.integration.kafka_writer import KafkaWriter
from tests.spark.clusters import CONF, environment, spark_home, standalone
from tests.spark.conftest import TopicFactory
from tests.spark.crashing import Death, dying_environment

pytest.importorskip("pyspark")
pytest.importorskip("venv_pack")
pq = pytest.importorskip("pyarrow.parquet")

COUNTS: Final = (4_000, 3_000)
"""Records of the partitions."""


@pytest.fixture
def readings(new_topic: TopicFactory, writer: KafkaWriter) -> str:
    """A topic with two partitions of records."""
    topic = new_topic(partitions=len(COUNTS))
    for number, count in enumerate(COUNTS):
        writer.write(topic, [b"%d" % n for n in range(count)], partition=number, codec="lz4")
    return topic


def submit(
    folder: Path, servers: str, topic: str, given: Mapping[str, str], *arguments: str
) -> str:
    """Run the guide's job with spark-submit in a folder; return what it prints."""
    (code,) = examples("docs/cluster.md", "The job")
    code = code.replace("localhost:9092", servers).replace('"readings"', f'"{topic}"')
    (folder / "job.py").write_text(code.replace("/shared", str(folder)))
    chosen = {**CONF, "spark.executor.extraJavaOptions": spark_java_options()}
    conf = [part for name, value in chosen.items() for part in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [str(spark_home() / "bin" / "spark-submit"), *conf, *arguments, "job.py"],
        cwd=folder,
        env=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def check_exact(folder: Path, printed: str) -> None:
    """Check that the batch query, the stream and the ingest had each record once."""
    assert f"{sum(COUNTS)} records" in printed
    for name in ("stream", "table"):
        check_table(folder / name)


def check_table(folder: Path) -> None:
    """Check that a table has each record once."""
    records = [(number, n, b"%d" % n) for number, count in enumerate(COUNTS) for n in range(count)]
    table = pq.read_table(folder, columns=["partition", "offset", "value"])
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == records


def pack(folder: Path) -> None:
    """Make the archive as the guide says, and unpack it on the driver.

    kfast is copied instead of being downloaded; `environment` has the path of the other packages.
    """
    (block,) = examples("docs/cluster.md", "The environment", "sh")
    for line in block.splitlines():
        program, *arguments = line.split()
        if program == "python3":
            arguments.append("--without-pip")
            program = sys.executable
        if program.endswith("/pip"):
            assert arguments == ["install", '"kfast[spark]"', "venv-pack"]
            packages = next((folder / "packed" / "lib").glob("python*/site-packages"))
            for package in ("kfast", "pyspark_kfast"):
                shutil.copytree(ROOT / package, packages / package)
            continue
        if program.endswith("/venv-pack"):
            program = str(Path(sys.executable).with_name("venv-pack"))
        subprocess.run([program, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_standalone_cluster_with_a_packed_environment(
    kafka: LocalKafka, readings: str, tmp_path: Path
) -> None:
    """Q-06, Q-07: exact, kfast comes with the archive, and an executor is killed meanwhile."""
    pack(tmp_path)
    death = Death("uuid4", "range_files", 1, victim="executor")
    given = environment(tmp_path)
    given |= dying_environment(tmp_path, death, given["PYTHONPATH"])
    (command,) = examples("docs/cluster.md", "The job", "sh")
    name, python = re.findall(r"export (\w+)=(\S+)", command)[0]
    (line,) = re.findall(r"^spark-submit --master (?:\S+) (.*) job\.py$", command, re.MULTILINE)
    given[name] = python
    with standalone(tmp_path, given) as url:
        printed = submit(
            tmp_path, kafka.bootstrap_servers, readings, given, "--master", url, *line.split()
        )
    check_exact(tmp_path, printed)
    log = (tmp_path / "master.log").read_text()
    assert "because it is EXITED" in log or "state EXITED" in log or "KILLED" in log, log[-3000:]


def test_spark_submit_runs_kfast_ingest(kafka: LocalKafka, readings: str, tmp_path: Path) -> None:
    """Q-06, J-04: the lines of ``docs/spark.md``, with the master and the settings of Spark's."""
    given = environment(tmp_path)
    given["PYTHONPATH"] = os.pathsep.join((str(ROOT), given["PYTHONPATH"]))
    (block,) = examples("docs/spark.md", "The ingest", "sh")
    conf = " ".join(f"--conf {name}={shlex.quote(value)}" for name, value in CONF.items())
    script = (
        block.replace("python3", sys.executable)
        .replace("spark://master:7077", f"'local[2]' {conf}")
        .replace("spark-submit", str(spark_home() / "bin" / "spark-submit"))
        .replace(" readings ", f" {readings} -b {kafka.bootstrap_servers} -f json ")
        .replace("/data/readings", str(tmp_path / "table"))
    )
    done = subprocess.run(
        ["/bin/sh", "-ec", script],
        cwd=tmp_path,
        env=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    # spark-submit writes what a program has on standard error to standard output, too.
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == sum(COUNTS)
    assert f"{tmp_path}/table: ingest of {readings} begins" in done.stdout
    check_table(tmp_path / "table")


def test_a_zip_of_kfast_is_refused_with_the_reason(tmp_path: Path) -> None:
    """Q-07: as it is imported where ``--py-files`` puts it."""
    archive = tmp_path / "kfast.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in (ROOT / "kfast").rglob("*.py"):
            packed.write(path, path.relative_to(ROOT))
    done = subprocess.run(
        [sys.executable, "-c", "import kfast.spark"],
        env={"PYTHONPATH": str(archive)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot be imported from a zip" in done.stderr
    assert "spark.archives" in done.stderr.splitlines()[-1]
