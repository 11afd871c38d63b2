"""Handlers of requests, by API key.

An API that a release offers but that has no handler here is refused as a broker refuses an API it
does not know: the connection is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kfast.protocol.api_keys import ApiKey
from kfast.testing.apis.committed_offsets import handle_offset_commit, handle_offset_fetch
from kfast.testing.apis.fetch import handle_fetch
from kfast.testing.apis.group_listings import (
    handle_consumer_group_describe,
    handle_describe_groups,
    handle_list_groups,
)
from kfast.testing.apis.group_members import (
    handle_consumer_group_heartbeat,
    handle_find_coordinator,
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_sync_group,
)
from kfast.testing.apis.metadata import handle_api_versions, handle_metadata
from kfast.testing.apis.offsets import handle_list_offsets, handle_offset_for_leader_epoch
from kfast.testing.apis.sasl import handle_sasl_authenticate, handle_sasl_handshake
from kfast.testing.context import Handler

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        ApiKey.FETCH: handle_fetch,
        ApiKey.LIST_OFFSETS: handle_list_offsets,
        ApiKey.METADATA: handle_metadata,
        ApiKey.OFFSET_COMMIT: handle_offset_commit,
        ApiKey.OFFSET_FETCH: handle_offset_fetch,
        ApiKey.FIND_COORDINATOR: handle_find_coordinator,
        ApiKey.JOIN_GROUP: handle_join_group,
        ApiKey.HEARTBEAT: handle_heartbeat,
        ApiKey.LEAVE_GROUP: handle_leave_group,
        ApiKey.SYNC_GROUP: handle_sync_group,
        ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
        ApiKey.LIST_GROUPS: handle_list_groups,
        ApiKey.SASL_HANDSHAKE: handle_sasl_handshake,
        ApiKey.SASL_AUTHENTICATE: handle_sasl_authenticate,
        ApiKey.API_VERSIONS: handle_api_versions,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: handle_consumer_group_heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: handle_consumer_group_describe,
    }
)
