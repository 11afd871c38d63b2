"""Creates and deletes topics on a LocalKafka, and waits until every broker's metadata has it.

Topics are created through confluent-kafka when it is installed, else with Kafka's ``TopicCommand``,
which takes a second or two longer. The brokers' metadata is updated one after another, so each is
asked for the topic's (``requests``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kfast.errors import LocalKafkaError
from kfast.local.requests import TIMEOUT_SECONDS, Address, Reader, array, send_request, string

_METADATA: Final = (3, 1)
"""API key and version."""
_UNKNOWN_TOPIC: Final = 3
_CHECK_SECONDS: Final = 0.02
_TOOL: Final = "org.apache.kafka.tools.TopicCommand"

RunTool = Callable[..., str]


def create_topic(
    run_tool: RunTool,
    bootstrap_servers: str,
    name: str,
    partitions: int,
    replication_factor: int,
    config: Mapping[str, str],
) -> None:
    """Create a topic; the metadata of other brokers may not have it yet."""
    try:
        from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415 - optional
    except ImportError:
        options = [f"{key}={value}" for key, value in config.items()]
        run_tool(
            *(_TOOL, "--bootstrap-server", bootstrap_servers, "--create", "--topic", name),
            *("--partitions", str(partitions), "--replication-factor", str(replication_factor)),
            *(word for option in options for word in ("--config", option)),
        )
        return
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    topic = NewTopic(name, partitions, replication_factor, config=dict(config))
    _finish(f'cannot create topic "{name}"', admin.create_topics([topic])[name])


def delete_topic(run_tool: RunTool, bootstrap_servers: str, name: str) -> None:
    """Delete a topic; the metadata of other brokers may still have it."""
    try:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - optional
    except ImportError:
        run_tool(_TOOL, "--bootstrap-server", bootstrap_servers, "--delete", "--topic", name)
        return
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    _finish(f'cannot delete topic "{name}"', admin.delete_topics([name])[name])


def _finish(what: str, future: Any) -> None:
    try:
        future.result(TIMEOUT_SECONDS)
    except Exception as error:
        reason = error.args[0] if error.args else error
        text = getattr(reason, "str", None)
        raise LocalKafkaError(what, cause=text() if text else str(reason)) from error


def wait_for_topic(
    addresses: Sequence[Address], name: str, partitions: int | None, timeout_ms: int
) -> None:
    """Wait until every broker has the topic with all its leaders, or no broker has it any more.

    ``partitions`` is the number there must be; None waits for the topic to be gone.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    for address in addresses:
        while True:
            error, leaders = topic_leaders(address, name)
            if partitions is None:
                is_settled = error == _UNKNOWN_TOPIC
            else:
                is_settled = not error and len(leaders) == partitions and min(leaders) >= 0
            if is_settled:
                break
            if time.monotonic() > deadline:
                state = "not deleted" if partitions is None else "not ready"
                raise LocalKafkaError(
                    f'topic "{name}" is {state} on {address[0]}:{address[1]}'
                    f" after {timeout_ms / 1000:.0f} s",
                    found=f"error {error}, leaders {leaders}",
                )
            time.sleep(_CHECK_SECONDS)


def topic_leaders(address: Address, name: str) -> tuple[int, list[int]]:
    """Request a topic's metadata of one broker: error code, and each partition's leader or -1."""
    response = send_request(address, *_METADATA, array([string(name)]))
    response.array(_skip_broker)
    response.number(">i")  # controller id
    ((error, leaders),) = response.array(_read_topic)
    return error, leaders


def _skip_broker(response: Reader) -> None:
    response.number(">i")  # id
    response.string()  # host
    response.number(">i")  # port
    response.string()  # rack


def _read_topic(response: Reader) -> tuple[int, list[int]]:
    error = response.number(">h")
    response.string()  # name
    response.number(">b")  # is internal
    return error, response.array(_read_leader)


def _read_leader(response: Reader) -> int:
    response.number(">h")  # error
    response.number(">i")  # partition
    leader = response.number(">i")
    for _ in range(2):  # replicas, in-sync replicas
        response.array(lambda reader: reader.number(">i"))
    return leader
