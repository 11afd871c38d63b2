"""The command line without a broker: its commands, mistakes in arguments, and how commands end."""

from __future__ import annotations

import json
import os
import signal
import sys
import types

import click
import pytest

import kfast
from kfast._base.program import pairs, run_program
from kfast.cli import main, topics
from kfast.cli.commands import COMMANDS
from kfast.cli.local import topic_of
from kfast.cli.options import Common
from kfast.errors import ConfigurationError, KafkaError
from tests.imported_modules import among, last_line_of


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    printed = capsys.readouterr()
    return status, printed.out, printed.err


# --- help -----------------------------------------------------------------------------------------


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["--help"], ["-h"]):
        status, out, err = said(capsys, *argv)
        assert (status, err) == (0, "")
        assert out.startswith("Usage: kfast ")
        for name, text in COMMANDS.items():
            assert f"  {name} " in out
            assert text in out


@pytest.mark.parametrize("name", [*COMMANDS, "cat", "consume"])
def test_every_command_has_help_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = said(capsys, name, "--help")
    assert (status, err) == (0, "")
    assert "Examples:\n    kfast " in out
    assert "--bootstrap-servers HOST[:PORT],..." in out
    assert max(map(len, out.splitlines())) <= 100


def test_help_loads_no_command_and_no_engine() -> None:
    loaded = last_line_of(
        "import json, sys; from kfast.cli import main; main(['--help']);"
        "print(json.dumps([*sys.modules]))"
    )
    assert among(loaded, "click")
    assert not among(loaded, "kfast.consumer", "kfast.cli.read", "kfast.demo", "numpy", "rich")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version") == (0, f"kfast {kfast.__version__}\n", "")


