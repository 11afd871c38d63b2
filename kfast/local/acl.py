"""Acl: one rule of a LocalKafka's authorizer, and the requests that add, remove and list rules.

Owns Kafka's numbers for resource types, operations and permissions, and their layout in the
messages; ``requests`` sends them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final

from kfast.errors import ConfigurationError, LocalKafkaError, did_you_mean
from kfast.local.requests import Address, Reader, array, send_request, string

OPERATIONS: Final[Mapping[str, int]] = {
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
    "CREATE_TOKENS": 13,
    "DESCRIBE_TOKENS": 14,
    "TWO_PHASE_COMMIT": 15,
}
_PERMISSIONS: Final[Mapping[str, int]] = {"DENY": 2, "ALLOW": 3}
_TOPIC, _GROUP, _CLUSTER, _TRANSACTIONAL_ID = 2, 3, 4, 5
_LITERAL, _PREFIXED = 3, 4
_CLUSTER_NAME: Final = "kafka-cluster"

_DESCRIBE_ACLS: Final = (29, 1)
_CREATE_ACLS: Final = (30, 1)
_DELETE_ACLS: Final = (31, 1)
"""API key and version."""
_SECURITY_DISABLED: Final = 54


@dataclass(slots=True, frozen=True)
class Acl:
    """What one principal may do, or may not do, with one resource.

    Parameters
    ----------
    principal : str
        Such as ``"User:app"``; ``"User:*"`` is every user.
    operation : str
        Kafka's name, such as ``"READ"`` or ``"ALL"``.
    topic, group, transactional_id : str, optional
        Name of the resource; ``"*"`` is all of its kind, a name that ends in ``*`` is a prefix.
        Without any of them the resource is the cluster.
    permission : str
        ``"ALLOW"`` or ``"DENY"``.
    host : str
        Address of the client, ``"*"`` for any.

    Examples
    --------
    >>> kfast.Acl("User:app", "READ", topic="orders").permission
    'ALLOW'
    >>> billing = kfast.Acl("User:app", "READ", group="billing-*")
    """

    principal: str
    operation: str
    _: KW_ONLY
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    permission: str = "ALLOW"
    host: str = "*"

    def __post_init__(self) -> None:
        kind, _, name = self.principal.partition(":")
        if not kind or not name:
            raise ConfigurationError(
                f'principal = "{self.principal}": not TYPE:NAME', hint='such as "User:app"'
            )
        for field, value, choices in (
            ("operation", self.operation, OPERATIONS),
            ("permission", self.permission, _PERMISSIONS),
        ):
            if value not in choices:
                nearest = did_you_mean(value, choices)
                raise ConfigurationError(
                    f'{field} = "{value}": not one of {", ".join(choices)}',
                    hint=None if nearest is None else f'did you mean "{nearest}"?',
                )
        if sum(name is not None for name in (self.topic, self.group, self.transactional_id)) > 1:
            raise ConfigurationError("an Acl is about one topic, group or transactional id")

    def _resource(self) -> tuple[int, str, int]:
        """Return type, name and pattern type."""
        kind, name = next(
            (kind, name)
            for kind, name in (
                (_TOPIC, self.topic),
                (_GROUP, self.group),
                (_TRANSACTIONAL_ID, self.transactional_id),
                (_CLUSTER, _CLUSTER_NAME),
            )
            if name is not None
        )
        if name.endswith("*") and name != "*":
            return kind, name[:-1], _PREFIXED
        return kind, name, _LITERAL

    def encoded(self) -> bytes:
        """Return the rule as an element of CreateAcls; also a filter that matches it alone."""
        kind, name, pattern = self._resource()
        return b"".join(
            (
                struct.pack(">b", kind),
                string(name),
                struct.pack(">b", pattern),
                string(self.principal),
                string(self.host),
                struct.pack(">bb", OPERATIONS[self.operation], _PERMISSIONS[self.permission]),
            )
        )


def create_acls(address: Address, acls: Iterable[Acl]) -> None:
    """Add rules; brokers apply them one after another."""
    response = send_request(address, *_CREATE_ACLS, array(acl.encoded() for acl in acls))
    response.number(">i")  # throttle time
    response.array(lambda entry: _check("cannot add ACLs", entry))


def delete_acls(address: Address, acls: Iterable[Acl]) -> None:
    """Remove rules; one that is not there is no error."""
    response = send_request(address, *_DELETE_ACLS, array(acl.encoded() for acl in acls))
    response.number(">i")  # throttle time
    response.array(_check_removal)


def has_acl(address: Address, acl: Acl) -> bool:
    """Return whether a broker applies a rule."""
    response = send_request(address, *_DESCRIBE_ACLS, acl.encoded())
    response.number(">i")  # throttle time
    _check("cannot list ACLs", response)
    return response.number(">i") > 0


def _check(failure: str, response: Reader) -> None:
    error, message = response.number(">h"), response.string()
    if error:
        raise LocalKafkaError(
            failure,
            cause=f"{message} (error {error})",
            hint="LocalKafka(acls=[]) has an authorizer" if error == _SECURITY_DISABLED else None,
        )


def _check_removal(response: Reader) -> None:
    _check("cannot remove ACLs", response)
    response.array(_skip_match)


def _skip_match(response: Reader) -> None:
    response.number(">h")  # error
    response.string()  # message
    response.number(">b")  # resource type
    response.string()  # name
    response.number(">b")  # pattern type
    response.string()  # principal
    response.string()  # host
    response.number(">h")  # operation and permission, a byte each
