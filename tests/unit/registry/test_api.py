"""URLs, paths and answers of schema registries."""

from __future__ import annotations

import json
import pickle
import uuid
from typing import Any

import pytest

from kfast._base.http_exchange import HttpReply
from kfast.errors import (
    ConfigurationError,
    SchemaRegistryAuthenticationError,
    SchemaRegistryError,
)
from kfast.registry.api import (
    MAX_ANSWER_BYTES,
    MAX_REFERENCES,
    Absent,
    Failure,
    Outcome,
    RawSchema,
    path_of,
    read_reply,
    url_of,
)
from kfast.registry.registered_schema import RegisteredSchema, SchemaKey

URL = url_of("http://sr:8081/")
APICURIO = url_of("https://sr/apis/ccompat/v7")
ID = SchemaKey.of_id(7)
GUID = SchemaKey.of_guid("8F2B2C4E-0000-4000-8000-1234567890AB")
REFERENCE = {"name": "a.proto", "subject": "a", "version": 1}
JSON_TYPE = "application/vnd.schemaregistry.v1+json; charset=utf-8"


def read(
    status: int,
    body: object,
    key: SchemaKey = ID,
    kind: str = JSON_TYPE,
    *,
    is_serialized: bool = False,
    retry_after: str | None = None,
) -> Outcome:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": kind}
    if retry_after is not None:
        headers["retry-after"] = retry_after
    reply = HttpReply(status, headers, data)
    return read_reply(URL, key, reply, 1_700_000_000_000, is_serialized=is_serialized)


def failure(*args: Any, **more: Any) -> Failure:
    failed = read(*args, **more)
    assert isinstance(failed, Failure)
    text = str(failed.error)
    assert len(text.splitlines()) <= 6
    assert text.splitlines()[-1].startswith("try: ")
    assert pickle.loads(pickle.dumps(failed.error)).retriable == failed.error.retriable
    return failed


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://sr", "http://sr:80"),
        ("http://sr:8081/", "http://sr:8081"),
        ("HTTPS://SR.Example/a/b/ ", "https://sr.example:443/a/b"),
        ("http://[::1]:8081", "http://[::1]:8081"),
    ],
)
def test_urls(url: str, text: str) -> None:
    """TC-115"""
    assert url_of(url) == text


@pytest.mark.parametrize(
    "url",
    [
        "http://user:S3cr3t@sr",
        "http://S3cr3t@sr",
        "sr:8081",
        "ftp://sr",
        "http://",
        "http://sr:port/S3cr3t",
        "http://sr:99999/S3cr3t",
        "http://sr?key=S3cr3t",
        "http://sr#S3cr3t",
        "http://sr/S3cr3t x",
        "http://sr/\nS3cr3t",
        "http://[::1/S3cr3t",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    """TC-115: and are not shown, since they may have a secret in them."""
    with pytest.raises(ConfigurationError) as refused:
        url_of(url)
    assert "S3cr3t" not in str(refused.value)
    assert refused.value.hint


def test_paths() -> None:
    """TC-116"""
    assert path_of(URL, ID, is_serialized=False) == "/schemas/ids/7"
    assert path_of(URL, ID, is_serialized=True) == "/schemas/ids/7?format=serialized"
    assert path_of(URL, GUID, is_serialized=False) == (
        "/schemas/guids/8f2b2c4e-0000-4000-8000-1234567890ab"
    )
    subject = SchemaKey.of_version("a/b ü?", 3)
    base = url_of("http://sr/x")
    assert path_of(base, subject, is_serialized=False) == "/x/subjects/a%2Fb%20%C3%BC%3F/versions/3"
    latest = SchemaKey.of_version("orders-value")
    assert path_of(APICURIO, latest, is_serialized=True) == (
        "/apis/ccompat/v7/subjects/orders-value/versions/latest?format=serialized"
    )
    number = SchemaKey.of_global_id(9)
    assert path_of(URL, number, is_serialized=False) == "/schemas/ids/9"
    assert path_of(APICURIO, number, is_serialized=True) == (
        "/apis/registry/v3/search/versions?globalId=9"
    )


def test_guids() -> None:
    """TC-116: as text, as 16 bytes, as UUID."""
    one = uuid.UUID(str(GUID.value))
    assert SchemaKey.of_guid(one) == SchemaKey.of_guid(one.bytes) == GUID
    with pytest.raises(ValueError, match="UUID"):
        SchemaKey.of_guid("orders-value")


def test_a_schema() -> None:
    """TC-117: without schemaType it is Avro."""
    assert read(200, {"schema": '"int"'}) == RawSchema(RegisteredSchema("AVRO", '"int"', id=7))
    raw = read(
        200,
        {
            "schema": "syntax",
            "schemaType": "PROTOBUF",
            "id": 12,
            "guid": "g",
            "subject": "s",
            "version": 3,
            "references": [REFERENCE],
            "ruleSet": {"domainRules": [{"name": "check", "type": "CEL"}]},
        },
        SchemaKey.of_version("s"),
    )
    assert isinstance(raw, RawSchema)
    schema = raw.schema
    assert (schema.schema_type, schema.id, schema.version) == ("PROTOBUF", 12, 3)
    assert raw.references == (("a.proto", SchemaKey.of_version("a", 1)),)


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_not_found(code: int) -> None:
    """TC-118: only with an error code."""
    assert read(404, {"error_code": code, "message": "x"}) == Absent.SCHEMA


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b"<html>404 Not Found</html>", "text/html"),
        (404, b"", ""),
        (404, {"status": 404, "error": "Not Found"}, "application/json"),
        (200, b"<!doctype html><title>Grafana</title>", "text/html"),
        (200, b'{"schema": ', JSON_TYPE),
        (200, b"[" * 100_000, JSON_TYPE),
        (200, ["x"], JSON_TYPE),
        (200, {"schema": 3}, JSON_TYPE),
        (200, {"schema": "x", "schemaType": 3}, JSON_TYPE),
        (200, {"schema": "x", "references": [{"name": "a"}]}, JSON_TYPE),
        (200, {"schema": "x", "references": "a"}, JSON_TYPE),
        (200, {"schema": "x", "references": [3]}, JSON_TYPE),
        (200, {"schema": "x", "references": [REFERENCE] * (MAX_REFERENCES + 1)}, JSON_TYPE),
        (200, {"schema": "x", "references": [{**REFERENCE, "version": True}]}, JSON_TYPE),
        (200, {"schema": "x"}, "text/plain"),
        (204, b"", ""),
        (301, b"", ""),
        (400, b"Bad Request", "text/plain"),
    ],
)
def test_another_server(status: int, body: object, kind: str) -> None:
    """TC-118: HTML with 200, a 404 without a code, wrong JSON: not a schema registry."""
    error = failure(status, body, ID, kind).error
    assert not error.retriable
    assert error.message == "http://sr:8081 is not a schema registry: is the path right?"
    assert error.found is not None
    assert error.found.startswith(str(status))
    assert len(error.found) < 200