@pytest.mark.parametrize("name", ["read", "topics", "lag", "config"])
def test_every_command_prints_the_version(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([name, "--version"], ["-b", "h", name, "-q", "--version"]):
        assert said(capsys, *argv) == (0, f"kfast {kfast.__version__}\n", "")
    out = said(capsys, name, "--version", "-v")[1]
    assert out.startswith(f"kfast {kfast.__version__}\nPython 3.")


def test_the_versions_of_packages(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["-v", "--version"], ["--version", "-v"]):
        status, out, err = said(capsys, *argv)
        assert (status, err) == (0, "")
        first, second, *others = out.splitlines()
        assert first == f"kfast {kfast.__version__}"
        assert second.startswith("Python 3.")
        assert {"click", "lz4", "zstandard"} <= {line.split()[0] for line in others}


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("raed t", 'no command "raed"\ntry: did you mean read?'),
        ("xyzzy", 'no command "xyzzy"\ntry: kfast --help'),
        ("--ofset 3", 'no option "--ofset"\ntry: did you mean --set?'),
        ("read t --ofset 3", 'no option "--ofset"\ntry: did you mean --offset?'),
        ("read t --fromat jsonl", 'no option "--fromat"\ntry: did you mean --format?'),
        ("-t orders", 'no option "-t"\ntry: topics are arguments: kfast read TOPIC'),
        ("read --topic t", 'no option "--topic"\ntry: topics are arguments: kfast read TOPIC'),
        ("read t --star 3", 'no option "--star"\ntry: did you mean --start?'),
        ("read", "kfast read: no TOPIC... is given\ntry: kfast read --help"),
        ("read t -f jsnl", '-f: there is no "jsnl"\ntry: did you mean jsonl?'),
        ("read t --value x", '--value: there is no "x"\ntry: one of auto, text, bytes, base64'),
        ("read t -c valeu", '--columns: no column "valeu"\ntry: did you mean "value"?'),
        ("read t -o yesterday", '-o "yesterday" is neither an offset nor a time\ntry: -o @-1d'),
        ("read t -o 1 --start 2", "-o with --start or --end\ntry: -o START:END"),
        ("read t --output x.txt", "--output x.txt: unknown ending\ntry: use .jsonl, "),
        ("topics --timeout 3", '--timeout: "3" is not a length of time such as 250ms'),
        (
            "topics --config fetch.min.bytez=1",
            'unknown config "fetch.min.bytez" (-X)\ntry: did you mean fetch.min.bytes (int',
        ),
        ("topics -X fetch.min.bytes=many", "bad value for fetch.min.bytes: 'many'"),
        ("topics -X novalue", "-X novalue: not KEY=VALUE"),
        ("demo --topic t", "--topic needs --bootstrap-servers"),
        ("demo -b h:1", "--bootstrap-servers needs --topic"),
        (
            "demo -b h:1 --topic t --security SSL",
            "--security is for the Kafka that the demo starts\ntry: -X security.protocol=SSL",
        ),
        ("local --topic :", "--topic :: not NAME or NAME:PARTITIONS"),
        (
            "local --security SASL_SSI",
            '--security: there is no "SASL_SSI"\ntry: did you mean SASL_SSL?',
        ),
        ("local --user app:S3cr3t", "--user needs --security\ntry: such as --security SASL_SSL"),
        ("local --security SSL --user S3cr3t", "--user: not NAME:PASSWORD"),
        ("config shwo", 'no command "shwo"\ntry: did you mean show?'),
        ("config nothing", 'no command "nothing"\ntry: kfast config --help'),
        ("completion bsh", 'shell: there is no "bsh"\ntry: did you mean bash?'),
        ("groups reset g", "kfast groups reset: no --to is given\ntry: kfast groups reset --help"),
        ("read t --delimiter ;", "--delimiter and -0 are for raw values\ntry: -f raw"),
        ("read t -f jsonl -0", "--delimiter and -0 are for raw values\ntry: -f raw"),
        ("read t -o", "Option '-o' requires an argument\ntry: kfast read --help"),
        ("read t -f arrow --compression snappy", "Arrow has no snappy\ntry: --compression lz4"),
        ("topics -X xyzzy=1", 'unknown config "xyzzy" (-X)\ntry: kfast config list'),
        ("topics --bootstrap=", "bad value for bootstrap.servers (-b)"),
    ],
)
def test_mistakes_are_texts_with_exit_code_2(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = said(capsys, *line.split())
    assert (status, out) == (2, "")
    assert message in err
    assert err.startswith("kfast: ")
    assert len(err.splitlines()) <= 6
    assert "S3cr3t" not in err


@pytest.mark.parametrize("given", ["0", "-1", "ten", "1.5", "²"])
def test_a_number_that_is_none_is_refused_in_plain_words(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """E-02: the message names the option and the value, not a function of the program."""
    status, _, err = said(capsys, "read", "t", f"--limit={given}")
    assert status == 2
    assert err.startswith(f'kfast: --limit: "{given}" is not a whole number of 1 or more\n')


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["topics", "\udcff"], "[GLOB...]: not UTF-8: '\\udcff'"),
        (["read", "t", "-g", "\udcff"], "-g: not UTF-8: '\\udcff'"),
        (["groups", "describe", "g", "\udcff"], "GROUP...: not UTF-8: '\\udcff'"),
        (["read", "t", "-X", "client.id=\udcff"], "bad value for client.id: '\\udcff' (-X)"),
        (["read", "t", "--value", "avro", "--value-schema", "\udcff"], "--value-schema: not UTF-8"),
    ],
)
def test_what_is_not_utf_8_is_refused_by_its_name(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """CL-252: before anything is connected to."""
    status, _, err = said(capsys, *words)
    assert (status, err.startswith(f"kfast: {message}")) == (2, True), err


# --- common options -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "-b h1:1,h2 -X client.id=1 -F f topics --timeout 1m -X client.rack=2 --profile p",
        "topics -b h1:1,h2 -X client.id=1 --timeout 1m -X client.rack=2 -F f --profile p",
        "-X client.id=1 -b other -F g --timeout 1m --profile p topics --set client.rack=2 "
        "--bootstrap h1:1,h2 --config-file f",
    ],
)
def test_common_options_stand_anywhere(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Common] = []
    monkeypatch.setattr(topics.command, "callback", lambda **_: seen.append(_common()))
    assert main(line.split()) == 0
    (common,) = seen
    assert (common.servers, common.timeout_ms) == ("h1:1,h2", 60_000)
    assert (common.file, common.profile) == ("f", "p")
    assert common.settings == ["client.id=1", "client.rack=2"]
    common.file = common.profile = None
    assert common.configs() == {
        "bootstrap.servers": "h1:1,h2",
        "request.timeout.ms": 60_000,
        "default.api.timeout.ms": 60_000,
        "client.id": "1",
        "client.rack": "2",
        "allow.auto.create.topics": False,
    }


def _common() -> Common:
    found = click.get_current_context().find_object(Common)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["default_api_timeout_ms", "default.api.timeout.ms"])
