"""``kfast read`` as processes: signals at any moment, killed writers, readers that go, terminals.

One process has imported the command line and forks for each run, which saves starting an
interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
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
from tests.soaking import soaking

RECORDS: Final = 4_000
PATIENCE_S: Final = 60.0
SIGNALS: Final = soaking(20, 200)
KILLS: Final = soaking(20, 100)
"""At moments that are drawn."""

FORKS: Final = """
import json, os, sys
import kfast.cli.root, kfast.cli.run, kfast.cli.read
from kfast.cli import main
for line in sys.stdin:
    words, output = json.loads(line)
    pid = os.fork()
    if not pid:
        for fd in (1, 2):
            os.dup2(os.open(output + "." + str(fd), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
        try:
            status = main(words)
        except SystemExit as ended:
            status = ended.code
        os._exit(status)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Forks:
    """Runs commands with signals at given moments."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers = servers
        self._output = folder / "output"
        self._process = subprocess.Popen(
            [sys.executable, "-c", FORKS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, after_s: float = 0, number: int | None = None) -> tuple[int, float]:
        """Return the exit status of ``kfast read``, and the seconds after the signal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for stream in (".1", ".2"):  # a signal may come before the process has opened them
            self._output.with_suffix(stream).write_bytes(b"")
        line = json.dumps([["read", "-b", self._servers, *words], str(self._output)])
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        started = time.monotonic()
        if number is not None:
            time.sleep(after_s)
            started = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        status = int(self._process.stdout.readline())
        return status, time.monotonic() - started

    @property
    def out(self) -> bytes:
        return self._output.with_suffix(".1").read_bytes()

    @property
    def error(self) -> bytes:
        return self._output.with_suffix(".2").read_bytes()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def server() -> Iterator[BrokerServer]:
    server = BrokerServer(cluster_of(1, RECORDS, batch_records=100))
    with server:
        yield server


@pytest.fixture
def forks(server: BrokerServer, tmp_path: Path) -> Iterator[Forks]:
    forks = Forks(server.bootstrap_servers, tmp_path)
    yield forks
    forks.close()


@pytest.mark.soak
def test_a_signal_at_any_moment_leaves_whole_records(forks: Forks) -> None:
    """CL-53: whenever Ctrl-C comes, standard output ends with a whole record and the status is 130.

    The read has a few bytes per fetch, so that most moments are in its middle.
    """
    slow = ("t", "-X", "max.partition.fetch.bytes=2000", "-X", "fetch.max.bytes=2000")
    chooser = random.Random(5)
    _, whole_s = forks.run(*slow)
    whole = forks.out
    assert whole.count(b"\n") == RECORDS
    ended = []
    for _ in range(SIGNALS):
        number = chooser.choice((signal.SIGINT, signal.SIGINT, signal.SIGTERM))
        status, seconds = forks.run(*slow, after_s=chooser.random() * whole_s, number=number)
        assert seconds < PATIENCE_S
        # Before the command has begun, Python does what it always does.
        assert status in {0, 128 + number} or (status, forks.out) == (-number, b""), forks.error
        assert whole.startswith(forks.out)
        assert not forks.out or forks.out.endswith(b"\n")
        ended.append(status)
    assert ended.count(0) < SIGNALS * 4 // 5


@pytest.mark.soak
def test_a_killed_process_leaves_nothing(forks: Forks, tmp_path: Path) -> None:
    """CL-54: a process that is killed at any moment leaves the old file, or the whole new one."""
    folder = tmp_path / "files"
    folder.mkdir()
    target = folder / "t.jsonl"
    target.write_bytes(b"old\n")
    words = ("t", "--output", str(target))
    chooser = random.Random(7)
    _, whole_s = forks.run(*words)
    whole = target.read_bytes()
    for _ in range(KILLS):
        target.write_bytes(b"old\n")
        status, _ = forks.run(*words, after_s=chooser.random() * whole_s, number=signal.SIGKILL)
        assert status in {0, -signal.SIGKILL}
        assert target.read_bytes() in ({b"old\n", whole} if status else {whole})
        # Linux replaces a file by one without a name in two steps: a kill between them leaves the
        # complete file, which the next run removes.
        for path in folder.glob(".t.jsonl.*.part"):
            assert status
            assert path.read_bytes() == whole
            assert forks.run(*words)[0] == 0
        assert [path.name for path in folder.iterdir()] == ["t.jsonl"]


def test_a_reader_that_goes_ends_the_command_without_a_word(server: BrokerServer) -> None:
    """CL-55: ``kfast read | head`` ends with status 0 and an empty standard error."""
    command = [sys.executable, "-m", "kfast", "read", "t", "-b", server.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"{")
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_second_ctrl_c_ends_at_once(server: BrokerServer) -> None:
    """CL-59: the first one waits for the reader of the pipe, which takes no whole record."""
    command = [sys.executable, "-m", "kfast", "read", "t", "-b", server.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"{"
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130


def test_a_terminal_gets_a_table_without_controls() -> None:
    """CL-56: on a terminal a read is a table of 10 records, cut to its width, without controls."""
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    cluster.append("t", 0, [b"\x1b[31m\x07 \xe2\x80\xae" + b"long " * 40] * 12)
    server = BrokerServer(cluster)
    with server:
        pid, fd = pty.fork()
        if not pid:
            os.environ["COLUMNS"] = "60"
            words = ["-m", "kfast", "read", "t", "-b", server.bootstrap_servers]
            os.execv(sys.executable, [sys.executable, *words])
        shown = b""
        with contextlib.suppress(OSError):  # what a closed terminal gives
            while data := os.read(fd, 1 << 16):
                shown += data
        os.close(fd)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    lines = shown.decode().splitlines()
    assert lines[0].split()[:2] == ["topic", "partition"]
    assert len([line for line in lines if "\\x1b[" in line]) == 10
    assert all(len(line) <= 60 for line in lines[:11])
    assert not {"\x1b", "\x07", "\u202e"} & set(shown.decode())
    assert lines[-1] == "the first 10 records; -n N shows more, -f jsonl all"


def test_progress_goes_to_the_terminal_and_data_to_the_pipe(server: BrokerServer) -> None:
    """CL-57: one line that is drawn over, gone when Ctrl-C is pressed; then the summary."""
    reader, writer = os.pipe()
    pid, fd = pty.fork()
    if not pid:
        os.dup2(writer, 1)
        words = ["-m", "kfast", "read", "t", "-p", "0", "--follow", "-f", "raw"]
        os.execv(sys.executable, [sys.executable, *words, "-b", server.bootstrap_servers])
    os.close(writer)
    shown = b""
    while b"lag 0" not in shown:
        shown += os.read(fd, 1 << 16)
    os.write(fd, b"\x03")
    with contextlib.suppress(OSError):  # what a closed terminal gives
        while data := os.read(fd, 1 << 16):
            shown += data
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with open(reader, "rb") as pipe:
        lines = pipe.read().splitlines()
    assert lines == [b"0-%d" % number for number in range(RECORDS - 10, RECORDS)]
    assert b"\n" not in shown[: shown.rindex(b"lag 0")]
    _, cleared, summary = shown.rpartition(b"\r\x1b[K")
    assert cleared
    assert summary.startswith(b"t: 10 records, ")
    assert summary.endswith(b"/s\r\n")


PROGRAM: Final = """
import atexit, threading, time
import kfast.cli, kfast.cli.root
def main(argv):
    atexit.register(print, "of atexit", end="")
    threading.Thread(target=lambda: (time.sleep(0.1), print("thread "))).start()
    print("output", end=" ")
    return STATUS
kfast.cli.root.main = main
kfast.cli.program()
"""


@pytest.mark.parametrize(("status", "expected"), [("7", 7), ("0", 0), ("1 / 0", 1)])
def test_a_process_ends_with_everything_done(status: str, expected: int) -> None:
    """Its threads, the functions of `atexit` and what is buffered; an error has its traceback."""
    program = PROGRAM.replace("STATUS", status)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (expected, "output thread \nof atexit")
    assert ("ZeroDivisionError" in done.stderr) == (expected == 1)
