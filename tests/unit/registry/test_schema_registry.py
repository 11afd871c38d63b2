"""kfast.SchemaRegistry against registries that answer, refuse, redirect, hang and cut."""

from __future__ import annotations

import base64
import logging
import pickle
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

import kfast
from kfast import SchemaRegistry
from kfast.errors import (
    ConfigurationError,
    KafkaError,
    SchemaRegistryAuthenticationError,
)
from kfast.registry.registered_schema import SchemaKey
from kfast.registry.thread import NAME
from tests.fake_registry.server import (
    FakeRegistry,
    answer,
    cut,
    dropped,
    fake_registry,
    silent,
)
from tests.imported_modules import among, last_line_of
from tests.unit.registry_cases import AVRO, LIMIT_S, QUICK, SHORT, failing
from tests.unit.security.tls.authority import authority, certificate, key_pem, server_context


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as server:
        yield server


# --- schemas --------------------------------------------------------------------------------------


def test_schemas_are_found_by_id_guid_and_version(fake: FakeRegistry) -> None:
    """TC-116, TC-117"""
    fake.register("a/b ü", AVRO)
    number = fake.register("a/b ü", '"int"')
    with SchemaRegistry(fake.url) as registry:
        by_id = registry.schema(number)
        assert (by_id.schema_type, by_id.text, by_id.id) == ("AVRO", '"int"', number)
        assert registry.schema(fake.guid(number)).text == '"int"'
        assert registry.schema(uuid.UUID(fake.guid(number))).guid == fake.guid(number)
        latest = registry.latest("a/b ü")
        assert (latest.subject, latest.version, latest.id) == ("a/b ü", 2, number)
        assert registry.version("a/b ü", 1).text == AVRO
    [request, *_] = fake.requests
    assert request.method == "GET"
    assert request.headers["accept"].startswith("application/vnd.schemaregistry.v1+json")
    assert request.headers["user-agent"].startswith("kfast/")


def test_one_connection_serves_all_requests(fake: FakeRegistry) -> None:
    """TC-121: and one that the server has closed meanwhile is made anew."""
    for number in range(20):
        fake.register("s", f'"{number}"')
    with SchemaRegistry(fake.url, **QUICK) as registry:
        registry.schema(1)
        fake.answer_next(dropped)
        assert registry.schema(2).text == '"1"'
    assert fake.paths == ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/2"]


def test_references_are_fetched(fake: FakeRegistry) -> None:
    """TC-112"""
    fake.register("money", '"money"')
    fake.register("line", '"line"', references=[("t.Money", "money", 1)])
    number = fake.register("order", '"order"', references=[("t.Line", "line", 1)])
    with SchemaRegistry(fake.url) as registry:
        [money, line] = registry.schema(number).dependencies()
    assert (money.name, money.schema.text) == ("t.Money", '"money"')
    assert (line.subject, line.version, line.schema.references) == ("line", 1, (money,))


@pytest.mark.parametrize("has_serialized", [True, False])
def test_protobuf_is_asked_for_as_descriptors(fake: FakeRegistry, has_serialized: bool) -> None:
    """TC-111: once per registry, where it has no such form."""
    fake.has_serialized = has_serialized
    keys = [
        SchemaKey.of_id(fake.register("s", f"message M{n} {{}}", "PROTOBUF", descriptor=b"\x0a"))
        for n in range(3)
    ]
    with SchemaRegistry(fake.url) as registry:
        schemas = registry.wait_for(keys, is_serialized=True).schemas
    descriptors = {schemas[key].descriptor for key in keys}
    assert descriptors == ({b"\x0a"} if has_serialized else {None})
    assert len(fake.requests) == (3 if has_serialized else 4)


def test_what_is_not_there(fake: FakeRegistry) -> None:
    """TC-103, TC-118: an id is remembered as unknown."""
    fake.register("s", AVRO)
    with SchemaRegistry(fake.url) as registry:
        for call, args, text in (
            (registry.schema, (99,), "has no schema id 99"),
            (registry.latest, ("t",), 'has no latest version of subject "t"'),
            (registry.version, ("s", 9), 'has no version 9 of subject "s"'),
            (registry.preload, (1, "s", "t"), 'has no latest version of subject "t"'),
            (registry.schema, (99,), "has no schema id 99"),
        ):
            error = failing(call, *args)
            assert text in error.message
            assert error.status == 404
            assert not error.retriable
        registry.preload(1, "s")
    assert fake.paths.count("/schemas/ids/99") == 1


