"""Where settings come from: precedence, files, profiles, references, secrets."""

from __future__ import annotations

import logging
import pickle
import traceback
from pathlib import Path

import pytest

import kfast
from kfast.errors import ConfigNotFoundError, ConfigurationError
from kfast.settings.files import Entry
from kfast.settings.secret import Secret
from kfast.settings.sources import Loaded, load

CONFLUENT_CLOUD = """\
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-12345.eu-central-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username='KEY' password='hunter2';
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips

# Best practice for higher availability in Apache Kafka clients prior to 3.0
session.timeout.ms=45000

# Best practice for Kafka producer to prevent data loss
acks=all

# Required connection configs for Confluent Cloud Schema Registry
schema.registry.url=https://psrc-12345.eu-central-1.aws.confluent.cloud
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=SRKEY:hunter2
"""
"""As the console of Confluent Cloud hands it out."""


class Place:
    """A home with files of settings in it, and an environment."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.variables: dict[str, str] = {}

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    def load(
        self,
        file: Path | str | None = None,
        profile: str | None = None,
        environment: bool = True,
        options: dict[str, object] | None = None,
    ) -> Loaded:
        entries = [Entry.of(key, value, "-X") for key, value in (options or {}).items()]
        return load(file, profile, environment, options=entries, variables=self.variables)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


CONFIG = ".config/kfast/config.toml"
PROFILES = """\
current = "dev"
bootstrap.servers = "top:1"
[profiles.dev]
bootstrap.servers = "dev:1"
[profiles.prod]
bootstrap.servers = "prod:1"
[profiles.empty]
"""
FILES = {
    "f": ("f.properties", "bootstrap.servers=file:1\n"),
    "own": (CONFIG, PROFILES),
    "top": (CONFIG, 'bootstrap.servers = "top:1"\n'),
    "fetch": (CONFIG, "fetch.min.bytes = 7\n"),
    "blank": (CONFIG, "# nothing\n"),
    "kcat": (".config/kcat.conf", "metadata.broker.list=kcat:1\n"),
    "ftoml": ("f.toml", 'current = "x"\n[profiles.x]\nbootstrap.servers = "x:1"\n'),
    "ftop": ("f.toml", 'bootstrap.servers = "ftop:1"\n[profiles.x]\nbootstrap.servers = "x:1"\n'),
}
KFAST = {"KFAST_BOOTSTRAP_SERVERS": "kfast:1"}
KAFKA = {"KAFKA_BOOTSTRAP_SERVERS": "kafka:1"}
OTHER = {"KFAST_CONFIG": "other.toml"}

# What there is, the variables, file and profile of the options, and the server that is used.
PRECEDENCE = [
    ("-X f own kcat", KFAST | KAFKA, "f", "prod", "option:1"),
    ("-X", {}, None, None, "option:1"),
    ("-X own", {}, None, None, "option:1"),
    ("-X own", KFAST, None, "prod", "option:1"),
    ("-X f", {}, "f", None, "option:1"),
    ("f own kcat", KFAST | KAFKA, "f", "prod", "file:1"),
    ("f own", {}, "f", "prod", "file:1"),
    ("f own", KFAST, "f", None, "file:1"),
    ("f own", {}, "f", None, "file:1"),
    ("f kcat", {}, "f", None, "file:1"),
    ("f", KAFKA, "f", None, "file:1"),
    ("ftoml own", KFAST, "ftoml", None, "x:1"),
    ("ftoml own", KFAST, "ftoml", "x", "x:1"),
    ("ftoml own", KFAST, "ftoml", "prod", "prod:1"),
    ("ftop own", KFAST, "ftop", None, "ftop:1"),
    ("ftop own", KFAST, "ftop", "x", "x:1"),
    ("ftop own", KFAST, "ftop", "prod", "ftop:1"),
    ("own kcat", KFAST | KAFKA, None, "prod", "prod:1"),
    ("own", KAFKA, None, "prod", "prod:1"),
    ("own", {"KFAST_PROFILE": "dev"}, None, "prod", "prod:1"),
    ("own", KFAST, None, "empty", "kfast:1"),
    ("own", {}, None, "empty", "top:1"),
    ("own kcat", KFAST | KAFKA, None, None, "kfast:1"),
    ("", KFAST | KAFKA, None, None, "kfast:1"),
    ("kcat", KFAST, None, None, "kfast:1"),
    ("own kcat", KAFKA, None, None, "kafka:1"),
    ("", KAFKA, None, None, "kafka:1"),
    ("", {"KAFKA_BOOTSTRAP_SERVERS": ""}, None, None, "localhost:9092"),
    ("own", {}, None, None, "dev:1"),
    ("own", {"KFAST_PROFILE": "prod"}, None, None, "prod:1"),
    ("own", {"KFAST_PROFILE": ""}, None, None, "dev:1"),
    ("own", {"KFAST_PROFILE": "empty"}, None, None, "top:1"),
    ("own", OTHER, None, None, "other:1"),
    ("own", OTHER | {"KFAST_PROFILE": "o"}, None, None, "o:1"),
    ("own", {"KFAST_CONFIG": ""}, None, None, "dev:1"),
    ("top", {}, None, None, "top:1"),
    ("top kcat", {}, None, None, "top:1"),
    ("own", {"XDG_CONFIG_HOME": "relative"}, None, None, "dev:1"),
    ("fetch kcat", {}, None, None, "localhost:9092"),
    ("kcat", {}, None, None, "kcat:1"),
    ("blank kcat", {}, None, None, "kcat:1"),
    ("kcat", {"KCAT_CONFIG": "k.conf"}, None, None, "k:1"),
    ("own", {"KCAT_CONFIG": "k.conf"}, None, None, "dev:1"),
    ("", {}, None, None, "localhost:9092"),
]


@pytest.mark.parametrize(("there", "variables", "file", "profile", "server"), PRECEDENCE)
def test_the_first_place_that_has_a_setting_wins(
    there: str,
    variables: dict[str, str],
    file: str | None,
    profile: str | None,
    server: str,
    place: Place,
) -> None:
    """CL-91"""
    place.write(
        "other.toml", 'bootstrap.servers = "other:1"\n[profiles.o]\nbootstrap.servers="o:1"'
    )
    place.write("k.conf", "bootstrap.servers=k:1")
    words = there.split()
    options: dict[str, object] = {"bootstrap.servers": "option:1"} if "-X" in words else {}
    for name in {*words} - {"-X"}:
        place.write(*FILES[name])
    place.variables = variables
    found = place.load(file and FILES[file][0], profile, options=options)
    (entry,) = (
        found.entries.values() if "fetch" not in words else [found.entries["bootstrap_servers"]]
    )
    assert entry.value == server


def test_the_table_of_precedence_is_long_enough() -> None:
    """CL-91"""
    assert len(PRECEDENCE) >= 40


def test_each_setting_is_looked_for_by_itself_and_by_any_of_its_names(place: Place) -> None:
    """CL-91: a file of one client and variables of another meet in the same settings."""
    place.write(CONFIG, 'sasl.username = "low"\nclient.rack = "r"\n[profiles.p]\nclient_id = "p"')
    file = place.write("c.json", '{"sasl.plain.username": "high",\n "fetch.min.bytes": 5}')
    place.variables = {"KFAST_FETCH_WAIT_MAX_MS": "9", "KFAST_FETCH_MIN_BYTES": "6"}
    found = place.load(file, "p", options={"bootstrap_servers": "h:1"})
    assert {name: (entry.value, entry.origin) for name, entry in found.entries.items()} == {
        "bootstrap_servers": ("h:1", "-X"),
        "client_id": ("p", "~/.config/kfast/config.toml:4"),
        "client_rack": ("r", "~/.config/kfast/config.toml:2"),
        "fetch_min_bytes": (5, "~/c.json:2"),
        "fetch_max_wait_ms": ("9", "env KFAST_FETCH_WAIT_MAX_MS"),
        "sasl_plain_username": ("high", "~/c.json:1"),
    }
    config = kfast.ConsumerConfig(found.config())
    assert (config.fetch_max_wait_ms, config.sasl_plain_username) == (9, "high")


def test_a_named_profile_takes_nothing_from_the_current_one(place: Place) -> None:
    """CL-92: credentials of one cluster never go to another."""
    place.write(CONFIG, 'current="a"\n[profiles.a]\nsasl.password="x"\n[profiles.b]\nclient.id="b"')
    assert {*place.load(profile="b").entries} == {"client_id", "bootstrap_servers"}
    assert "sasl_plain_password" in place.load().entries


def test_only_what_is_named_is_read_from_the_current_folder(place: Place) -> None:
    """CL-92: a checkout does not choose where passwords go."""
    for name in ("config.toml", "kfast.toml", ".kfast.toml", "client.properties", "kcat.conf"):
        place.write(name, "bootstrap.servers = 'evil:1'")
    assert place.load().config() == {"bootstrap.servers": "localhost:9092"}


def test_the_library_reads_no_environment_by_itself(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-92"""
    place.write(CONFIG, 'bootstrap.servers = "own:1"\nfetch.min.bytes = 3')
    file = place.write("c.properties", "bootstrap.servers=f:1")
    monkeypatch.setenv("KFAST_GROUP_ID", "g")
    assert kfast.ConsumerConfig(bootstrap_servers="h:1").group_id is None
    assert kfast.ConsumerConfig.from_file(file).group_id is None
    assert kfast.load_config(file, environment=False) == {"bootstrap.servers": "f:1"}
    assert kfast.load_config(environment=False) == {}
    assert kfast.load_config() == {
        "bootstrap.servers": "own:1",
        "fetch.min.bytes": 3,
        "group.id": "g",
    }
    with kfast.KafkaConsumer("t", config=kfast.load_config()) as consumer:
        assert "group g" in repr(consumer)


