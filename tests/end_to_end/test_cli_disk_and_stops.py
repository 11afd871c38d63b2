"""``kfast read`` on a file system that is full, beyond a limit of file sizes, and after Ctrl-Z."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import cluster_of
from tests.installed import environment, program

PATIENCE_S: Final = 60.0
VALUE: Final = b"x" * 2_000
RECORDS: Final = 1_500
"""Three megabytes."""


def large_cluster() -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    cluster.append("t", 0, [VALUE] * RECORDS, batch_records=10)
    return cluster


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    with BrokerServer(large_cluster()) as running:
        yield running


# --- a disk that is full --------------------------------------------------------------------------

SCRIPT: Final = """
cd {folder}
{limit}
echo old > file.jsonl
{read} --output file.jsonl; echo "status $?"
cat file.jsonl; ls -A
{read} -f raw > raw; echo "status $?"
"""
TMPFS: Final = "mount -t tmpfs -o size=1m tmpfs . && cd {folder}"
"""Of the mount namespace of the script, which nothing else sees."""


def has_namespaces(folder: Path) -> bool:
    """Return whether this user may mount file systems in a namespace."""
    words = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    try:
        return subprocess.run(words, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def run_limited(
    folder: Path, server: BrokerServer, *, is_mounted: bool
) -> tuple[list[str], list[str]]:
    """Return the lines of the script and of standard error."""
    place = shlex.quote(str(folder))
    read = f"{shlex.join(program())} read t -b {server.bootstrap_servers}"
    limit = TMPFS.format(folder=place) if is_mounted else "ulimit -f 1000"
    script = SCRIPT.format(folder=place, limit=limit, read=read)
    before = ["unshare", "-rm"] if is_mounted else []
    done = subprocess.run(
        [*before, "sh", "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment(),
    )
    return done.stdout.splitlines(), done.stderr.splitlines()


@pytest.mark.parametrize("is_mounted", [True, False])
def test_output_that_does_not_fit(is_mounted: bool, server: BrokerServer, tmp_path: Path) -> None:
    """CL-243: exit code 7, the old file, and nothing left behind; also on standard output.

    On a file system of a megabyte, or where no namespace is allowed beyond the limit of a file.
    """
    is_mounted = is_mounted and has_namespaces(tmp_path)
    lines, errors = run_limited(tmp_path, server, is_mounted=is_mounted)
    assert lines == ["status 7", "old", "file.jsonl", "status 7"]
    reason = "No space left on device" if is_mounted else "File too large"
    assert errors[0] == f"kfast: cannot write file.jsonl: {reason}"
    assert errors[1].startswith("found: ")
    assert errors[1].endswith(" written")
    assert f"kfast: cannot write standard output: {reason}" in errors
    assert len(errors) <= 12


# --- Ctrl-Z ---------------------------------------------------------------------------------------


class Reader:
    """A read of topic t in a process group of its own, which writes offsets to a file."""

    def __init__(self, servers: str, output: Path, *words: str) -> None:
        self._output = output
        command = ["-m", "kfast", "read", "t", "-b", servers, "-f", "%o\\n", *words]
        with output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdout=out,
                stderr=subprocess.PIPE,
                process_group=0,
                env=environment(),
            )

    @property
    def offsets(self) -> list[int]:
        """Of the whole lines."""
        text = self._output.read_bytes()
        return [int(line) for line in text[: text.rfind(b"\n") + 1].split()]

    def wait_for(self, count: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while len(self.offsets) < count:
            assert time.monotonic() < end, f"{len(self.offsets)} of {count} records"
            time.sleep(0.01)

    def stop(self) -> None:
        """Send what Ctrl-Z sends, and wait until all threads stand still."""
        self.process.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def test_a_bounded_read_goes_on_after_ctrl_z(server: BrokerServer, tmp_path: Path) -> None:
    """CL-242: no record is lost or written twice."""
    few = ("-X", "max.partition.fetch.bytes=2000", "-X", "fetch.max.bytes=2000")
    reader = Reader(server.bootstrap_servers, tmp_path / "out", *few)
    fetches = server.cluster.requests
    assert fetches.wait_for(lambda log: len(log) > 20, PATIENCE_S)
    reader.stop()
    before = reader.offsets
    assert len(before) < RECORDS, "it was stopped in the middle"
    time.sleep(0.2)
    assert reader.offsets == before
    reader.go_on()
    assert reader.process.wait(PATIENCE_S) == 0
    assert reader.offsets == list(range(RECORDS))
    assert reader.process.stderr is not None
    assert reader.process.stderr.read() == b""
    reader.process.stderr.close()


def test_a_follow_goes_on_after_ctrl_z(tmp_path: Path) -> None:
    """CL-242: with what was written meanwhile, while the connections were closed, too."""
    cluster = cluster_of(1, 20)
    with BrokerServer(cluster) as running:
        reader = Reader(running.bootstrap_servers, tmp_path / "out", "--follow", "-o", "start")
        reader.wait_for(20)
        reader.stop()
        cluster.append("t", 0, [b"new"] * 15)
        cluster.close_connections()
        time.sleep(0.2)
        assert reader.offsets == list(range(20))
        reader.go_on()
        reader.wait_for(35)
        cluster.append("t", 0, [b"newer"])
        reader.wait_for(36)
        reader.process.send_signal(signal.SIGINT)
        assert reader.process.wait(PATIENCE_S) == 0
        assert reader.process.stderr is not None
        reader.process.stderr.close()
    assert reader.offsets == list(range(36))