def test_a_key_that_is_none() -> None:
    registry = SchemaRegistry("http://127.0.0.1:1")
    for key in ("orders-value", True, None):
        with pytest.raises(ConfigurationError, match="is no schema id and no GUID"):
            registry.schema(key)  # type: ignore[arg-type]


# --- failures -------------------------------------------------------------------------------------


def test_a_registry_that_is_down(caplog: pytest.LogCaptureFixture) -> None:
    """TC-105, TC-106: a retriable error within the deadline; the next call tries again."""
    with fake_registry() as gone:
        url = gone.url
    with SchemaRegistry(url, **SHORT) as registry:
        began = time.monotonic()
        error = failing(registry.schema, 1)
        assert time.monotonic() - began < LIMIT_S / 2
        assert error.retriable
        assert error.cause == "connection refused"
        assert error.message == f"no answer from the schema registry {url} for schema id 1 in 0.6 s"
        failing(registry.schema, 1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_port_that_refuses_is_certain_within_two_seconds() -> None:
    """TC-147: with the timeouts that are the default."""
    with fake_registry() as gone:
        url = gone.url
    with SchemaRegistry(url) as registry:
        began = time.monotonic()
        error = failing(registry.schema, 1)
        assert time.monotonic() - began < 2.5
        assert error.message == f"no answer from the schema registry {url} for schema id 1 in 1 s"


def test_what_may_pass_is_tried_again(fake: FakeRegistry) -> None:
    """TC-105"""
    fake.register("s", AVRO)
    fake.answer_next(
        answer(503, b"<html>", "text/html"),
        answer(429, {"error_code": 42901}, Retry_After="0"),
        dropped,
        answer(500),
        cut(b'{"schema', 100),
    )
    with SchemaRegistry(fake.url, **QUICK) as registry:
        assert registry.schema(1).text == AVRO
    assert len(fake.requests) == 6


def test_an_answer_that_does_not_come(fake: FakeRegistry) -> None:
    """TC-129: the time of one answer is bounded, and so is that of the look-up."""
    released = threading.Event()
    fake.register("s", AVRO)
    fake.answer_next(silent(released))
    with SchemaRegistry(
        fake.url, timeout_ms=100, deadline_ms=20_000, retry_backoff_ms=1
    ) as registry:
        assert registry.schema(1).text == AVRO
    fake.answer_next(silent(released))
    with SchemaRegistry(fake.url, timeout_ms=20_000, deadline_ms=100) as registry:
        assert failing(registry.schema, 1).cause == "timed out"
    released.set()


def test_retry_after(fake: FakeRegistry) -> None:
    """TC-107: nothing is sent before it has passed."""
    fake.answer_next(answer(429, Retry_After="3600"))
    with SchemaRegistry(fake.url, **SHORT) as registry:
        assert "429" in str(failing(registry.schema, 1).cause)
    assert len(fake.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal(fake: FakeRegistry, status: int) -> None:
    """TC-110"""
    fake.answer_next(answer(status, {"error_code": status, "message": "not for you"}))
    with SchemaRegistry(fake.url, basic_auth=("app", "S3cr3t"), **QUICK) as registry:
        error = failing(registry.schema, 1)
    assert isinstance(error, SchemaRegistryAuthenticationError)
    assert f"found: {status} not for you" in str(error)
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "other",
    [
        answer(200, b"<!doctype html><title>Grafana</title>", "text/html"),
        answer(404, b"404 page not found\n", "text/plain"),
        answer(200, b" " * (5 << 20)),
        answer(200, b"{"),
        answer(204, b""),
    ],
)
def test_another_server(fake: FakeRegistry, other: Any) -> None:
    """TC-118: at once, and not as an unknown schema."""
    fake.answer_next(other)
    with SchemaRegistry(fake.url, **QUICK) as registry:
        error = failing(registry.schema, 1)
        assert "schema registry" in str(error)
        assert not error.retriable
        assert len(fake.requests) == 1
        fake.register("s", AVRO)
        assert registry.schema(1).text == AVRO  # the connection is in order


def test_what_does_not_speak_http() -> None:
    """TC-118"""
    from tests.unit.network.serving import serving  # noqa: PLC0415

    with (
        serving(lambda sock: sock.sendall(b"SSH-2.0-x\r\n\r\n")) as port,
        SchemaRegistry(f"http://127.0.0.1:{port}", **SHORT) as registry,
    ):
        assert "it does not speak HTTP" in str(failing(registry.schema, 1).cause)


def test_a_registry_without_guids(fake: FakeRegistry) -> None:
    """TC-119"""
    fake.has_guids = False
    fake.register("s", AVRO)
    with SchemaRegistry(fake.url) as registry:
        assert "has no schemas by GUID" in failing(registry.schema, fake.guid(1)).message


def test_encrypted_fields(fake: FakeRegistry) -> None:
    """TC-120"""
    rules = {"domainRules": [{"name": "pii", "kind": "TRANSFORM", "type": "ENCRYPT"}]}
    fake.register("s", AVRO, rule_set=rules)
    with SchemaRegistry(fake.url) as registry:
        assert 'the rule "pii" (ENCRYPT)' in str(failing(registry.schema, 1))


def test_redirects_are_followed_within_the_origin(fake: FakeRegistry) -> None:
    """TC-123: credentials go to no other server."""
    fake.register("s", AVRO)
    moved = answer(307, Location="/schemas/ids/1?moved=1")
    with SchemaRegistry(fake.url, **QUICK) as registry:
        fake.answer_next(moved, answer(301, Location=f"{fake.url}/schemas/ids/1"))
        assert registry.schema(1).text == AVRO
        assert fake.paths == ["/schemas/ids/1", "/schemas/ids/1?moved=1", "/schemas/ids/1"]
        fake.answer_next(*[moved] * 10)
        assert "307" in str(failing(registry.schema, 2).found)
    fake.next.clear()
    with fake_registry() as other:
        for location in (
            f"{other.url}/schemas/ids/1?token=S3cr3t",
            f"//127.0.0.1:{other.port}/x",
            f"https://127.0.0.1:{fake.port}/schemas/ids/1",
            "http://[",
        ):
            fake.answer_next(answer(302, Location=location))
            with SchemaRegistry(fake.url, basic_auth="a:b", **QUICK) as registry:
                error = failing(registry.schema, 1)
            assert "redirects to another server" in error.message
            assert "S3cr3t" not in str(error)
        assert other.requests == []


def test_servers_in_turn(fake: FakeRegistry) -> None:
    """TC-108"""
    fake.register("s", AVRO)
    with fake_registry() as gone:
        first = gone.url
    for urls in (f"{first}, {fake.url}", [first, fake.url]):
        with SchemaRegistry(urls, **QUICK) as registry:
            assert registry.schema(1).text == AVRO


# --- credentials ----------------------------------------------------------------------------------


def test_credentials(fake: FakeRegistry) -> None:
    """TC-124: basic, bearer and headers of the caller's."""
    fake.register("s", AVRO)
    fake.authorization = "Basic " + base64.b64encode("app:S3cr3t:ü".encode()).decode()
    for user in (("app", "S3cr3t:ü"), "app:S3cr3t:ü"):
        with SchemaRegistry(fake.url, basic_auth=user, headers={"X-Tenant": "t1"}) as registry:
            assert registry.schema(1)
    assert fake.requests[-1].headers["x-tenant"] == "t1"
    fake.authorization = "Bearer T0ken"
    with SchemaRegistry(fake.url, bearer_token="T0ken") as registry:
        assert registry.schema(1)
    with SchemaRegistry(fake.url, bearer_token="other") as registry:
        assert isinstance(failing(registry.schema, 1), SchemaRegistryAuthenticationError)


def test_a_token_is_asked_for_again_after_a_401(fake: FakeRegistry) -> None:
    """TC-124: once per refusal, on the registry's thread."""
    fake.register("s", AVRO)
    fake.register("s", '"int"')
    tokens = iter(["T1", "T2", "T3"])
    threads = []

    def token() -> str:
        threads.append(threading.current_thread().name)
        return next(tokens)

    fake.authorization = "Bearer T1"
    with SchemaRegistry(fake.url, bearer_token=token) as registry:
        registry.schema(1)
        fake.authorization = "Bearer T2"
        registry.schema(2)
        fake.authorization = "Bearer none"
        assert isinstance(failing(registry.schema, 3), SchemaRegistryAuthenticationError)
    assert threads == [NAME] * 3


@pytest.mark.parametrize("result", ["", None, "a\nb", RuntimeError("S3cr3t")])
def test_a_token_callable_that_fails(fake: FakeRegistry, result: Any) -> None:
    """TC-124"""

    def token() -> str:
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    with SchemaRegistry(fake.url, bearer_token=token) as registry:
        error = failing(registry.schema, 1)
    assert isinstance(error, SchemaRegistryAuthenticationError)
    assert "bearer_token" in error.message
    assert "S3cr3t" not in str(error)


def test_tls(tmp_path: Path) -> None:
    """TC-122: the certificate is verified; a client certificate is shown."""
    ca, other = tmp_path / "ca.pem", tmp_path / "other.pem"
    authority().cert_pem.write_to_path(ca)
    trustme.CA().cert_pem.write_to_path(other)
    leaf = certificate("client.example")
    chain, key = tmp_path / "client.pem", tmp_path / "key.pem"
    chain.write_text("".join(pem.bytes().decode() for pem in leaf.cert_chain_pems))
    key.write_text(key_pem(leaf, "S3cr3t"))
    both = tmp_path / "both.pem"
    leaf.private_key_and_cert_chain_pem.write_to_path(both)
    trusting = {"ssl_cafile": str(ca), **QUICK}
    with fake_registry(context=server_context(client_ca=authority())) as fake:
        fake.register("s", AVRO)
        clients: tuple[dict[str, Any], ...] = (
            {"ssl_certfile": str(both)},
            {"ssl_certfile": chain, "ssl_keyfile": key, "ssl_key_password": "S3cr3t"},
        )
        for client in clients:
            named: dict[str, Any] = {name: str(value) for name, value in client.items()}
            with SchemaRegistry(fake.url, **trusting, **named) as registry:
                assert registry.schema(1).text == AVRO
        with SchemaRegistry(fake.url, ssl_cafile=str(ca), **SHORT) as registry:
            assert failing(registry.schema, 1).retriable  # no client certificate
        with SchemaRegistry(
            fake.url, ssl_certfile=str(chain), ssl_keyfile=str(key), **trusting
        ) as registry:
            assert "is encrypted" in str(failing(registry.schema, 1))
    with fake_registry(context=server_context()) as fake:
        distrusting: list[dict[str, Any]] = [{"ssl_cafile": str(other)}, {}]
        for arguments in distrusting:
            with SchemaRegistry(fake.url, **arguments, **QUICK) as registry:
                error = failing(registry.schema, 1)
                assert "is not trusted" in error.message
                assert error.command_hint != error.hint
        with SchemaRegistry(fake.url, ssl_cafile=str(tmp_path / "none"), **QUICK) as registry:
            assert "ssl_cafile: no such file" in str(failing(registry.schema, 1))
    with fake_registry(context=server_context(certificate("b2.example"))) as fake:
        fake.register("s", AVRO)
        with SchemaRegistry(fake.url, **trusting) as registry:
            assert "is not trusted" in failing(registry.schema, 1).message
        with SchemaRegistry(fake.url, ssl_check_hostname=False, **trusting) as registry:
            assert registry.schema(1)


# --- the object -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"url": ""}, "no URL"),
        ({"url": []}, "no URL"),
        ({"url": 3}, "is no URL and has no get_schema"),
        ({"url": "http://a:S3cr3t@sr"}, "has a user name in it"),
        ({"basic_auth": "app"}, "basic_auth"),
        ({"basic_auth": ("a:b", "c")}, "basic_auth"),
        ({"basic_auth": ("a", 3)}, "basic_auth"),
        ({"basic_auth": "a:b", "bearer_token": "t"}, "both given"),
        ({"bearer_token": 3}, "bearer_token"),
        ({"ssl_cafile": "x"}, "has no effect with http"),
        ({"url": "https://sr", "ssl_keyfile": "x"}, "without ssl_certfile"),
        ({"url": "https://sr", "ssl_certfile": "x", "ssl_key_password": 3}, "ssl_key_password"),
        ({"headers": {"a b": "c"}}, "headers"),
        ({"headers": {"X": "c\r\nY: d"}}, "headers"),
        ({"headers": {"X": 3}}, "headers"),
        ({"headers": {"authorization": "S3cr3t"}}, "headers"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"deadline_ms": 1.5}, "deadline_ms"),
        ({"max_schemas": True}, "max_schemas"),
        ({"miss_cache_ms": -1}, "miss_cache_ms"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], text: str) -> None:
    """TC-115: at construction, without showing what may be secret."""
    with pytest.raises(ConfigurationError, match=text) as refused:
        SchemaRegistry(**{"url": "http://sr", **arguments})
    assert "S3cr3t" not in str(refused.value)
    assert refused.value.hint


