"""``kfast config``: settings with their origins, and profiles of the user's file."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfast.cli import main
from kfast.cli.config import with_current, with_profile
from kfast.config import ConsumerConfig
from kfast.errors import ConfigurationError

CONFIG = """\
# mine
current = "dev"  # for now
fetch.min.bytes = 7

[profiles.dev]
bootstrap.servers = "dev:1"
[profiles.prod]  # careful
bootstrap.servers = "b1:1,b2:1"
sasl.password = "hunter2"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, which has two profiles; the environment has no setting."""
    for name in [name for name in os.environ if name.startswith("KFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".config/kfast/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(CONFIG, encoding="utf-8")
    path.chmod(0o640)
    return path


def said(capfd: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    status = main(["config", *line.split()])
    printed = capfd.readouterr()
    return status, printed.out, printed.err


def test_settings_are_shown_with_their_origin_and_without_secrets(
    own: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-108"""
    monkeypatch.setenv("KFAST_CLIENT_ID", "me")
    monkeypatch.setenv("KFAST_HOME", "x")
    status, out, err = said(capfd, "show --profile prod -b h:1 -f json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "settings": {
            "bootstrap.servers": {"value": "h:1", "origin": "-b"},
            "client.id": {"value": "me", "origin": "env KFAST_CLIENT_ID"},
            "default.api.timeout.ms": {"value": 10_000, "origin": "default"},
            "fetch.min.bytes": {"value": 7, "origin": "~/.config/kfast/config.toml:3"},
            "request.timeout.ms": {"value": 10_000, "origin": "default"},
            "sasl.password": {"value": "***", "origin": "~/.config/kfast/config.toml:9"},
        },
        "left_alone": ["KFAST_HOME"],
    }
    status, out, _ = said(capfd, "show --profile prod -f csv")
    assert "sasl.password,***,~/.config/kfast/config.toml:9\n" in out
    assert 'KFAST_HOME,,"env, no setting of kfast"\n' in out
    assert "hunter2" not in out