def test_settings_have_precedence_over_the_commands_own(name: str) -> None:
    """E-03: in either spelling."""
    configs = Common(settings=[f"{name}=200"]).configs()
    assert configs[name] == "200"
    assert [key for key in configs if "api" in key] == [name]
    assert "request.timeout.ms" not in configs


def test_servers_have_kafkas_port() -> None:
    made = kfast.ConsumerConfig(config=Common(servers="a, b:1,[::1],[::1]:2").configs())
    assert made.bootstrap_servers == (("a", 9092), ("b", 1), ("::1", 9092), ("::1", 2))


def test_settings_and_topics() -> None:
    assert pairs(["a.b=c=d", "e="], "-X") == {"a.b": "c=d", "e": ""}
    assert topic_of("orders") == ("orders", 1)
    assert topic_of("orders:6") == ("orders", 6)
    for bad in ("novalue", "=x"):
        with pytest.raises(ConfigurationError, match="not KEY=VALUE"):
            pairs([bad], "-X")
    for bad in (":3", "orders:", "orders:0", "orders:x"):
        with pytest.raises(ConfigurationError, match="not NAME or NAME:PARTITIONS"):
            topic_of(bad)


# --- the ends of a command ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "status", "text"),
    [
        (
            KafkaError("it broke", cause="why", hint="what"),
            1,
            "kfast: it broke\ncause: why\ntry: what\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "kfast: /x/y: Permission denied\n"),
    ],
)
def test_how_commands_end(
    failure: BaseException,
    status: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(**_: object) -> None:
        raise failure

    monkeypatch.setattr(topics.command, "callback", fail)
    before = signal.getsignal(signal.SIGTERM)
    assert said(capsys, "topics") == (status, "", text)
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_while_modules_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-50: no traceback, and the status of Ctrl-C."""
    module = types.ModuleType("kfast.cli.root")

    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    module.__getattr__ = interrupted  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "kfast.cli.root", module)
    assert main(["--version"]) == 130


def test_a_bug_is_reported_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(topics.command, "callback", fail)
    status, _, err = said(capsys, "topics")
    first, found, hint = err.splitlines()
    assert (status, first) == (1, "kfast: this is a bug in kfast")
    assert found == "found: ZeroDivisionError: division by zero"
    path = hint.removeprefix("try: report it with ")
    with open(path, encoding="utf-8") as file:
        assert "Traceback" in file.read()
    os.unlink(path)


def test_tracebacks_are_shown_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise KafkaError("it broke")

    monkeypatch.setattr(topics.command, "callback", fail)
    status, _, err = said(capsys, "-v", "topics", "-v")
    assert status == 1
    assert err.startswith("Traceback")
    assert err.endswith("kfast: it broke\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_program_that_is_terminated_takes_down_what_it_has_started(
    number: signal.Signals, status: int
) -> None:
    before = signal.getsignal(number)
    removed: list[str] = []

    def body() -> None:
        try:
            signal.raise_signal(number)
        finally:
            removed.append("broker")

    with pytest.raises(SystemExit) as ended:
        run_program(body)
    assert (ended.value.code, removed) == (status, ["broker"])
    assert signal.getsignal(number) is before


def test_the_module_is_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["kfast", "--version"])
    assert main() == 0


@pytest.mark.parametrize(
    "line",
    [
        "topics -f json --ofset 3",
        "topics --ofset 3 --format=jsonl",
        "groups describe g -fjson --ofset",
        "lag -f json --watch nothing --ofset",
        "schema show -f json",
        "config show --format json too many",
        "--bogus topics -f json",
        "--timeout never groups describe g -fjson",
        "topcs --format=jsonl",
    ],
)
def test_mistakes_are_json_where_the_result_is(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """CL-213: wherever the format stands."""
    status, out, err = said(capsys, *line.split())
    assert (status, out) == (2, "")
    found = json.loads(err)
    assert (found["error"], found["exit"]) == ("ConfigurationError", 2)
    assert found["try"]


@pytest.mark.parametrize(
    "line", ["topics -f table --ofset 3", "read t -f json --ofset 3", "--ofset read t -f json"]
)
def test_other_mistakes_are_text(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """CL-213"""
    status, _, err = said(capsys, *line.split())
    assert (status, err.splitlines()[0]) == (2, 'kfast: no option "--ofset"')