# --- files ----------------------------------------------------------------------------------------


def test_an_unedited_file_of_confluent_cloud_works(place: Place) -> None:
    """CL-93: user and password come out of the JAAS line; other clients' keys are one note."""
    file = place.write("client.properties", CONFLUENT_CLOUD)
    found = place.load("client.properties", environment=False)
    config = kfast.ConsumerConfig(found.config())
    assert (config.security_protocol, config.sasl_mechanism) == ("SASL_SSL", "PLAIN")
    assert config.sasl_plain_username == "KEY"
    assert config.sasl_plain_password == Secret("hunter2")
    assert config.sasl_jaas_config is None
    assert found.entries["sasl_plain_username"].origin == "./client.properties:4"
    assert found.notes == ("./client.properties: ignored, for other clients: acks",)
    assert found.registry["basic_auth_user_info"].value == Secret("SRKEY:hunter2")
    twin = kfast.ConsumerConfig.from_file(file)
    assert twin.bootstrap_servers == config.bootstrap_servers
    with kfast.KafkaConsumer(config=found.config()):
        pass


def test_another_password_goes_with_the_user_of_a_jaas_line(place: Place) -> None:
    """CL-93"""
    place.write("c.properties", CONFLUENT_CLOUD.replace("PLAIN\n", "PLAIN\n"))
    found = place.load("c.properties", options={"sasl.password": "other"})
    assert found.entries["sasl_plain_username"].value == "KEY"
    assert found.entries["sasl_plain_password"].value == Secret("other")
    assert "sasl_jaas_config" not in found.entries


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("plain.PlainLoginModule required username=a password=b;", False),
        ("scram.ScramLoginModule required username=a password=b;", True),
        ("scram.ScramLoginModule required username=a password=b;\nsasl.mechanism=PLAIN", True),
        (
            "scram.ScramLoginModule required username=a password=b;\nsasl.mechanism=SCRAM-SHA-256",
            False,
        ),
        (
            "scram.ScramLoginModule required username=a password=b tokenauth=true;\n"
            "sasl.mechanism=SCRAM-SHA-256",
            True,
        ),
        ("plain.PlainLoginModule required username=a password=b;\nsasl.username=a", True),
    ],
)
def test_a_jaas_line_with_more_than_user_and_password_stays(
    line: str, kept: bool, place: Place
) -> None:
    """CL-93: the consumer checks it with the other settings, as it checks what a program gives."""
    file = place.write(
        "c.properties", f"sasl.jaas.config=org.apache.kafka.common.security.{line}\n"
    )
    given = place.load(file).entries
    assert ("sasl_jaas_config" in given) is kept
    if not kept:
        assert str(given["sasl_mechanism"].value) in {"PLAIN", "SCRAM-SHA-256"}


