"""Requests about SCRAM credentials and settings of a LocalKafka's running brokers.

Owns their layout (``requests`` sends them) and the salted passwords of RFC 5802, which the broker
is sent in place of the password.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Mapping
from typing import Final

from kfast.errors import LocalKafkaError
from kfast.local.requests import (
    NO_TAGS,
    Address,
    Reader,
    array,
    compact_array,
    compact_bytes,
    send_request,
    string,
)

SCRAM: Final[Mapping[str, tuple[int, str]]] = {
    "SCRAM-SHA-256": (1, "sha256"),
    "SCRAM-SHA-512": (2, "sha512"),
}
"""Kafka's number and the hash function of each mechanism."""

_DESCRIBE_CONFIGS: Final = (32, 1)
_INCREMENTAL_ALTER_CONFIGS: Final = (44, 0)
_DESCRIBE_SCRAM: Final = (50, 0)
_ALTER_SCRAM: Final = (51, 0)
"""API key and version."""
_BROKER: Final = 4
_SET: Final = 0
_SALT_BYTES: Final = 16


def alter_broker_config(address: Address, node_id: int, config: Mapping[str, str]) -> None:
    """Set dynamic settings of the broker at this address."""
    entries = [string(key) + struct.pack(">b", _SET) + string(config[key]) for key in config]
    resource = struct.pack(">b", _BROKER) + string(str(node_id)) + array(entries)
    body = array([resource]) + struct.pack(">?", False)
    response = send_request(address, *_INCREMENTAL_ALTER_CONFIGS, body)
    response.number(">i")  # throttle time
    response.number(">i")  # resources: the one that was sent
    error, message = response.number(">h"), response.string()
    if error:
        raise LocalKafkaError(
            f"broker {node_id} refuses new settings",
            cause=f"{message} (error {error})",
            node=node_id,
        )


def broker_config(address: Address, node_id: int, keys: Iterable[str]) -> dict[str, str | None]:
    """Return settings as the broker at this address applies them; waits for a change under way."""
    names = array(string(key) for key in keys)
    resource = struct.pack(">b", _BROKER) + string(str(node_id)) + names
    body = array([resource]) + struct.pack(">?", False)  # without synonyms
    response = send_request(address, *_DESCRIBE_CONFIGS, body)
    response.number(">i")  # throttle time
    response.number(">i")  # resources: the one that was asked for
    response.number(">h")  # error
    response.string()  # message
    response.number(">b")  # type
    response.string()  # name
    return dict(response.array(_read_entry))


def alter_scram_credentials(
    address: Address, passwords: Mapping[str, str], mechanism: str, iterations: int
) -> None:
    """Set the SCRAM credentials of users; brokers apply them one after another.

    KRaft takes one mechanism of a user per request.
    """
    credentials = [
        _credential(user, password, mechanism, iterations) for user, password in passwords.items()
    ]
    body = compact_array([]) + compact_array(credentials) + NO_TAGS
    response = send_request(address, *_ALTER_SCRAM, body, is_flexible=True)
    response.number(">i")  # throttle time
    for user, error, message in response.compact_array(_read_result):
        if error:
            raise LocalKafkaError(
                f'cannot set the password of user "{user}"', cause=f"{message} (error {error})"
            )


def _credential(user: str, password: str, mechanism: str, iterations: int) -> bytes:
    number, hash_name = SCRAM[mechanism]
    salt = os.urandom(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    return b"".join(
        (
            compact_bytes(user.encode()),
            struct.pack(">bi", number, iterations),
            compact_bytes(salt),
            compact_bytes(salted),
            NO_TAGS,
        )
    )


def scram_iterations(address: Address) -> dict[tuple[str, str], int]:
    """Return the iterations of each user and mechanism, as one broker knows them."""
    body = compact_array([]) + NO_TAGS  # of all users
    response = send_request(address, *_DESCRIBE_SCRAM, body, is_flexible=True)
    response.number(">i")  # throttle time
    response.number(">h")  # error
    response.compact_string()  # message
    names = {number: name for name, (number, _) in SCRAM.items()}
    return {
        (user, names[number]): iterations
        for user, credentials in response.compact_array(_read_user)
        for number, iterations in credentials
    }


def _read_entry(response: Reader) -> tuple[str, str | None]:
    entry = response.string() or "", response.string()
    response.number(">?")  # is read only
    response.number(">b")  # source
    response.number(">?")  # is sensitive
    response.number(">i")  # synonyms: none
    return entry


def _read_head(response: Reader) -> tuple[str, int, str | None]:
    """Read user, error code and message, the beginning of both results."""
    return response.compact_string() or "", response.number(">h"), response.compact_string()


def _read_result(response: Reader) -> tuple[str, int, str | None]:
    head = _read_head(response)
    response.tags()
    return head


def _read_user(response: Reader) -> tuple[str, list[tuple[int, int]]]:
    user, _, _ = _read_head(response)
    credentials = response.compact_array(_read_credential)
    response.tags()
    return user, credentials


def _read_credential(response: Reader) -> tuple[int, int]:
    number, iterations = response.number(">b"), response.number(">i")
    response.tags()
    return number, iterations
