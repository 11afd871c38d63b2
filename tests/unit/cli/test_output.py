"""Where a command writes: files are replaced as a whole, anything else is written in place."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from kfast.cli import output
from kfast.cli.output import Output, OutputError, open_messages, open_output


def write(path: Path | str, data: bytes = b"new") -> None:
    with open_output(str(path)) as out:
        out.write(data)


def write_half(path: Path) -> None:
    with open_output(str(path)) as out:
        out.write(b"half")
        raise KeyboardInterrupt


@pytest.fixture(params=["unnamed files", "named files"])
def _kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``O_TMPFILE`` be refused, as by file systems without it."""
    if request.param == "named files":
        real = os.open

        def refuse(path: str | Path, flags: int, *args: int) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return real(path, flags, *args)

        monkeypatch.setattr(os, "open", refuse)


@pytest.mark.usefixtures("_kind")
def test_a_file_is_seen_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_bytes(b"old")
    with open_output(str(target)) as out:
        out.write(b"ne")
        assert target.read_bytes() == b"old"
        out.write(b"w")
    assert target.read_bytes() == b"new"
    assert [*tmp_path.iterdir()] == [target]


@pytest.mark.usefixtures("_kind")
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_bytes(b"old")
    for name in ("out.csv", "new.csv"):
        with pytest.raises(KeyboardInterrupt):
            write_half(tmp_path / name)
    assert target.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [target]


@pytest.mark.usefixtures("_kind")
def test_modes_are_kept_and_new_ones_obey_the_umask(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"")
    old.chmod(0o604)
    mask = os.umask(0o027)
    try:
        write(old)
        write(new)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(old.stat().st_mode) == 0o604
    assert stat.S_IMODE(new.stat().st_mode) == 0o640


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name, begins in (("there", b"old"), ("dangling", None)):
        target, link = folder / name, tmp_path / name
        if begins is not None:
            target.write_bytes(begins)
        link.symlink_to(target)
        write(link)
        assert link.is_symlink()
        assert target.read_bytes() == b"new"


def test_devices_are_written_in_place() -> None:
    """Also as root, which may replace a device node by a file."""
    before = os.stat("/dev/null")
    write("/dev/null")
    after = os.stat("/dev/null")
    assert (before.st_ino, before.st_rdev) == (after.st_ino, after.st_rdev)
    with pytest.raises(OutputError) as caught:
        write("/dev/full")
    assert str(caught.value) == "cannot write /dev/full: No space left on device"
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_device_elsewhere_is_written_in_place(tmp_path: Path) -> None:
    link = tmp_path / "out.csv"
    link.symlink_to("/dev/full")
    with pytest.raises(OutputError, match=r"out\.csv: No space left on device"):
        write(link)
    assert stat.S_ISCHR(link.stat().st_mode)


def test_a_fifo_is_written_in_place(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    write(fifo)
    reader.join(10)
    assert read == [b"new"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "link"])
def test_what_the_shell_has_opened_is_written_where_it_is(name: str, tmp_path: Path) -> None:
    """CL-254: pipes of a process substitution, and the end of a file, also through a link."""
    reader, writer = os.pipe()
    target = tmp_path / "out"
    target.write_bytes(b"old ")
    file = os.open(target, os.O_WRONLY | os.O_APPEND)
    for number in (writer, file):
        path = name.format(number)
        if name == "link":
            path = str(tmp_path / "link")
            Path(path).unlink(missing_ok=True)
            Path(path).symlink_to(f"/dev/fd/{number}")
        write(path)
        os.close(number)
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert target.read_bytes() == b"old new"


def test_a_reader_that_has_gone_is_seen_without_writing() -> None:
    """CL-231: of a pipe or socket; files have none."""
    reader, writer = os.pipe()
    out = Output(writer, "out")
    assert out.has_reader()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        out.has_reader()
    os.close(writer)
    with open(os.devnull, "wb") as file:
        assert not Output(file.fileno(), "out").has_reader()


