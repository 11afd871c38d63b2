"""The grammar of sasl.jaas.config, and what each module means."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kfast
from kfast.errors import ConfigurationError
from kfast.settings.jaas import read_jaas
from kfast.settings.secret import Secret

PACKAGE = str(Path(kfast.__file__).parent)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"

USER = {"sasl_plain_username": "app", "sasl_plain_password": "S3cr3t"}
CLIENT = {
    "sasl_oauthbearer_client_credentials_client_id": "id",
    "sasl_oauthbearer_client_credentials_client_secret": "S3cr3t",
}


@pytest.mark.parametrize(
    ("line", "mechanism", "values"),
    [
        (f'{PLAIN} required username="app" password="S3cr3t";', "PLAIN", USER),
        (f"{PLAIN} required username=app password=S3cr3t;", "PLAIN", USER),
        (f"  {PLAIN}\trequired\n username = app\r\n password= S3cr3t ; ", "PLAIN", USER),
        (f"{PLAIN} REQUIRED username=app password=S3cr3t;", "PLAIN", USER),
        (f"{PLAIN} requisite username=app password=S3cr3t;", "PLAIN", USER),
        (f"{PLAIN} sufficient username=app password=S3cr3t;", "PLAIN", USER),
        (f"{PLAIN} optional username=app password=S3cr3t;", "PLAIN", USER),
        (f'{PLAIN} required password="S3cr3t" username="app";', "PLAIN", USER),
        (f'{PLAIN} required username="app"password="S3cr3t";', "PLAIN", USER),
        (f"{PLAIN} required;", "PLAIN", {}),
        (f'{PLAIN} required username="";', "PLAIN", {"sasl_plain_username": ""}),
        (f'{PLAIN} required username="a;b=c d";', "PLAIN", {"sasl_plain_username": "a;b=c d"}),
        (f'{PLAIN} required username="a\\"b\\\\";', "PLAIN", {"sasl_plain_username": 'a"b\\'}),
        (f'{PLAIN} required username="jü\nrgen";', "PLAIN", {"sasl_plain_username": "jü\nrgen"}),
        (f"{PLAIN} required username=$a'b!;", "PLAIN", {"sasl_plain_username": "$a'b!"}),
        (f"{PLAIN} required username='app' password='S3cr3t';", "PLAIN", USER),
        (f"{PLAIN} required username='a\\'\"b';", "PLAIN", {"sasl_plain_username": "a'\"b"}),
        (f"{PLAIN} required username=app password=S3cr3t user_x=y;", "PLAIN", USER),
        (f"kafkashaded.{PLAIN} required username=app password=S3cr3t;", "PLAIN", USER),
        (f"io.confluent.shaded.{PLAIN} required username=app password=S3cr3t;", "PLAIN", USER),
        (f"io.strimzi.{SCRAM} required username=app password=S3cr3t;", "SCRAM", USER),
        (f'{SCRAM} required username="app" password="S3cr3t";', "SCRAM", USER),
        (
            f'{SCRAM} required username="app" password="S3cr3t" tokenauth="true";',
            "SCRAM",
            USER | {"sasl_delegation_token": "true"},
        ),
        (f"{OAUTH} required;", "OAUTHBEARER", {}),
        (f"{OAUTH} required clientId=id clientSecret=S3cr3t;", "OAUTHBEARER", CLIENT),
        (
            f'{OAUTH} required clientId="id" clientSecret="S3cr3t" scope="a b";',
            "OAUTHBEARER",
            CLIENT | {"sasl_oauthbearer_scope": "a b"},
        ),
        (f"{KERBEROS} required useTicketCache=true;", "GSSAPI", {}),
        (
            f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="/k" principal="a@R";',
            "GSSAPI",
            {
                "useKeyTab": "true",
                "sasl_kerberos_keytab": "/k",
                "sasl_kerberos_principal": "a@R",
            },
        ),
        (
            f'{KERBEROS} required serviceName="kafka";',
            "GSSAPI",
            {"sasl_kerberos_service_name": "kafka"},
        ),
        (f"{IAM} required;", "AWS_MSK_IAM", {}),
        (f'{IAM} required awsProfileName="dev";', "AWS_MSK_IAM", {"awsProfileName": "dev"}),
        (
            f'{IAM} required awsRoleArn="arn:x" awsRoleSessionName="s" awsStsRegion="eu";',
            "AWS_MSK_IAM",
            {"awsRoleArn": "arn:x", "awsRoleSessionName": "s", "awsStsRegion": "eu"},
        ),
    ],
)
def test_a_line_is_read(line: str, mechanism: str, values: dict[str, str]) -> None:
    """S-04, S-10"""
    found = read_jaas(Secret(line))
    assert found.mechanism == mechanism
    assert {name: value.reveal() for name, value in found.values.items()} == values
    assert "S3cr3t" not in repr(found)


def test_extensions() -> None:
    """S-04: KIP-342."""
    line = f'{OAUTH} required extension_logicalCluster="lkc-1" extension_pool="p";'
    assert read_jaas(Secret(line)).extensions == {"logicalCluster": "lkc-1", "pool": "p"}


@pytest.mark.parametrize(
    ("line", "position"),
    [
        ("", 1),
        ("   ", 4),
        (";", 1),
        (f"{PLAIN}", len(PLAIN) + 1),
        (f'{PLAIN} username="S3cr3t";', len(PLAIN) + 10),
        (f"{PLAIN} required", len(PLAIN) + 10),
        (f'{PLAIN} required username="S3cr3t"', len(PLAIN) + 28),
        (f'{PLAIN} required username="S3cr3t', len(PLAIN) + 20),
        (f"{PLAIN} required username='S3cr3t';x", len(PLAIN) + 29),
        (f"{PLAIN} required username=;", len(PLAIN) + 20),
        (f"{PLAIN} required username;", len(PLAIN) + 19),
        (f"{PLAIN} required =S3cr3t;", len(PLAIN) + 11),
        (f'{PLAIN} required username="a\\S3cr3t";', len(PLAIN) + 20),
        (f"{PLAIN} required username=a username=S3cr3t;", len(PLAIN) + 31),
        (f"{PLAIN} required; {SCRAM} required password=S3cr3t;", len(PLAIN) + 11),
    ],
)
def test_a_line_that_cannot_be_read_is_not_shown(line: str, position: int) -> None:
    """S-09"""
    with pytest.raises(ConfigurationError) as refused:
        read_jaas(Secret(line))
    assert refused.value.message == f"sasl_jaas_config cannot be read at character {position}"
    assert "S3cr3t" not in _shown(refused.value)


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.sun.security.auth.module.Krb5LoginModuleX",
        "PlainLoginModule",
        "evil." + PLAIN,
        "software.amazon.msk.auth.iam.internals.Evil",
    ],
)
def test_other_modules_are_refused_by_name(module: str) -> None:
    """S-09, S-10: no class is loaded, and nothing else of the line is shown."""
    with pytest.raises(ConfigurationError, match="is not supported") as refused:
        read_jaas(Secret(f'{module} required user.provider.url="ldap://S3cr3t";'))
    assert module in str(refused.value)
    assert "S3cr3t" not in _shown(refused.value)


def test_unsigned_tokens_are_refused() -> None:
    """S-09"""
    with pytest.raises(ConfigurationError, match="unsigned tokens"):
        read_jaas(Secret(f'{OAUTH} required unsecuredLoginStringClaim_sub="admin";'))


PIECES = st.sampled_from([*'aZ.=;" \\\n\t', PLAIN, " required ", "S3cr3t"])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_text_is_read_or_refused(line: str) -> None:
    """S-09"""
    with contextlib.suppress(ConfigurationError):
        assert read_jaas(Secret(line)).mechanism == "PLAIN"


def _shown(error: BaseException) -> str:
    frames = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [frame for frame in frames.stack if frame.filename.startswith(PACKAGE)]
    assert ours
    return str(error) + "".join(repr(frame.locals) for frame in ours)