def test_a_file_of_java_has_names_of_classes_that_are_ignored(place: Place) -> None:
    """CL-93"""
    file = place.write(
        "consumer.properties",
        "bootstrap.servers=h:1\nkey.deserializer=org.apache.StringDeserializer\n"
        "interceptor.classes=io.confluent.X\nlinger.ms=5\nstatistics.interval.ms=1\n"
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor",
    )
    found = place.load(file)
    assert {*found.entries} == {"bootstrap_servers", "partition_assignment_strategy"}
    assert found.notes[0].endswith(
        "for other clients: key.deserializer, interceptor.classes, linger.ms, "
        "statistics.interval.ms"
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "client.properties",
            "a.b=1\n",
            'unknown config "a.b" (./client.properties:1)\ntry: see ConsumerConfig.describe()',
        ),
        (
            "client.properties",
            "\n\n# x\nfetch.min.bytez=1\n",
            'unknown config "fetch.min.bytez" (./client.properties:4)\n'
            "try: did you mean fetch.min.bytes (int, default 1)?",
        ),
        (
            "c.toml",
            "[profiles.p]\n\nfetch.min.bytes = 'many'\n",
            "bad value for fetch.min.bytes: 'many' (./c.toml:3)\ncause: not a whole number",
        ),
        ("c.json", '{\n"fetch.min.bytes": []}', "bad value for fetch.min.bytes: [] (./c.json:2)"),
        ("c.json", '{"ssl": {"context": "x"}}', "bad value for ssl.context: 'x' (./c.json)"),
        (
            "c.conf",
            "sasl.username=a\nsasl.plain.username=b",
            "sasl.username (./c.conf:1) and sasl.plain.username (./c.conf:2) are the same setting",
        ),
        ("c.toml", "x = ", "./c.toml: Invalid value"),
        ("c.toml", "\na = 1\na = 2\n", "./c.toml:3: Cannot overwrite a value"),
        ("c.toml", "current = 3", "./c.toml:1: current is the name of a profile in quotes"),
        ("c.toml", "\nprofiles = 3", "./c.toml:2: profiles are tables: [profiles.NAME]"),
        ("c.json", "[]", "./c.json: a JSON object of settings was expected"),
        ("c.json", "{\n]", "./c.json:2: Expecting property name enclosed in double quotes"),
        ("c.json", "[" * 100_000, "./c.json: too deeply nested"),
        ("c.conf", "a=1\nb=\\u", "./c.conf:2: \\u without four hexadecimal digits"),
        ("c.conf", "x" * (1 << 20) + "\n", "./c.conf is not a file of settings: it has more than"),
        (
            "c.conf",
            "sasl.jaas.config=org.x.LdapLoginModule required password=hunter2;",
            "sasl_jaas_config: the module org.x.LdapLoginModule is not supported (./c.conf:1)",
        ),
    ],
)
def test_mistakes_in_files_name_file_and_line(
    name: str, text: str, message: str, place: Place
) -> None:
    """CL-94"""
    place.write(name, text)
    with pytest.raises(ConfigurationError) as caught:
        place.load(name, "p" if "[profiles.p]" in text else None)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) <= 6


