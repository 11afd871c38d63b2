"""ConsumerConfig: the object itself, and secrets."""

from __future__ import annotations

import getpass
import logging
import pickle
import traceback

import pytest

from kfast.config import ConsumerConfig, sealed
from kfast.errors import ConfigurationError
from kfast.settings.names import SETTINGS
from kfast.settings.secret import Secret
from tests.unit.configs import HERE, config, refusal


def test_a_configuration_cannot_be_changed() -> None:
    value = config()
    with pytest.raises(AttributeError, match="cannot be changed"):
        value.fetch_min_bytes = 5
    with pytest.raises(AttributeError):
        value.fetch_min_byte = 5  # type: ignore[attr-defined]
    assert value.fetch_min_bytes == 1


def test_what_was_given_is_known() -> None:
    value = config({"fetch.wait.max.ms": 500})
    assert value.was_given("fetch_max_wait_ms")
    assert not value.was_given("fetch_min_bytes")


def test_mappings_are_not_changed_and_may_be_any_mapping() -> None:
    settings = {"bootstrap.servers": HERE}
    ConsumerConfig(settings, fetch_min_bytes=2)
    assert settings == {"bootstrap.servers": HERE}


SECRETS = {name: row for name, row in SETTINGS.items() if row.is_secret}


def test_all_secrets_are_marked() -> None:
    """S-09"""
    assert set(SECRETS) == {
        "proxy_url",
        "sasl_jaas_config",
        "sasl_login_callback_handler_class",
        "sasl_oauthbearer_client_credentials_client_secret",
        "sasl_oauthbearer_config",
        "sasl_plain_password",
        "ssl_key_password",
        "ssl_keystore_certificate_chain",
        "ssl_keystore_key",
        "ssl_keystore_password",
        "ssl_truststore_certificates",
        "ssl_truststore_password",
    }


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_never_shown(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """S-09: not in repr, not in messages, not in chained exceptions, not in logs."""

    class Hunter2:
        def __repr__(self) -> str:
            return "hunter2"

    wrong: list[dict[str, object]] = [
        {name: [Hunter2()]},
        {name: "hunter2", name.replace("_", "."): "hunter22"},
        {name: 2, "sasl.password": "hunter2"},
    ]
    with caplog.at_level(logging.DEBUG):
        for settings in wrong:
            try:
                value = config(settings)
            except ConfigurationError as error:
                shown = "".join(traceback.format_exception(error))
                shown += repr(error.__dict__) + repr(pickle.loads(pickle.dumps(error)))
                assert "hunter2" not in shown.replace('"hunter2"', "")
            else:
                assert "hunter2" not in repr(value)
    assert "hunter2" not in caplog.text


def test_repr_shows_what_was_given_and_no_secret() -> None:
    """S-09"""
    value = config(fetch_min_bytes=5, sasl_plain_password="hunter2", sasl_username="app")
    assert repr(value) == (
        "ConsumerConfig(fetch_min_bytes=5, sasl_plain_password=<set>, "
        "sasl_plain_username='app', bootstrap_servers=(('localhost', 9092),))"
    )


def test_passwords_in_addresses_are_not_shown() -> None:
    """S-09: people put credentials into addresses by mistake."""
    for address in ("kafka://app:hunter2@b:9092", "app:hunter2@b:9092"):
        text = refusal(bootstrap_servers=address)
        assert "hunter2" not in text
        assert '"b:9092" is not host:port' in text


def test_a_pickled_configuration_has_its_secrets_and_shows_none() -> None:
    """S-09: a task on another machine needs them."""
    value = config({"sasl.password": "hunter2", "ssl.password": getpass.getuser})
    twin = pickle.loads(pickle.dumps(value))
    assert twin.sasl_plain_password == value.sasl_plain_password
    assert twin.sasl_plain_password.reveal() == "hunter2"
    assert twin.ssl_key_password.source is getpass.getuser
    assert twin.was_given("sasl_plain_password")
    for shown in (repr(value), repr(twin)):
        assert "sasl_plain_password=<set>" in shown
        assert "hunter2" not in shown


def test_a_secret_given_twice_may_be_the_same() -> None:
    """S-09: only whether the two are the same is looked at."""
    value = config({"sasl.password": "hunter2"}, sasl_plain_password="hunter2")
    assert value.sasl_plain_password == Secret("hunter2")
    with pytest.raises(ConfigurationError, match="given two values"):
        config({"sasl.password": "hunter2"}, sasl_plain_password="hunter3")


def test_sealed_settings_show_no_secret() -> None:
    """S-09: not even under a misspelled name, nor in a mapping of settings among them."""
    given: dict[str, object] = {
        "sasl.password": "hunter2",
        "sasl_plain_pasword": "hunter2",
        "config": {"ssl.key.pem": "hunter2", "group.id": "g"},
        "fetch_min_bytes": 5,
        "ssl_password": None,
    }
    found = sealed(given)
    assert "hunter2" not in repr(found)
    assert found["config"]["group.id"] == "g"
    assert (found["fetch_min_bytes"], found["ssl_password"]) == (5, None)
    assert sealed(found) == found
    assert given["sasl.password"] == "hunter2"
