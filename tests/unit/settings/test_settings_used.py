"""Every setting that is accepted has an effect, or is refused, or is said to have none."""

from __future__ import annotations

import ast
import functools
import logging
from pathlib import Path
from typing import Any

import pytest

import kfast
from kfast.errors import ConfigurationError
from kfast.settings.names import SETTINGS
from tests.unit.configs import config

PACKAGE = Path(kfast.__file__).parent

PENDING: frozenset[str] = frozenset()
"""Settings that nothing reads yet. Must be empty; a setting that is read may not stay in here."""

REFUSED: dict[str, Any] = {
    "proxy_url": "http://proxy:3128",
    "metric_reporters": [object()],
    "enable_metrics_push": True,
    "enable_ssl_certificate_verification": False,
}
"""Settings that only their default is accepted of, and a value that is not."""

RULES = {
    "client_dns_lookup": "network/network_client.py",
    "security_protocol": "network/network_io.py",
}
"""Two samples of where a setting is known to be read, so that the search itself is tested."""


BY_NAME = {"security/sasl/sasl_settings.py"}
"""Modules that read settings by their names, because a JAAS line may have given them."""


def is_config(node: ast.expr) -> bool:
    """Return whether an expression is a ``ConsumerConfig`` by the names used in kfast."""
    names = {"config", "_config"}
    if isinstance(node, ast.Attribute):
        return node.attr in names
    return isinstance(node, ast.Name) and node.id in names


@functools.cache
def settings_read() -> dict[str, set[str]]:
    """Return which settings are read as attributes of a configuration, and in which modules."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name == "config.py" or name.startswith("settings/"):
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "config" in text or name in BY_NAME else ():
            if isinstance(node, ast.Attribute) and is_config(node.value) and node.attr in SETTINGS:
                found.setdefault(node.attr, set()).add(name)
            if isinstance(node, ast.Constant) and node.value in SETTINGS and name in BY_NAME:
                found.setdefault(str(node.value), set()).add(name)
    return found


def test_every_setting_is_read_or_refused() -> None:
    """E-02: nothing is accepted and then ignored."""
    read = settings_read()
    for name, module in RULES.items():
        assert module in read[name]
    unread = {name for name in SETTINGS if name not in read}
    assert unread - set(REFUSED) == PENDING
    assert set(SETTINGS) >= PENDING


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_not_there_is_refused(name: str) -> None:
    """E-02: with the reason, at construction."""
    with pytest.raises(ConfigurationError, match="not supported") as caught:
        config({name: REFUSED[name]})
    assert name in str(caught.value)
    assert caught.value.hint


def test_security_settings_without_effect_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """E-02, S-02: who sets a certificate authority and forgets the protocol is not protected."""
    with caplog.at_level(logging.WARNING, "kfast"):
        config({"ssl.cafile": "ca.pem"}, sasl_plain_password="hunter2")
    assert [record.getMessage() for record in caplog.records] == [
        "sasl_plain_password, ssl.cafile: no effect with security_protocol=PLAINTEXT"
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "kfast"):
        config({"ssl.cafile": "ca.pem"}, sasl_plain_password="hunter2", security_protocol="SSL")
    assert [record.getMessage() for record in caplog.records] == [
        "sasl_plain_password: no effect with security_protocol=SSL"
    ]
    caplog.clear()
    config()
    assert not caplog.records
