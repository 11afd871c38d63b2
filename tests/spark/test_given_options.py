"""Options of the ingest's command line, with secrets from files and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfast._base.program import pairs
from kfast.errors import ConfigNotFoundError, ConfigurationError
from kfast.spark.ingest.given_options import source_options, storage_options

VARIABLES = {"PW": "from the environment"}


def test_secrets_come_from_variables_and_files(tmp_path: Path) -> None:
    """CL-244: other options keep what they are, whatever they begin with."""
    (tmp_path / "pw").write_text("from a file\n")
    given = [
        "kafka.sasl.password=env:PW",
        f"kafka.ssl.key.password=@{tmp_path}/pw",
        "schemaRegistry.basic.auth.user.info=env:PW",
        "kafka.client.id=env:PW",
        "subscribePattern=@.*",
    ]
    found, notes = source_options(pairs(given, "--option"), None, VARIABLES)
    assert found == {
        "kafka.sasl.password": "from the environment",
        "kafka.ssl.key.password": "from a file",
        "schemaRegistry.basic.auth.user.info": "from the environment",
        "kafka.client.id": "env:PW",
        "subscribePattern": "@.*",
    }
    assert notes == []
    assert source_options(pairs(["kafka.sasl.password=env::PW"], "--option"), None, {})[0] == {
        "kafka.sasl.password": "env:PW"
    }
    found, notes = storage_options(
        pairs(["secret=env:PW", "endpoint_url=http://s3:9000"], "--option"), VARIABLES
    )
    assert found == {"secret": "from the environment", "endpoint_url": "http://s3:9000"}
    assert notes == []


def test_a_file_of_options(tmp_path: Path) -> None:
    """CL-244: what is given as an option takes precedence, in any case of letters."""
    file = tmp_path / "ingest.properties"
    file.write_text("kafka.sasl.username=app\nkafka.sasl.password=S3cr3t\nstartingOffsets=latest\n")
    file.chmod(0o600)
    found, notes = source_options(pairs(["startingoffsets=earliest"], "--option"), str(file), {})
    assert found == {
        "startingoffsets": "earliest",
        "kafka.sasl.username": "app",
        "kafka.sasl.password": "S3cr3t",
    }
    assert notes == []
    file.chmod(0o644)
    _, notes = source_options({}, str(file), {})
    assert notes == [f"{file} has secrets and others can read it; try: chmod 600 {file}"]


def test_a_secret_on_the_command_line_is_noted_once() -> None:
    """CL-244: by its name; it is in the list of processes."""
    given = ["kafka.sasl.password=S3cr3t", "kafka.ssl.key.password=S3cr3t", "kafka.client.id=x"]
    found, notes = source_options(pairs(given, "--option"), None, {})
    assert found["kafka.sasl.password"] == "S3cr3t"
    assert len(notes) == 1
    assert "kafka.sasl.password, kafka.ssl.key.password in the list of processes" in notes[0]
    assert "--option kafka.sasl.password=env:NAME" in notes[0]
    assert "S3cr3t" not in notes[0]
    assert storage_options(pairs(["key=AKIA", "secret=S3cr3t"], "--option"), {})[1] == [
        "every user of this machine can see key, secret in the list of processes; "
        "try: --storage-option key=env:NAME, or =@FILE"
    ]
    assert source_options(pairs(["schemaRegistry.basic.auth.user.info=a:b"], "--option"), None, {})[
        1
    ]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """CL-244"""
    with pytest.raises(ConfigurationError, match=r"kafka\.sasl\.password .*: the variable PW"):
        source_options(pairs(["kafka.sasl.password=env:PW"], "--option"), None, {})
    with pytest.raises(ConfigurationError, match=r"kafka\.sasl\.password"):
        source_options(pairs([f"kafka.sasl.password=@{tmp_path}/none"], "--option"), None, {})
    with pytest.raises(ConfigNotFoundError, match="there is no file"):
        source_options({}, str(tmp_path / "none.properties"), {})