def test_what_is_not_there_is_named(place: Place) -> None:
    """CL-94"""
    place.write(CONFIG, PROFILES)
    for arguments, variables, message in (
        (("none.conf",), {}, "there is no file ./none.conf"),
        ((None, "prdo"), {}, 'no profile "prdo" in ~/.config/kfast/config.toml\nfound: dev, empty'),
        ((None, None), {"KFAST_PROFILE": "x"}, 'no profile "x" in ~/.config/kfast/config.toml'),
        ((None, None), {"KFAST_CONFIG": "y.toml"}, "there is no file ./y.toml (env KFAST_CONFIG)"),
        ((None, "x"), {"XDG_CONFIG_HOME": "/none"}, 'no profile "x": there is no /none/kfast/'),
    ):
        place.variables = variables
        with pytest.raises(ConfigNotFoundError) as caught:
            place.load(*arguments)
        assert str(caught.value).startswith(message)
    place.variables = {"KCAT_CONFIG": "z"}
    place.write(CONFIG, "")
    with pytest.raises(ConfigNotFoundError, match=r"no file ./z \(env KCAT_CONFIG\)"):
        place.load()
    with pytest.raises(ConfigurationError, match=r"cannot read ./.config: Is a directory"):
        place.load(".config")


def test_a_file_may_begin_with_a_byte_order_mark_and_is_text(place: Place) -> None:
    """CL-94"""
    place.write("c.conf", "\ufeffclient.id=x")
    assert place.load("c.conf").entries["client_id"].value == "x"
    (place.home / "c.conf").write_bytes(b"\xff\xfeclient")
    with pytest.raises(ConfigurationError, match=r"c.conf is not a file of settings: it is not"):
        place.load("c.conf")


# --- references and secrets -----------------------------------------------------------------------


def test_secrets_and_files_may_be_named_instead_of_written(place: Place) -> None:
    """CL-95"""
    place.write("run/pw", "hunter2\r\n")
    place.write(
        CONFIG,
        f"""sasl.password = "env:ORDERS_PW"
        ssl.key.password = "@{place.home}/run/pw"
        ssl.keystore.password = "@../../run/pw"
        ssl.truststore.password = "env::x"
        sasl.oauthbearer.client.secret = "@@x"
        ssl.ca.location = "env:CA"
        client.id = "env:ORDERS_PW"
        group.id = "@x"
        """,
    )
    place.variables = {"ORDERS_PW": "hunter3", "CA": "/ca.pem"}
    found = place.load().config()
    assert found["sasl.password"] == Secret("hunter3")
    assert found["ssl.key.password"] == found["ssl.keystore.password"] == Secret("hunter2")
    assert found["ssl.truststore.password"] == Secret("env:x")
    assert found["sasl.oauthbearer.client.secret"] == Secret("@x")
    assert found["ssl.ca.location"] == "/ca.pem"
    assert (found["client.id"], found["group.id"]) == ("env:ORDERS_PW", "@x")


