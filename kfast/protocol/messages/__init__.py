"""One file per API; ``REQUESTS`` finds a definition by its number.

Owns the choice of who reads a response: Fetch goes through the compiled parser, which leaves the
records where they are; everything else becomes a dataclass.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kfast._native.fetch_response import parse_fetch_response
from kfast.errors import UnsupportedVersionError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.api_versions import ApiVersionsRequest
from kfast.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kfast.protocol.messages.fetch import FetchRequest
from kfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from kfast.protocol.messages.heartbeat import HeartbeatRequest
from kfast.protocol.messages.join_group import JoinGroupRequest
from kfast.protocol.messages.leave_group import LeaveGroupRequest
from kfast.protocol.messages.list_offsets import ListOffsetsRequest
from kfast.protocol.messages.metadata import MetadataRequest
from kfast.protocol.messages.offset_commit import OffsetCommitRequest
from kfast.protocol.messages.offset_fetch import OffsetFetchRequest
from kfast.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kfast.protocol.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast._native.buffers import OwnedBuffer
    from kfast.protocol.message import RequestMessage

_ALL: Final = (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    ApiVersionsRequest,
    OffsetForLeaderEpochRequest,
    ConsumerGroupHeartbeatRequest,
)
REQUESTS: Final[Mapping[int, type[RequestMessage]]] = MappingProxyType(
    {request.API_KEY: request for request in _ALL}
)
"""Request classes by API key; the response class is ``RESPONSE`` of each."""


def decode_response(api_key: int, version: int, frame: OwnedBuffer, offset: int) -> object:
    """Return the response in a frame.

    Parameters
    ----------
    api_key, version : int
        Of the request that is answered.
    frame : OwnedBuffer
        The frame without its size prefix.
    offset : int
        Where the body starts.

    Returns
    -------
    FetchResponseView or Message
        The compiled view for Fetch, which refers to ``frame``; else the response's dataclass.

    Raises
    ------
    ProtocolError
        The bytes are not a well-formed response.
    UnsupportedVersionError
        The API or the version is not one kfast speaks.
    """
    if api_key == ApiKey.FETCH:
        return parse_fetch_response(frame, offset, version)
    request = REQUESTS.get(api_key)
    if request is None:
        raise UnsupportedVersionError(f"API {api_key} is not one kfast speaks")
    return request.RESPONSE.decode(frame, version, offset)