def test_a_body_that_is_too_large() -> None:
    """TC-118"""
    error = failure(200, b" " * (MAX_ANSWER_BYTES + 1)).error
    assert "more than 4194304 bytes" in str(error)


def test_a_registry_without_guids() -> None:
    """TC-119"""
    error = failure(404, b"", GUID, "").error
    assert "has no schemas by GUID" in error.message
    assert not error.retriable
    assert read(404, {"error_code": 40403}, GUID) == Absent.SCHEMA


@pytest.mark.parametrize("status", [401, 403])
def test_refusals(status: int) -> None:
    """TC-110"""
    error = failure(status, b"<html>S3cr3t", ID, "text/html").error
    assert isinstance(error, SchemaRegistryAuthenticationError)
    assert error.status == status
    assert not error.retriable
    assert "S3cr3t" not in str(error)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 599])
def test_what_may_pass(status: int) -> None:
    """TC-105"""
    failed = failure(status, b"<html>", ID, "text/html")
    assert failed.error.retriable
    assert str(status) in str(failed.error.cause)
    assert failed.retry_after_ms == 0


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("7", 7000),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10_000),
        ("Tue, 14 Nov 2023 22:13:30", 10_000),
        ("Tue, 14 Nov 2000 22:13:30 GMT", 0),
        ("999999999", 3_600_000),
        ("soon", 0),
        ("-5", 0),
        ("", 0),
    ],
)
def test_retry_after(text: str, ms: int) -> None:
    """TC-107: seconds or a date, at most an hour."""
    assert failure(429, b"", retry_after=text).retry_after_ms == ms


@pytest.mark.parametrize("status", [400, 404, 405, 422, 500])
def test_a_form_that_is_not_supported(status: int) -> None:
    """TC-111: 4xx or 500 to format=serialized."""
    assert read(status, b"", ID, "", is_serialized=True) == Absent.FORM
    assert read(503, b"", ID, "", is_serialized=True) != Absent.FORM
    assert read(404, {"error_code": 40403}, is_serialized=True) == Absent.SCHEMA
    assert isinstance(read(401, b"", is_serialized=True), Failure)


def test_a_key_that_is_refused() -> None:
    """TC-118: what the registry says is shown."""
    error = failure(422, {"error_code": 42202, "message": "The specified version\nis bad"}).error
    assert error.found == "422 The specified version is bad"


@pytest.mark.parametrize("kind", ["ENCRYPT", "ENCRYPT_PAYLOAD"])
def test_encrypted_fields_are_refused_by_name(kind: str) -> None:
    """TC-120"""
    rules = {"domainRules": [{"name": "pii", "type": kind, "mode": "WRITEREAD"}]}
    error = failure(200, {"schema": '"int"', "ruleSet": rules}).error
    assert isinstance(error, SchemaRegistryError)
    assert f'the rule "pii" ({kind})' in str(error)


def test_global_ids_of_apicurio() -> None:
    """TC-114"""
    key = SchemaKey.of_global_id(9)
    assert read(200, {"count": 1, "versions": [{"contentId": 4}]}, key) == SchemaKey.of_id(4)
    assert read(200, {"count": 0, "versions": []}, key) == Absent.SCHEMA
    assert isinstance(read(200, {"count": 1, "versions": [{}]}, key), Failure)


@pytest.mark.parametrize(
    ("kind", "text", "descriptor"),
    [
        ("PROTOBUF", "CgFh", b"\n\x01a"),
        ("PROTOBUF", "CgFh\n", b"\n\x01a"),
        ("PROTOBUF", 'syntax = "proto3";', None),
        ("PROTOBUF", "ü", None),
        ("PROTOBUF", "", None),
        ("AVRO", "CgFh", None),
    ],
)
def test_descriptors(kind: str, text: str, descriptor: bytes | None) -> None:
    """TC-111: base64 of a FileDescriptorProto is told from .proto text."""
    assert RegisteredSchema(kind, text).descriptor == descriptor