def test_a_reference_that_leads_nowhere_names_variable_and_key(place: Place) -> None:
    """CL-95: and not what follows an @, which may be a password."""
    place.write("empty", "\n")
    for value, message in (
        ("env:NONE", "sasl.password (./c.toml:1): the variable NONE is not set"),
        ("@hunter2", "sasl.password (./c.toml:1): the file that @ names cannot be used: No such"),
        ("@empty", "sasl.password (./c.toml:1): the file that @ names cannot be used: it is empty"),
    ):
        place.write("c.toml", f'sasl.password = "{value}"')
        with pytest.raises(ConfigurationError) as caught:
            place.load("c.toml")
        assert str(caught.value).startswith(message)
        assert "hunter2" not in str(caught.value)
    # What another place gives anew is not looked for.
    assert "sasl_plain_password" in place.load("c.toml", options={"sasl.password": "x"}).entries


def test_a_file_with_a_password_that_others_can_read_is_one_note(place: Place) -> None:
    """CL-96"""
    text = 'sasl.password = "hunter2"\nssl.key.password = "x"\nsasl.username = "app"\n'
    path = place.write("c.toml", text)
    assert place.load("c.toml").notes == ()
    path.chmod(0o644)
    assert place.load("c.toml").notes == (
        "./c.toml has sasl.password, ssl.key.password and others can read it; "
        "try: chmod 600 ./c.toml",
    )
    place.variables = {"PW": "x"}
    place.write("c.toml", 'sasl.password = "env:PW"').chmod(0o644)
    assert place.load("c.toml").notes == ()


SECRET_FILES = [
    ("c.conf", "sasl.password=hunter2\nssl.keystore.key=hunter2\n"),
    ("c.conf", "sasl.pasword=hunter2\n"),
    ("c.conf", "sasl.password=hunter2\nsasl.plain.password=hunter2x\n"),
    ("c.conf", "sasl.password=hunter2\\u\n"),
    ("c.conf", "sasl.jaas.config=x required password=hunter2;\n"),
    ("c.toml", 'sasl.password = "hunter2"\nx = \n'),
    ("c.toml", "sasl.password = ['hunter2']\n"),
    ("c.toml", "proxy.url = 'hunter2'\nbasic.auth.user.info = 'hunter2'\n"),
    ("c.json", '{"sasl.password": "hunter2" x}'),
    ("c.json", '{"sasl.password": {"a": "hunter2"}}'),
]


@pytest.mark.parametrize(("name", "text"), SECRET_FILES)
def test_secrets_of_files_appear_nowhere(
    name: str, text: str, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """CL-96, S-09: not in messages, tracebacks with local variables, logs and representations."""
    place.write(name, text)
    with caplog.at_level(logging.DEBUG):
        try:
            found = place.load(name)
            shown = repr(found) + repr(found.config()) + repr(kfast.ConsumerConfig(found.config()))
        except ConfigurationError as error:
            shown = "".join(
                traceback.TracebackException.from_exception(error, capture_locals=True).format()
            ).replace(repr(text), "")
            shown += repr(error.__dict__) + repr(pickle.loads(pickle.dumps(error)))
            own = traceback.extract_tb(error.__traceback__)
            assert own
    assert "hunter2" not in shown.replace(text, "")
    assert "hunter2" not in caplog.text


def test_a_password_in_an_address_is_not_shown(place: Place) -> None:
    """CL-96, S-09"""
    place.write("c.conf", "bootstrap.servers=app:hunter2@h:1\n")
    with pytest.raises(ConfigurationError, match=r"bad value for bootstrap.servers") as caught:
        place.load("c.conf")
    assert "hunter2" not in str(caught.value)


def test_variables_that_are_no_settings_are_left_alone(place: Place) -> None:
    """CL-91"""
    place.variables = {"KFAST_HOME": "x", "KFAST_DEBUG": "1", "KFAST_ERRORS": "json", "HOME": "y"}
    place.variables["SCHEMA_REGISTRY_URL"] = "http://sr:8081"
    found = place.load()
    assert found.notes == ()
    assert found.registry["schema_registry_url"].value == Secret("http://sr:8081")
    assert found.left_alone == ("KFAST_DEBUG", "KFAST_HOME")
    assert {*found.entries} == {"bootstrap_servers"}