def test_all_settings_are_listed_and_found_by_a_word(
    own: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """CL-108"""
    status, out, _ = said(capfd, "list -f json")
    rows = json.loads(out)
    assert status == 0
    assert [row["key"] for row in rows] == [info.key for info in ConsumerConfig.describe()]
    _, out, _ = said(capfd, "list fetch_wait -f json")
    (row,) = json.loads(out)
    assert (row["key"], row["type"], row["default"]) == ("fetch.max.wait.ms", "int", "500")
    assert row["other_spellings"] == ["fetch.wait.max.ms"]
    status, out, err = said(capfd, "list group.idd")
    assert (status, out) == (5, "")
    assert err.endswith("try: did you mean group.id?\n")


def test_profiles_are_listed_and_chosen(own: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """CL-109: with comments and mode of the file kept."""
    assert said(capfd, "profiles -f csv")[1] == (
        'profile,current,servers\ndev,true,dev:1\nprod,false,"b1:1,b2:1"\n'
    )
    assert said(capfd, "use prod") == (0, "", "")
    assert own.read_text(encoding="utf-8") == CONFIG.replace(
        'current = "dev"  # for now', 'current = "prod"'
    )
    assert stat.S_IMODE(own.stat().st_mode) == 0o640
    assert [path.name for path in own.parent.iterdir()] == ["config.toml"]
    status, _, err = said(capfd, "use prdo")
    assert status == 5
    assert err == (
        'kfast: no profile "prdo" in ~/.config/kfast/config.toml\n'
        "found: dev, prod\ntry: did you mean prod?\n"
    )


def test_a_file_becomes_a_profile_and_replaces_none_unasked(
    own: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """CL-109"""
    (own.parents[2] / "run").mkdir()
    (own.parents[2] / "run" / "client.properties").write_text(
        "bootstrap.servers=h:1\nacks=all\nsasl.password=hu\\u00fc\\\\2\n"
        "ssl.key.password=@pw\nsession.timeout.ms=45000\n"
    )
    (own.parents[2] / "run" / "pw").write_text("x")
    status, out, err = said(capfd, "import run/client.properties")
    assert (status, out) == (0, "")
    assert err == 'profile "client" is in ~/.config/kfast/config.toml\n'
    text = own.read_text(encoding="utf-8")
    assert text.startswith(CONFIG)
    assert tomllib.loads(text)["profiles"]["client"] == {
        "bootstrap": {"servers": "h:1"},
        "sasl": {"password": "huü\\2"},
        "ssl": {"key": {"password": f"@{own.parents[2]}/run/pw"}},
        "session": {"timeout": {"ms": "45000"}},
    }
    assert main(["config", "show", "--profile", "client", "-q"]) == 0
    status, _, err = said(capfd, "import run/client.properties --name prod")
    assert status == 2
    assert 'has a profile "prod"\ntry: --force' in err
    assert own.read_text(encoding="utf-8") == text
    assert said(capfd, "import run/client.properties --name prod --force -q")[0] == 0
    profiles = tomllib.loads(own.read_text(encoding="utf-8"))["profiles"]
    assert profiles["prod"] == profiles["client"]
    assert "hunter2" not in own.read_text(encoding="utf-8")


def test_the_first_profile_becomes_the_current_one(
    own: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """CL-109: in a new file that only its owner can read."""
    own.unlink()
    own.parent.rmdir()
    assert said(capfd, "profiles")[0] == 0
    Path("kcat.conf").write_text("metadata.broker.list=k:1\n")
    assert said(capfd, "import kcat.conf --name k")[0] == 0
    assert own.read_text() == ('current = "k"\n[profiles.k]\nmetadata.broker.list = "k:1"\n')
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert "k,true,k:1" in said(capfd, "profiles -f csv")[1]


RPK = """\
current_profile: cloud
profiles:
  - name: other
    kafka_api: {brokers: ["o:1"]}
  - name: cloud
    kafka_api:
      brokers: [a:9092, b:9092]
      tls: {ca_file: /ca.pem}
      sasl: {user: app, password: hunter3, mechanism: SCRAM-SHA-256}
"""


def test_a_profile_of_rpk_is_imported(
    own: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-109: PyYAML is named where it is missing."""
    pytest.importorskip("yaml")
    Path("rpk.yaml").write_text(RPK)
    assert said(capfd, "import rpk.yaml")[0] == 0
    assert main(["config", "show", "--profile", "cloud", "-f", "csv"]) == 0
    out = capfd.readouterr().out
    for line in (
        'bootstrap.servers,"a:9092,b:9092",',
        "security.protocol,SASL_SSL,",
        "sasl.mechanism,SCRAM-SHA-256,",
        "sasl.username,app,",
        "ssl.ca.location,/ca.pem,",
        "sasl.password,***,",
    ):
        assert line in out
    Path("bad.yaml").write_text("a: [")
    assert said(capfd, "import bad.yaml")[::2] == (
        2,
        "kfast: ./bad.yaml: it is not YAML\ntry: rpk profile print\n",
    )
    monkeypatch.setitem(sys.modules, "yaml", None)
    status, _, err = said(capfd, "import rpk.yaml --force")
    assert status == 2
    assert "pip install" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("import none.conf", 5, "there is no file ./none.conf"),
        ("import none.yaml", 5, "cannot read ./none.yaml: No such file"),
        ("import empty.conf", 2, "./empty.conf has no settings"),
        ("import bad.conf", 2, 'unknown config "fetch.min.bytez" (./bad.conf:1)'),
        ("import ok.conf --name a.b", 2, '"a.b" cannot be the name of a profile'),
        ("use", 2, "kfast config use: no NAME is given"),
    ],
)
def test_mistakes_change_nothing(
    line: str, status: int, message: str, own: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """CL-109"""
    if "yaml" in line:
        pytest.importorskip("yaml")
    Path("empty.conf").write_text("# x\n")
    Path("bad.conf").write_text("fetch.min.bytez=1")
    Path("ok.conf").write_text("client.id=1")
    found, out, err = said(capfd, line)
    assert (found, out) == (status, "")
    assert err.startswith(f"kfast: {message}")
    assert own.read_text(encoding="utf-8") == CONFIG


def test_a_file_without_profiles_is_named(
    own: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-109"""
    monkeypatch.setenv("KFAST_CONFIG", "x.properties")
    assert said(capfd, "profiles")[::2] == (
        2,
        "kfast: ./x.properties has no profiles: it is no .toml\ntry: unset KFAST_CONFIG\n",
    )


def test_without_a_subcommand_there_is_help(capfd: pytest.CaptureFixture[str]) -> None:
    """CL-108"""
    status, out, _ = said(capfd, "")
    assert status == 0
    assert out.startswith("Usage: kfast config")


@pytest.mark.parametrize(
    "text",
    ['profiles = {dev = {"client.id" = "x"}}\n', "[profiles]\ndev.client.id = 1\n"],
)
def test_a_form_that_is_not_known_is_refused(text: str) -> None:
    """CL-109: rather than damaged."""
    with pytest.raises(ConfigurationError, match="in a form that is not changed"):
        with_profile(text, "dev", {"group.id": "g"})


NAMES = st.text("abz09_-", min_size=1, max_size=5)
VALUES = st.text(st.characters(exclude_categories=["Cs"])) | st.integers() | st.booleans()


@given(st.dictionaries(NAMES, VALUES, max_size=4), NAMES, NAMES)
def test_any_profile_is_written_and_found_again(
    settings: dict[str, object], name: str, other: str
) -> None:
    """CL-109"""
    text = with_current(with_profile("", name, settings), name)
    text = with_profile(text, other, {"client.id": "x"})
    document = tomllib.loads(text)
    assert document["current"] == name
    assert document["profiles"][other] == {"client": {"id": "x"}}
    assert document["profiles"][name] == (settings if name != other else {"client": {"id": "x"}})