def test_new_files_in_shared_memory() -> None:
    """CL-237: which is below /dev."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        target = Path(folder) / "out.csv"
        for data in (b"old", b"new"):
            write(target, data)
            assert target.read_bytes() == data
        assert [*Path(folder).iterdir()] == [target]


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    for path, message in (
        (tmp_path, f"cannot write {tmp_path}: it is a folder"),
        (
            tmp_path / "no" / "x.csv",
            f"cannot write {tmp_path}/no/x.csv: there is no folder {tmp_path}/no",
        ),
        (f"{tmp_path}/new.csv/", f"cannot write {tmp_path}/new.csv/: there is no folder"),
        (file / "x.csv", f"cannot write {file}/x.csv: Not a directory"),
        ("/dev/fd/12345", "cannot write /dev/fd/12345: Bad file descriptor"),
        ("/dev/fd/99999999999999999999", "cannot write /dev/fd/9"),
        ("/dev/nothing-here", "cannot write /dev/nothing-here: there is no such file in /dev"),
    ):
        with pytest.raises(OutputError) as caught:
            write(path)
        assert str(caught.value).splitlines()[0].startswith(message)
    assert [*tmp_path.iterdir()] == [file]


def test_a_file_system_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.csv"
    target.write_bytes(b"old")

    def refuse(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OutputError) as caught:
        write(target, b"x" * 41_000)
    assert str(caught.value) == (
        f"cannot write {target}: No space left on device\nfound: 41 kB written"
    )
    assert target.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [target]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    write(tmp_path / "out", b"0123456789")
    assert (tmp_path / "out").read_bytes() == b"0123456789"


def test_a_pipe_that_does_not_block_is_written_whole() -> None:
    """CL-253: whoever shares it may have set it so."""
    data = bytes(range(256)) * 2_000
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    read: list[bytes] = []

    def drain() -> None:
        with open(reader, "rb", 0) as source:
            while part := source.read(1_000):
                read.append(part)

    thread = threading.Thread(target=drain)
    thread.start()
    assert Output(writer, "out").write(data) == len(data)
    os.close(writer)
    thread.join(10)
    assert b"".join(read) == data


def test_a_pipe_that_does_not_block_and_loses_its_reader() -> None:
    """CL-253"""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    timer = threading.Timer(0.05, os.close, [reader])
    timer.start()
    with pytest.raises(BrokenPipeError):
        Output(writer, "out").write(bytes(1 << 20))
    os.close(writer)
    timer.join()


def test_messages_never_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-230: where nobody reads them; they are UTF-8."""
    reader, writer = os.pipe()
    real = os.write
    monkeypatch.setattr(os, "write", lambda _fd, data: real(writer, data))
    with open_messages() as messages:
        messages.write("sü\udcff\n")
        assert os.read(reader, 100) == b"s\xc3\xbc\\udcff\n"
        os.close(reader)
        messages.write("nobody\n")
    os.close(writer)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    kept = [f".out.{os.getppid()}.part", f".other.{dead.pid}.part", ".out.x.part"]
    for name in (*kept, f".out.{dead.pid}.part"):
        (tmp_path / name).write_bytes(b"")
    write(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "out"}


@pytest.mark.parametrize("_kind", ["named files"], indirect=True)
@pytest.mark.usefixtures("_kind")
def test_what_another_machine_writes_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-54: on file systems without unnamed files; its process is none of this machine's."""
    monkeypatch.setattr(output, "_runs", lambda _pid: False)
    pid = os.getpid()
    with open_output(str(tmp_path / "out")) as out:
        out.write(b"theirs")
        monkeypatch.setattr(os, "getpid", lambda: pid + 1)
        write(tmp_path / "out", b"ours")
        assert (tmp_path / "out").read_bytes() == b"ours"
    assert (tmp_path / "out").read_bytes() == b"theirs"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_a_killed_process_leaves_nothing(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from kfast.cli.output import open_output
with open_output(sys.argv[1]) as out:
    out.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    target = tmp_path / "out.csv"
    target.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", program, str(target)], check=False)
    assert done.returncode == -9
    assert target.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [target]


@pytest.mark.parametrize("path", [None, "-"])
def test_standard_output(path: str | None, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with open_output(path) as out:
        out.write(b"\xff")
    assert capfdbinary.readouterr().out == b"\xff"


def test_a_closed_standard_output_is_named() -> None:
    program = (
        "from kfast.cli.output import open_output\nwith open_output('-') as out: out.write(b'x')"
    )
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "{program}" >&-', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cannot write standard output: Bad file descriptor" in done.stderr


def test_amounts() -> None:
    assert [output._amount(n) for n in (3, 41_000, 41_000_000, 2 * 10**9)] == [
        *("3 bytes", "41 kB", "41 MB", "2 GB")
    ]
