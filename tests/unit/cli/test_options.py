"""The settings of every command: options, files, profiles, the environment, and what is said."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path

import pytest

import kfast
from kfast.cli import main
from kfast.cli.options import Common
from kfast.errors import KafkaConnectionError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without files of settings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_settings_of_a_file_meet_those_of_options(home: Path) -> None:
    """CL-91"""
    (home / "c.properties").write_text("bootstrap.servers=f:1\nfetch.min.bytes=5\nacks=all\n")
    common = Common(file="c.properties", settings=["fetch.min.bytes=7"])
    configs = common.configs()
    assert (configs["bootstrap.servers"], configs["fetch.min.bytes"]) == ("f:1", "7")
    assert kfast.ConsumerConfig(configs).fetch_min_bytes == 7
    assert common.loaded() is common.loaded()


def test_a_time_out_of_a_file_counts_unless_an_option_says_more(home: Path) -> None:
    """CL-91"""
    (home / "c.conf").write_text("request.timeout.ms=5000\n")
    assert Common().configs()["request.timeout.ms"] == 10_000
    found = Common(file="c.conf").configs()
    assert found["request.timeout.ms"] == "5000"
    assert "default.api.timeout.ms" not in found
    found = Common(file="c.conf", timeout_ms=100).configs()
    assert found["request.timeout.ms"] == found["default.api.timeout.ms"] == 1_000


def test_a_file_of_an_application_makes_no_command_commit_or_pass_over_records(home: Path) -> None:
    """CL-97"""
    (home / "c.conf").write_text(
        "group.id=g\nenable.auto.commit=true\nauto.offset.reset=latest\n"
        "group.instance.id=i\nallow_auto_create_topics=true\n"
    )
    config = kfast.ConsumerConfig(Common(file="c.conf").configs())
    for name in ("group_id", "enable_auto_commit", "auto_offset_reset", "group_instance_id"):
        assert not config.was_given(name)
    assert config.allow_auto_create_topics is False
    member = kfast.ConsumerConfig(Common(file="c.conf").configs(is_member=True))
    assert (member.group_id, member.auto_offset_reset) == ("g", "latest")
    explicit = Common(file="c.conf", settings=["group.id=h", "enable.auto.commit=true"])
    assert kfast.ConsumerConfig(explicit.configs()).enable_auto_commit


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("topics -F none.conf", 5, "there is no file ./none.conf\ntry: ls ./none.conf\n"),
        ("topics --profile x", 5, 'no profile "x": there is no ~/.config/kfast/config.toml\ntry: '),
        (
            "read t -F c.conf",
            2,
            'unknown config "fetch.min.bytez" (./c.conf:2)\n'
            "try: did you mean fetch.min.bytes (int, default 1)?\n",
        ),
    ],
)
def test_mistakes_in_settings_end_the_command(
    line: str, status: int, message: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CL-94"""
    (home / "c.conf").write_text("# x\nfetch.min.bytez=1\n")
    assert main(line.split()) == status
    assert capsys.readouterr().err.startswith(f"kfast: {message}")


class Terminal(io.StringIO):
    """A standard error that a person reads."""

    def isatty(self) -> bool:
        return True


def test_notes_are_for_terminals(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-96: elsewhere only with -v, and never with -q."""
    (home / "c.conf").write_text("acks=all\nsasl.password=hunter2\n")
    (home / "c.conf").chmod(0o644)
    for kind, options, expected in (
        (io.StringIO, {}, 0),
        (io.StringIO, {"verbosity": 1}, 2),
        (Terminal, {}, 2),
        (Terminal, {"is_quiet": True}, 0),
    ):
        stderr = kind()
        monkeypatch.setattr(sys, "stderr", stderr)
        Common(file="c.conf", **options).loaded()
        assert len(stderr.getvalue().splitlines()) == expected
        assert "hunter2" not in stderr.getvalue()
        if expected:
            assert "note: ./c.conf: ignored, for other clients: acks\n" in stderr.getvalue()


def test_effective_settings_are_logged_without_secrets(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CL-96: with -v."""
    with caplog.at_level(logging.INFO):
        Common(servers="h:1", settings=["sasl.password=hunter2", "fetch.min.bytes=3"]).loaded()
    lines = caplog.messages
    assert "bootstrap.servers=h:1 (-b)" in lines
    assert "fetch.min.bytes=3 (-X)" in lines
    assert "sasl.password=*** (-X)" in lines
    assert "request.timeout.ms=10000 (default)" in lines


def test_a_failed_connection_names_where_the_address_is_from(home: Path) -> None:
    """CL-98"""

    def explained(common: Common) -> tuple[str, str | None]:
        common.loaded()
        error = KafkaConnectionError(
            "cannot connect to localhost:9092: connection refused",
            hint="check bootstrap_servers, and that the broker runs",
        )
        common.explain(error)
        return error.message, error.hint

    assert explained(Common()) == (
        "cannot connect to localhost:9092 (the default; name your cluster with -b): "
        "connection refused",
        "-b HOST:PORT",
    )
    plain = "cannot connect to localhost:9092: connection refused"
    assert explained(Common(servers="localhost:9092")) == (
        plain,
        "check -b, and that the broker runs",
    )
    (home / "c.conf").write_text("bootstrap.servers=localhost:9092\n")
    assert explained(Common(file="c.conf")) == (
        plain,
        "check bootstrap.servers (./c.conf:1), and that the broker runs",
    )
