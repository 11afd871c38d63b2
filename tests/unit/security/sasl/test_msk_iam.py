"""AWS_MSK_IAM: tokens of the package that signs them, with made-up credentials, without Amazon."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from kfast.errors import AuthenticationError, ConfigurationError
from kfast.security.sasl.msk_iam import MskIamProvider, region_of
from kfast.security.sasl.sasl_settings import SaslSettings
from kfast.security.sasl.token_provider import token_source
from kfast.settings.secret import Secret
from kfast.types import OAuthToken
from tests.unit.configs import config

moto = pytest.importorskip("moto")

IAM = "software.amazon.msk.auth.iam.IAMLoginModule required"
ROLE = "arn:aws:iam::123456789012:role/reader"
KEY, PROFILE_KEY = "AKIAKEYOFTHEVARIABLES", "AKIAKEYOFAPROFILE"


def source(line: str | None = None, protocol: str = "SASL_SSL") -> Callable[[], OAuthToken]:
    """Return what a log-in asks for its token."""
    settings = {"bootstrap.servers": "b-1.c.x.kafka.eu-west-1.amazonaws.com:9098"}
    settings |= {"sasl.mechanism": "AWS_MSK_IAM"} if line is None else {"sasl.jaas.config": line}
    found = SaslSettings.of(config({"security.protocol": protocol, **settings}))
    assert isinstance(found.provider, MskIamProvider)
    return token_source(found.provider, Secret(""), found.mechanism)


@pytest.fixture(autouse=True)
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in variables, and others in a profile; none of this machine."""
    path = tmp_path / "credentials"
    path.write_text(
        f"[dev]\naws_access_key_id = {PROFILE_KEY}\naws_secret_access_key = S3cr3t-of-profile\n"
    )
    for name, value in (
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", "S3cr3t-of-variables"),
        ("AWS_SHARED_CREDENTIALS_FILE", str(path)),
        ("AWS_CONFIG_FILE", str(tmp_path / "none")),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (None, KEY),
        (f"{IAM};", KEY),
        (f'{IAM} awsProfileName="dev";', PROFILE_KEY),
        (f'{IAM} awsRoleArn="{ROLE}";', None),
        (f'{IAM} awsRoleArn="{ROLE}" awsRoleSessionName="orders";', None),
    ],
)
def test_a_token_is_a_signed_url(line: str | None, key: str | None) -> None:
    """S-15: for the region of the brokers, by the credentials that the settings name."""
    with moto.mock_aws() if key is None else nullcontext():  # its STS gives a role some credentials
        token = source(line)()
    url = urlsplit(base64.urlsafe_b64decode(token.value + "=" * (-len(token.value) % 4)).decode())
    query = {name: value for name, (value,) in parse_qs(url.query).items()}
    assert url.netloc == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    signer, _, region, service, _ = query["X-Amz-Credential"].split("/")
    assert (region, service) == ("eu-west-1", "kafka-cluster")
    assert signer == key or (key is None and signer.startswith("ASIA"))
    assert len(query["X-Amz-Signature"]) == 64
    assert token.expires_at_ms is not None
    left_s = token.expires_at_ms / 1000 - time.time()
    assert 800 < left_s <= 900
    assert "S3cr3t" not in repr(query)


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-15"""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(AuthenticationError) as caught:
        source()()
    assert str(caught.value).splitlines() == [
        "no OAuth token: the AWS SDK finds no credentials",
        "try: set AWS_PROFILE or AWS_ACCESS_KEY_ID, or give this machine a role",
    ]
    with pytest.raises(AuthenticationError) as caught:
        source(f'{IAM} awsProfileName="nope";')()
    assert caught.value.cause is not None
    assert caught.value.cause.startswith("ProfileNotFound")


def test_it_needs_tls() -> None:
    """S-09"""
    with pytest.raises(ConfigurationError, match="needs TLS"):
        source(protocol="SASL_PLAINTEXT")
    with pytest.raises(ConfigurationError, match="awsStsRegion is not supported"):
        source(f'{IAM} awsStsRegion="eu";')


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.demo.abc.c2.kafka.us-east-1.amazonaws.com", "us-east-1"),
        ("BOOT-x.c1.kafka-serverless.eu-west-3.amazonaws.com.", "eu-west-3"),
        ("b-1.demo.abc.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
    ],
)
def test_the_region_is_in_the_host_name(host: str, region: str) -> None:
    """S-15"""
    assert region_of(["other", host], {}) == region


def test_the_region_of_another_host_is_in_the_environment() -> None:
    """S-15"""
    assert region_of(["b1"], {"AWS_REGION": "a", "AWS_DEFAULT_REGION": "b"}) == "a"
    assert region_of(["b1"], {"AWS_DEFAULT_REGION": "b"}) == "b"
    with pytest.raises(ConfigurationError, match="needs the region"):
        region_of(["kafka.eu-west-1.amazonaws.com.evil"], {})
