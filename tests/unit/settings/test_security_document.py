"""The blocks of docs/security.md: each is a configuration that a consumer accepts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfast.config import ConsumerConfig
from kfast.security.sasl import sasl_settings
from kfast.security.sasl.sasl_settings import SaslSettings
from kfast.settings.names import ALIASES, SETTINGS
from tests.document_examples import examples, sections

DOCUMENT = "docs/security.md"
VARIABLES = (
    "KEY_PASSWORD",
    "CONFLUENT_API_KEY",
    "CONFLUENT_API_SECRET",
    "CLIENT_SECRET",
    "MSK_PASSWORD",
    "EVENT_HUBS_CONNECTION_STRING",
)

BLOCKS = {
    "TLS": (examples("docs/security.md", "TLS"), ["SSL"]),
    "Confluent Cloud": (
        examples("docs/security.md", "Confluent Cloud"),
        ["SASL_SSL PLAIN", "SASL_SSL OAUTHBEARER"],
    ),
    "Amazon MSK": (
        examples("docs/security.md", "Amazon MSK"),
        ["SASL_SSL SCRAM-SHA-512", "SASL_SSL AWS_MSK_IAM"],
    ),
    "Azure Event Hubs": (
        examples("docs/security.md", "Azure Event Hubs"),
        ["SASL_SSL PLAIN", "SASL_SSL OAUTHBEARER"],
    ),
    "Strimzi": (
        examples("docs/security.md", "Strimzi"),
        ["SSL", "SASL_SSL SCRAM-SHA-512"],
    ),
    "Kerberos": (examples("docs/security.md", "Kerberos"), ["SASL_SSL GSSAPI"]),
}
"""What each section shows: its code, and protocol and mechanism of each block."""
RUN_ELSEWHERE = "A secured Kafka for tests"
"""Needs a broker."""


def configuration(block: str) -> ConsumerConfig:
    """Return the configuration of the consumer that a block makes."""
    made: list[ConsumerConfig] = []

    def consumer(*topics: str, **settings: Any) -> None:
        assert topics == ("orders",)
        made.append(ConsumerConfig(**settings))

    exec(block, {"kfast": SimpleNamespace(KafkaConsumer=consumer), "os": os, "Path": Path})
    (config,) = made
    return config


@pytest.mark.parametrize("heading", BLOCKS)
def test_the_settings_of_a_block_are_accepted(
    heading: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S-01, S-04: all of them, without a warning that one has no effect."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "x")
    # The package is compiled against a library of the system; its own tests have a stand-in.
    monkeypatch.setattr(sasl_settings, "gssapi_package", lambda: None)
    found = []
    shown, expected = BLOCKS[heading]
    for block in shown:
        config = configuration(block)
        text = config.security_protocol
        if text.startswith("SASL"):
            text += f" {SaslSettings.of(config).mechanism}"
        found.append(text)
    assert found == expected
    assert not caplog.records


def test_every_block_is_checked() -> None:
    assert {h for h in sections(DOCUMENT) if examples(DOCUMENT, h)} == {*BLOCKS, RUN_ELSEWHERE}


def test_settings_that_are_named_exist() -> None:
    text = "".join(sections(DOCUMENT).values())
    names = set(re.findall(r"\b(?:ssl|sasl)_[a-z_]+\b", text))
    assert len(names) > 20
    assert names <= set(SETTINGS) | set(ALIASES)
