"""The APIs and versions one broker offers, and the ApiVersions exchange.

Sans-IO. ``ApiVersionsHandshake`` is the first exchange on every connection (KIP-511)::

    send the newest version kfast speaks
      response                  -> done
      error 35, parsed as v0    -> send once more, the broker's newest, only if strictly lower
      error 42 (software name)  -> send once more in version 2, which carries no name
      connection closed         -> the next connection sends version 0

A refusal is always encoded as version 0, whatever version was asked, and the response header of
ApiVersions is always version 0: a client that does not know the broker's versions could not parse
anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kfast.client.diagnosis import describe
from kfast.errors import ErrorCode, ProtocolError, UnsupportedVersionError, exception_for
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kfast._native.buffers import OwnedBuffer
    from kfast.client.cluster import Node

SOFTWARE_NAME: Final = "kfast"
FIRST_VERSION_WITH_SOFTWARE_NAME: Final = 3

_FIRST_RELEASES: Final[Mapping[int, tuple[tuple[int, tuple[int, int]], ...]]] = {
    ApiKey.FETCH: (
        (11, (2, 3)),
        (12, (2, 7)),
        (13, (3, 1)),
        (15, (3, 5)),
        (16, (3, 7)),
        (17, (3, 9)),
        (18, (4, 1)),
    ),
    ApiKey.LIST_OFFSETS: (
        (5, (2, 2)),
        (6, (2, 8)),
        (7, (3, 0)),
        (8, (3, 5)),
        (9, (3, 9)),
        (10, (4, 0)),
        (11, (4, 2)),
    ),
    ApiKey.METADATA: ((8, (2, 3)), (9, (2, 4)), (11, (2, 8)), (12, (3, 1)), (13, (4, 0))),
    ApiKey.OFFSET_COMMIT: ((7, (2, 3)), (8, (2, 4)), (9, (3, 7)), (10, (4, 2))),
    ApiKey.OFFSET_FETCH: (
        (6, (2, 4)),
        (7, (2, 5)),
        (8, (3, 0)),
        (9, (3, 7)),
        (10, (4, 2)),
    ),
    ApiKey.FIND_COORDINATOR: ((3, (2, 4)), (4, (3, 0)), (5, (3, 8)), (6, (3, 9))),
    ApiKey.JOIN_GROUP: (
        (4, (2, 2)),
        (5, (2, 3)),
        (6, (2, 4)),
        (7, (2, 5)),
        (9, (3, 2)),
    ),
    ApiKey.HEARTBEAT: ((3, (2, 3)), (4, (2, 4))),
    ApiKey.LEAVE_GROUP: ((3, (2, 4)), (4, (2, 4)), (5, (3, 2))),
    ApiKey.SYNC_GROUP: ((3, (2, 3)), (4, (2, 4)), (5, (2, 5))),
    ApiKey.DESCRIBE_GROUPS: ((3, (2, 3)), (4, (2, 4)), (5, (2, 4)), (6, (4, 0))),
    ApiKey.LIST_GROUPS: ((3, (2, 4)), (4, (2, 6)), (5, (3, 8))),
    ApiKey.SASL_HANDSHAKE: ((1, (1, 0)),),
    ApiKey.API_VERSIONS: ((3, (2, 4)), (4, (3, 9))),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ((3, (2, 3)), (4, (2, 8))),
    ApiKey.SASL_AUTHENTICATE: ((1, (2, 2)), (2, (2, 5))),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ((0, (3, 7)), (1, (4, 0))),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ((0, (3, 7)), (1, (4, 0))),
}
"""By API: (version, the first Kafka release whose brokers speak it)."""


def newest_version_of_release(api_key: int, release: tuple[int, ...]) -> int | None:
    """Return the newest version of an API in one Kafka release; None if that is not on record."""
    rows = _FIRST_RELEASES.get(api_key)
    if not rows:
        return None
    newest = rows[0][0] - 1
    for version, (major, minor) in rows:
        if (major, minor) <= release:
            newest = version
    return newest


def software_version(version: str) -> str:
    """Return a version string brokers accept: letters, digits, dots, dashes; no dash at an end.

    A PEP 440 version may hold ``+`` and ``_``, which brokers answer with INVALID_REQUEST.
    """
    return re.sub(r"[^a-zA-Z0-9.]+", "-", version).strip("-.") or "unknown"


@dataclass(slots=True, frozen=True)
class NodeApiVersions:
    """The version ranges and features one broker offers."""

    ranges: Mapping[int, tuple[int, int]]
    """API key to lowest and highest version."""
    finalized_features: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Feature name to the version level in force (KIP-584), e.g. ``group.version``."""

    @classmethod
    def from_response(cls, response: ApiVersionsResponse) -> NodeApiVersions:
        """Return the content of a response without error."""
        return cls(
            {api.api_key: (api.min_version, api.max_version) for api in response.api_keys},
            {f.name: f.max_version_level for f in response.finalized_features or ()},
        )

    def usable_version(
        self, api_key: int, name: str, min_version: int, max_version: int, node: Node
    ) -> int:
        """Return the highest version both sides speak, or raise `UnsupportedVersionError`."""
        offered = self.ranges.get(api_key)
        version = -1 if offered is None else min(max_version, offered[1])
        if offered is None or version < max(min_version, offered[0]):
            error = UnsupportedVersionError.for_api(
                name, (min_version, max_version), offered, node.node_id, address=describe(node)
            )
            if offered is None and api_key == ApiKey.METADATA:
                error.cause = "it looks like a controller listener, which has no topics"
                error.hint = "give bootstrap_servers the listener of a broker, usually port 9092"
            raise error
        return version


