"""Clients of a schema registry that the user brings."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kfast import SchemaRegistry
from kfast.registry.thread import NAME
from tests.fake_registry.server import FakeRegistry, fake_registry
from tests.unit.registry_cases import failing


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as server:
        yield server


class NotThereError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("S")
        self.http_status_code = status


class Client:
    """Duck-typed as confluent-kafka's."""

    def __init__(self, **results: Any) -> None:
        self.results = results
        self.calls: list[tuple[Any, ...]] = []

    def _result(self, name: str, *args: Any) -> Any:
        self.calls.append((name, *args, threading.current_thread().name))
        result = self.results[name]
        if isinstance(result, BaseException):
            raise result
        return result

    def get_schema(self, number: int) -> Any:
        return self._result("id", number)

    def get_latest_version(self, subject: str) -> Any:
        return self._result("latest", subject)

    def get_version(self, subject: str, version: int) -> Any:
        return self._result("version", subject, version)


def schema(text: str, kind: str = "AVRO", *references: Any, rules: Any = None) -> Any:
    return SimpleNamespace(schema_str=text, schema_type=kind, references=references, rule_set=rules)


def test_another_client_is_called() -> None:
    """TC-128: on the registry's thread only."""
    reference = SimpleNamespace(name="a.proto", subject="a", version=2)
    client = Client(
        id=schema("x", "PROTOBUF", reference),
        version=SimpleNamespace(schema=schema("a", "PROTOBUF"), schema_id=5, version=2),
        latest='"int"',
    )
    with SchemaRegistry(client) as registry:
        schema_of_7 = registry.schema(7)
        assert (schema_of_7.schema_type, schema_of_7.text, schema_of_7.id) == ("PROTOBUF", "x", 7)
        [only] = schema_of_7.references
        assert (only.schema.text, only.schema.id) == ("a", 5)
        assert registry.latest("s").schema_type == "AVRO"
        assert "has no get_schema_by_guid" in failing(registry.schema, str(uuid.uuid4())).message
        assert repr(registry) == "SchemaRegistry('client Client')"
    assert client.calls == [
        ("id", 7, NAME),
        ("version", "a", 2, NAME),
        ("latest", "s", NAME),
    ]


@pytest.mark.parametrize(
    ("result", "text", "is_retriable"),
    [
        (NotThereError(404), "has no schema id 1", False),
        (NotThereError(401), "did not accept the credentials", False),
        (NotThereError(503), "no answer", True),
        (ConnectionError("gone"), "no answer", True),
        (ValueError("bad"), "failed to look schema id 1 up", False),
        (SystemExit("U-06"), "failed to look schema id 1 up", False),
        (3, "returned int for schema id 1", False),
        (
            schema("x", rules=SimpleNamespace(domain_rules=[SimpleNamespace(type="ENCRYPT")])),
            "encrypts fields",
            False,
        ),
    ],
)
def test_another_client_that_fails(result: Any, text: str, is_retriable: bool) -> None:
    """TC-128"""
    deadline_ms = 300 if is_retriable else 20_000
    with SchemaRegistry(Client(id=result), deadline_ms=deadline_ms, retry_backoff_ms=1) as registry:
        error = failing(registry.schema, 1)
    assert text in str(error)
    assert error.retriable is is_retriable


def test_registries_of_the_same_client_are_equal() -> None:
    """TC-127, TC-128"""
    client = Client()
    assert SchemaRegistry(client) == SchemaRegistry(client)
    assert SchemaRegistry(client) != SchemaRegistry(Client())
