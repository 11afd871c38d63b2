"""Completion: what is proposed for which words, and the scripts of the shells."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfast import cli
from kfast.cli.complete import KEPT_S, candidates
from kfast.types import TopicPartition
from tests.end_to_end.errors_support import HOST, dead_port
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.releases import Api
from tests.fake_broker.server import FakeBrokerServer


@pytest.fixture(scope="module")
def server() -> Iterator[FakeBrokerServer]:
    cluster = FakeCluster(1)
    for topic in ("orders", "orders-old", "payments"):
        cluster.create_topic(topic)
    for group in ("billing", "odd name", "esc\x1b[31m", "$(reboot)"):
        cluster.groups.offsets(group).commit(TopicPartition("orders", 0), 1)
    with FakeBrokerServer(cluster) as running:
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


def test_topics_and_groups(server: FakeBrokerServer, home: Path) -> None:
    """CL-68: those of the cluster that the line names, asked once a minute; mode 0600."""
    where = ["-b", server.bootstrap_servers]
    asked = server.cluster.requests
    before = sum(each.api_key == Api.METADATA for each in asked)
    assert candidates([*where, "read", "ord"]) == ["orders", "orders-old"]
    once = sum(each.api_key == Api.METADATA for each in asked)
    assert once > before
    assert candidates(["topics", "describe", f"--bootstrap={where[1]}", "pay"]) == ["payments"]
    assert sum(each.api_key == Api.METADATA for each in asked) == once
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
    assert sum(each.api_key == Api.METADATA for each in asked) > once


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
def run_in_bash(home: Path) -> Callable[[str], list[str]]:
    """Give what bash has after a Tab behind a line."""
    folder = home / "bin"
    folder.mkdir()
    program = folder / "kfast"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kfast "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    script = home / "kfast.bash"
    done = subprocess.run(
        [sys.executable, "-m", "kfast", "completion", "bash"],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    script.write_bytes(done.stdout)

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
        env = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run(
            ["bash", "-c", text], capture_output=True, check=True, text=True, env=os.environ | env
        )
        assert ended.stderr == ""
        return ended.stdout.split()

    return tab


def test_the_script_of_bash(
    run_in_bash: Callable[[str], list[str]], server: FakeBrokerServer
) -> None:
    """CL-68: words of the line reach kfast; what bash replaces is the part behind = and :."""
    assert run_in_bash("kfast topics --format=c") == ["csv"]
    assert run_in_bash("kfast topics --format=") == ["csv", "json", "jsonl", "table", "tsv"]
    assert run_in_bash(f"kfast -b {server.bootstrap_servers} read orders-") == ["orders-old"]


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