SECRETS: dict[str, Any] = {
    "basic_auth": ("app", "S3cr3t"),
    "ssl_cafile": "ca.pem",
    "ssl_certfile": "c.pem",
    "ssl_key_password": "S3cr3t",
    "headers": {"X-Key": "S3cr3t"},
    "timeout_ms": 5,
}


def test_it_pickles_and_compares() -> None:
    """TC-127: equal arguments are the same registry; a pickle has all of them."""
    registry = SchemaRegistry("https://sr:8443/x", **SECRETS)
    twin = pickle.loads(pickle.dumps(registry))
    assert twin == registry
    assert hash(twin) == hash(registry)
    assert repr(twin) == repr(registry)
    assert registry != SchemaRegistry("https://sr:8443/x")
    assert registry != SchemaRegistry("https://sr:8443/x", **{**SECRETS, "headers": {"X-Key": "2"}})
    assert registry != "https://sr:8443/x"
    assert pickle.loads(pickle.dumps(SchemaRegistry("http://a,http://b"))).url == (
        "http://a:80,http://b:80"
    )


def test_secrets_are_shown_nowhere(fake: FakeRegistry, caplog: pytest.LogCaptureFixture) -> None:
    """TC-121: repr, logs and errors."""
    caplog.set_level(logging.DEBUG)
    shown = repr(SchemaRegistry("https://sr", **SECRETS))
    assert shown == (
        "SchemaRegistry('https://sr:443', basic_auth=<secret>, ssl_cafile='ca.pem', "
        "ssl_certfile='c.pem', ssl_key_password=<secret>, headers=<secret>, timeout_ms=5)"
    )
    secret: dict[str, Any] = {"headers": {"X-Key": "S3cr3t"}, "bearer_token": "S3cr3t"}
    fake.answer_next(answer(503), answer(401), answer(200, b"<html>", "text/html"))
    with SchemaRegistry(fake.url, **secret, **QUICK) as registry:
        errors = [failing(registry.schema, 1), failing(registry.schema, 1)]
        shown = repr(registry) + repr(registry._thread) + "".join(map(str, errors))
    assert "S3cr3t" not in shown + caplog.text


def test_nothing_is_loaded_that_is_not_needed() -> None:
    """TC-121: not with kfast, and no HTTP before the first request."""
    program = """
import json, sys, kfast
kfast.KafkaConsumer(bootstrap_servers="localhost:1").close()
before = sorted(sys.modules)
kfast.SchemaRegistry("http://sr")
print(json.dumps([before, sorted(sys.modules)]))
"""
    before, after = last_line_of(program)
    ours = (
        "kfast.registry.schema_registry",
        "kfast.registry.lookups",
        "kfast.registry.registered_schema",
    )
    assert among(before, *ours) == []
    assert among(after, "http", "ssl", "kfast.registry.transport") == []


def test_the_name_is_public() -> None:
    assert kfast.SchemaRegistry is SchemaRegistry
    assert issubclass(SchemaRegistryAuthenticationError, KafkaError)
