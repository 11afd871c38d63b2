"""The examples in docstrings of public names run and print what they say."""

from __future__ import annotations

import doctest
import inspect
import struct
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final, Unpack

import numpy as np
import pytest

import kfast
from kfast.testing.batches import Record
from kfast.testing.server import BrokerServer
from tests.end_to_end.groups import cluster_of
from tests.fake_registry.server import FakeRegistry

NOT_RUN: Final = {
    "LocalKafka": "starts a Java; tests/integration is run with it",
    "LocalRegistry": "starts a Java; tests/integration is run with it",
}
"""Public names whose examples are not executed."""

BROKER: Final = "localhost:9092"
REGISTRY: Final = "http://localhost:8081"
FOLDER: Final = "/data"
START_MS: Final = 1_769_860_800_000
FLAGS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public() -> dict[str, Any]:
    """Return what of the package a program calls, and the package itself."""
    named = {name: getattr(kfast, name) for name in kfast.__all__}
    found = {name: value for name, value in named.items() if callable(value)}
    transactions = vars(kfast.transactions)
    found |= {
        f"transactions.{name}": value
        for name, value in transactions.items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    return found


def examples_of(value: Any) -> str:
    """Return the part of a docstring behind its heading."""
    return inspect.cleandoc(value.__doc__ or "").partition("Examples\n--------\n")[2]


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """Give the addresses of a cluster and of a registry by those of the examples."""
    cluster = cluster_of(1)
    cluster.features["group.version"] = 1
    values = {
        "int32s": [struct.pack(">i", number) for number in (1, 2)],
        "int64s": [struct.pack(">q", number) for number in (1, 2)],
        "float32s": [struct.pack(">f", number) for number in (0.5, 1)],
        "float64s": [struct.pack(">d", number) for number in (0.5, 1)],
        "ids": [str(uuid.UUID(int=1)).encode()],
        "readings": [struct.pack("<if", 7, 20.5)],
        "orders-old": [b"{}"],
    }
    for topic, written in values.items():
        cluster.create_topic(topic, 1)
        cluster.append(topic, 0, written)
    cluster.create_topic("orders", 2)
    web = (("source", b"web"),)
    for partition, number in ((0, 1), (0, 2), (1, 3)):
        value = b'{"id": %d, "price": 9.5}' % number
        record = Record(b"k%d" % number, value, web, START_MS + number)
        cluster.append("orders", partition, [record])
    with BrokerServer(cluster) as server, FakeRegistry() as registry:
        registry.register("orders-value", '"long"')
        yield {BROKER: server.bootstrap_servers, REGISTRY: registry.url}


def run(text: str, name: str, addresses: dict[str, str], folder: Path, **names: Any) -> None:
    for shown, real in addresses.items():
        text = text.replace(shown, real)
    text = text.replace(FOLDER, str(folder))
    scope: dict[str, Any] = {"kfast": kfast, "np": np, "Unpack": Unpack, **names}
    if "producer" in text:
        scope["producer"] = Producer()
        scope["records"] = SimpleNamespace(next_offsets=dict)
        scope["consumer"] = SimpleNamespace(group_metadata=lambda: kfast.ConsumerGroupMetadata("g"))
    test = doctest.DocTestParser().get_doctest(text, scope, name, None, None)
    assert test.examples, name
    said: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append, clear_globs=False)
    close_consumers(test.globs)
    assert outcome.failed == 0, "".join(said)


def close_consumers(scope: dict[str, Any]) -> None:
    for value in scope.values():
        if isinstance(value, kfast.KafkaConsumer):
            value.close()


class Producer:
    """Takes the calls of a transaction."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: None


@pytest.mark.parametrize("name", [*public()])
def test_a_public_name_has_an_example_that_runs(
    name: str, addresses: dict[str, str], tmp_path: Path
) -> None:
    """CL-236: its output is what is shown."""
    text = examples_of(public()[name])
    assert ">>> " in text, f"kfast.{name} has no example"
    if name not in NOT_RUN:
        run(text, name, addresses, tmp_path)


@pytest.mark.parametrize("name", ["subscribe", "poll", "commit", "offsets_for_times"])
def test_examples_of_the_consumer_run(name: str, addresses: dict[str, str], tmp_path: Path) -> None:
    """CL-236"""
    consumer = kfast.KafkaConsumer(bootstrap_servers=addresses[BROKER], group_id=name)
    with consumer:
        if name != "subscribe":
            consumer.assign([kfast.TopicPartition("orders", number) for number in range(2)])
        text = examples_of(getattr(kfast.KafkaConsumer, name))
        run(text, name, addresses, tmp_path, consumer=consumer, datetime=datetime)


@pytest.mark.parametrize("module", [kfast, kfast.transactions], ids=lambda module: module.__name__)
def test_examples_of_modules_run(
    module: ModuleType, addresses: dict[str, str], tmp_path: Path
) -> None:
    """CL-236"""
    run(inspect.cleandoc(module.__doc__ or ""), module.__name__, addresses, tmp_path)


def test_what_is_not_run_is_there() -> None:
    """CL-236"""
    assert {*NOT_RUN} <= {*public()}
