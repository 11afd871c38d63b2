"""``kfast`` as the installed program: streams that are closed, readers that go, shells."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator

import pytest

from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import cluster_of
from tests.installed import environment, program

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    with BrokerServer(cluster_of(1, 20)) as running:
        yield running


def in_shell(
    words: str, server: BrokerServer, redirections: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with redirections of the shell."""
    line = f"exec {shlex.join(program())} {words} -b {server.bootstrap_servers} {redirections}"
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, check=False, timeout=60, env=environment()
    )


@pytest.mark.parametrize("words", ["read t", "topics"])
def test_closed_standard_output_is_no_socket(words: str, server: BrokerServer) -> None:
    """CL-230: nothing is written to what is opened next; the exit code is 7."""
    done = in_shell(words, server, ">&-")
    assert done.stderr == b"kfast: cannot write standard output: Bad file descriptor\n"
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("words", "redirections", "status"),
    [
        ("read t -f raw", "<&- 2>&-", 0),
        ("read none -f raw", "2>&-", 5),
        ("read t -v -f raw", "2>/dev/full", 0),
        ("read none -f raw", "2>/dev/full", 5),
    ],
)
def test_closed_standard_input_and_error(
    words: str, redirections: str, status: int, server: BrokerServer
) -> None:
    """CL-230: the data and the status are those of any other run."""
    done = in_shell(words, server, redirections)
    assert (done.returncode, done.stderr) == (status, b"")
    lines = [b"0-%d" % number for number in range(20)]
    assert done.stdout.splitlines() == ([] if status else lines)


def test_a_full_disk_of_an_administrative_command(server: BrokerServer) -> None:
    """CL-230: exit code 7."""
    done = in_shell("topics", server, "> /dev/full")
    assert done.stderr == b"kfast: cannot write standard output: No space left on device\n"
    assert done.returncode == 7


def test_a_reader_that_goes_ends_a_read_that_waits(server: BrokerServer) -> None:
    """CL-231: although no record comes that could not be written."""
    command = [*program(), "read", "t", "--follow", "-f", "raw", "-b", server.bootstrap_servers]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(10)][-1] == b"0-19\n"
        assert process.poll() is None
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
