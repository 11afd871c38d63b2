"""Completion: what is proposed for which words, and the scripts of the shells."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from kfast import cli
from kfast.cli.complete import KEPT_S, candidates
from kfast.protocol.api_keys import ApiKey
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from kfast.types import TopicPartition
from tests.end_to_end.errors_support import HOST, dead_port

PATIENCE_S: Final = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    cluster = FakeCluster(1)
    for topic in ("orders", "orders-old", "payments"):
        cluster.create_topic(topic)
    for group in ("billing", "odd name", "esc\x1b[31m", "$(reboot)"):
        cluster.groups.offsets(group).commit(TopicPartition("orders", 0), 1)
    with BrokerServer(cluster) as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a configuration of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "config" / "kfast"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("[profiles.prod]\n[profiles.test]\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("to", ["topics"]),
        ("-v -q gr", ["groups"]),
        ("--timeout 3s la", ["lag"]),
        ("topics des", ["describe"]),
        ("groups re", ["reset"]),
        ("completion ", ["bash", "fish", "zsh"]),
        ("read t --form", ["--format"]),
        ("cat t --form", ["--format"]),
        ("topics -f js", ["json", "jsonl"]),
        ("topics describe x --format=c", ["--format=csv"]),
        ("groups reset g --exe", ["--execute"]),
        ("groups --state st", ["stable"]),
        ("read t --key ut", []),
        ("read t -c key,val", ["key,value"]),
        ("-X fetch.min.b", ["fetch.min.bytes="]),
        ("topics --set=fetch.min.b", ["--set=fetch.min.bytes="]),
        ("topics --profile p", ["prod"]),
        ("config sh", ["show"]),
        ("raed t", []),
        ("topics --no-such-option=x", []),
        ("raed topics ", []),
    ],
)
def test_words(line: str, expected: list[str]) -> None:
    """CL-68: commands, options, formats, kinds, columns, keys of settings, profiles."""
    assert candidates(line.split(" ")) == expected


def test_topics_and_groups(server: BrokerServer, home: Path) -> None:
    """CL-68: those of the cluster that the line names, asked once a minute; mode 0600."""
    where = ["-b", server.bootstrap_servers]
    asked = server.cluster.requests
    before = sum(each.api_key == ApiKey.METADATA for each in asked)
    assert candidates([*where, "read", "ord"]) == ["orders", "orders-old"]
    once = sum(each.api_key == ApiKey.METADATA for each in asked)
    assert once > before
    assert candidates(["topics", "describe", f"--bootstrap={where[1]}", "pay"]) == ["payments"]
    assert sum(each.api_key == ApiKey.METADATA for each in asked) == once
    # Names that a shell or a terminal would act on are not proposed.
    for words in (["lag", ""], ["groups", "describe", ""], ["doctor", "-g", ""]):
        assert "billing" in candidates([*where, *words])
        assert not {"odd name", "$(reboot)", "esc\x1b[31m"} & {*candidates([*where, *words])}
    assert candidates([*where, "groups", "reset", "billing", "pay"]) == ["payments"]
    file = home / "cache" / "kfast" / "completion.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    kept = json.loads(file.read_text(encoding="utf-8"))
    for each in kept.values():
        each["time"] -= KEPT_S + 1
    file.write_text(json.dumps(kept), encoding="utf-8")
    assert candidates([*where, "read", "ord"]) == ["orders", "orders-old"]
    assert sum(each.api_key == ApiKey.METADATA for each in asked) > once


def test_failures_are_silent(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """CL-68: no cluster, a damaged cache, a file that is not there: nothing, within 3 s."""
    (home / "cache" / "kfast").mkdir(parents=True)
    (home / "cache" / "kfast" / "completion.json").write_text("[1", encoding="utf-8")
    started = time.monotonic()
    assert cli.main(["_complete", "--", "-b", f"{HOST}:{dead_port()}", "read", ""]) == 0
    assert time.monotonic() - started < 3
    assert cli.main(["_complete", "--", "-F", "/no/such/file", "read", ""]) == 0
    assert cli.main(["_complete"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "topics\n" in out
    assert "_complete" not in out


@pytest.fixture
def folder(home: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    """Give a folder with the program and its scripts."""
    folder = home / "bin"
    folder.mkdir()
    program = folder / "kfast"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kfast "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        assert cli.main(["completion", shell]) == 0
        (home / f"kfast.{shell}").write_text(capfd.readouterr().out, encoding="utf-8")
    return folder


def environment_of(folder: Path) -> dict[str, str]:
    own = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(folder.parent),
        "TERM": "dumb",
    }
    return os.environ | own


@pytest.fixture
def run_in_bash(folder: Path, home: Path) -> Callable[[str], list[str]]:
    """Give what bash has after a Tab behind a line."""
    script = home / "kfast.bash"

    def tab(line: str) -> list[str]:
        # bash's own splitting of the line, at blanks, = and :
        text = (
            f"source {script}\n"
            f'COMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}\n'
            'split="${COMP_LINE//=/ = }"; split="${split//:/ : }"\n'
            'COMP_WORDS=($split); [[ "$COMP_LINE" == *" " ]] && COMP_WORDS+=("")\n'
            "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
            '_kfast; printf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        ended = subprocess.run(
            ["bash", "-c", text],
            capture_output=True,
            check=True,
            text=True,
            env=environment_of(folder),
        )
        assert ended.stderr == ""
        return ended.stdout.split()

    return tab


def test_the_script_of_bash(run_in_bash: Callable[[str], list[str]], server: BrokerServer) -> None:
    """CL-68: words of the line reach kfast; what bash replaces is the part behind = and :."""
    assert run_in_bash("kfast topics --format=c") == ["csv"]
    assert run_in_bash("kfast topics --format=") == ["csv", "json", "jsonl", "table", "tsv"]
    assert run_in_bash(f"kfast -b {server.bootstrap_servers} read orders-") == ["orders-old"]


def test_the_script_of_fish(folder: Path, home: Path, server: BrokerServer) -> None:
    """CL-235: what fish itself proposes."""
    if shutil.which("fish") is None:
        pytest.skip("no fish on this machine: its completion was not tested")

    def tab(line: str) -> set[str]:
        ended = subprocess.run(
            ["fish", "-N", "-c", f"source {home}/kfast.fish; complete -C '{line}'"],
            capture_output=True,
            check=True,
            text=True,
            env=environment_of(folder),
        )
        assert ended.stderr == ""
        return {proposed.partition("\t")[0] for proposed in ended.stdout.splitlines()}

    assert tab("kfast topics --format=c") == {"--format=csv"}
    assert tab("kfast gro") == {"groups"}
    assert f"{home}/config/" in tab(f"kfast read t --output {home}/con")
    assert tab(f"kfast -b {server.bootstrap_servers} read orders-") == {"orders-old"}


@pytest.mark.parametrize("is_file", [False, True], ids=["sourced", "in fpath"])
def test_the_script_of_zsh(is_file: bool, folder: Path, home: Path, server: BrokerServer) -> None:
    """CL-235: what zsh itself puts into the line at a Tab, from the first one on."""
    if shutil.which("zsh") is None:
        pytest.skip("no zsh on this machine: its completion was not tested")
    begin = f"autoload -U compinit; compinit -u -d {home}/dump"
    if is_file:
        (home / "functions").mkdir()
        (home / "kfast.zsh").rename(home / "functions" / "_kfast")
        begin = f"fpath+=({home}/functions); {begin}"
    else:
        begin = f"{begin}; source {home}/kfast.zsh"
    with Terminal(["zsh", "-f", "-i"], environment_of(folder)) as shell:
        shell.send(f"{begin}; unsetopt beep; PS1='ready''> '\n")
        shell.wait_for("ready> ")
        for typed, completed in (
            ("kfast gro\t", "kfast groups "),
            ("kfast topics --format=c\t", "kfast topics --format=csv "),
            (
                f"kfast -b {server.bootstrap_servers} read orders-\t",
                f"kfast -b {server.bootstrap_servers} read orders-old ",
            ),
        ):
            shell.send(typed)
            shell.wait_for(completed)
            shell.send("\x15")  # the line is discarded


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._pid, self._fd = pty.fork()
        if not self._pid:
            os.execvpe(command[0], command, environment)
        self._shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._fd)  # the program gets a SIGHUP
        os.waitpid(self._pid, 0)

    def send(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until a text is shown; what came before it is forgotten."""
        until = time.monotonic() + PATIENCE_S
        while text not in self._shown:
            left = until - time.monotonic()
            assert left > 0, self._shown
            if select.select([self._fd], [], [], left)[0]:
                self._shown += os.read(self._fd, 1 << 16).decode()
        self._shown = self._shown.partition(text)[2]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_valid(
    shell: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """CL-68: checked by the shell itself where it is installed."""
    assert cli.main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capfd.readouterr().out, encoding="utf-8")
    assert "_complete" in script.read_text(encoding="utf-8")
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], check=True)


def test_another_shell_is_a_mistake(capfd: pytest.CaptureFixture[str]) -> None:
    """CL-68: exit 2."""
    assert cli.main(["completion", "csh"]) == 2
    assert "csh" in capfd.readouterr().err