class ApiVersionsHandshake:
    """One ApiVersions exchange, beginning with ``max_version`` or, when None, the newest."""

    def __init__(self, client_version: str, max_version: int | None = None) -> None:
        newest = ApiVersionsRequest.MAX_VERSION
        self._client_version = software_version(client_version)
        self.version = newest if max_version is None else min(newest, max_version)
        self.result: NodeApiVersions | None = None
        self.throttle_ms = 0
        self._has_retried = False

    def request(self) -> ApiVersionsRequest:
        """Return the request to send in ``version``."""
        if self.version < FIRST_VERSION_WITH_SOFTWARE_NAME:
            return ApiVersionsRequest()
        return ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=self._client_version
        )

    def receive(self, frame: OwnedBuffer, offset: int, node: int | str) -> bool:
        """Take a response; return whether the exchange is done, else send ``request()`` again.

        A `KafkaError` means that the broker refused or the response is malformed: close the
        connection.
        """
        error_code = int.from_bytes(frame.view()[offset : offset + 2], "big", signed=True)
        asked = self.version
        version = 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else asked
        response = ApiVersionsResponse.decode(frame, version, offset)
        if response.error_code == 0:
            self.throttle_ms = response.throttle_time_ms
            self.result = NodeApiVersions.from_response(response)
            if not self.result.ranges:
                raise ProtocolError(
                    f"broker {node} offers no API at all", found="an empty ApiVersions response"
                )
            return True
        lower = self._version_after(response)
        if lower is None or lower >= asked or self._has_retried:
            raise exception_for(
                response.error_code, f"broker {node} refuses ApiVersions {asked}", node=node
            )
        self._has_retried = True
        self.version = lower
        return False

    def _version_after(self, refusal: ApiVersionsResponse) -> int | None:
        if refusal.error_code == ErrorCode.UNSUPPORTED_VERSION:
            return _highest_offered(refusal.api_keys, ApiVersionsRequest.API_KEY)
        if refusal.error_code == ErrorCode.INVALID_REQUEST:
            return FIRST_VERSION_WITH_SOFTWARE_NAME - 1
        return None

    def max_version_after_close(self) -> int | None:
        """Return the version to start with after the broker closed without a response.

        Some servers close the connection on a version they do not know, so version 0 is next; if it
        was tried already, the newest again.
        """
        return 0 if self.version >= FIRST_VERSION_WITH_SOFTWARE_NAME else None

    def max_version_after_success(self) -> int | None:
        """Return the version to start with on the next connection; None means the newest.

        A broker that offers versions with a software name does not close on them: the fallback had
        another reason.
        """
        if self.result is None:
            return None
        _, highest = self.result.ranges.get(ApiVersionsRequest.API_KEY, (0, 0))
        return None if highest >= FIRST_VERSION_WITH_SOFTWARE_NAME else highest

    def __repr__(self) -> str:
        return f"<ApiVersionsHandshake v{self.version} done={self.result is not None}>"


def _highest_offered(entries: Iterable[object], api_key: int) -> int:
    """Return the broker's newest ApiVersions version; brokers before 2.4 do not report it: 0."""
    for entry in entries:
        if getattr(entry, "api_key", None) == api_key:
            return max(0, int(getattr(entry, "max_version", 0)))
    return 0
