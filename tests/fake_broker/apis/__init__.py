"""One file per API; ``HANDLERS`` finds the handler by API key.

An API that a release offers but that has no handler here is refused as a broker refuses an API it
does not know: the connection is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.fake_broker.apis.api_versions import handle_api_versions
from tests.fake_broker.apis.consumer_group_describe import handle_consumer_group_describe
from tests.fake_broker.apis.consumer_group_heartbeat import handle_consumer_group_heartbeat
from tests.fake_broker.apis.describe_groups import handle_describe_groups
from tests.fake_broker.apis.fetch import handle_fetch
from tests.fake_broker.apis.find_coordinator import handle_find_coordinator
from tests.fake_broker.apis.heartbeat import handle_heartbeat
from tests.fake_broker.apis.join_group import handle_join_group
from tests.fake_broker.apis.leave_group import handle_leave_group
from tests.fake_broker.apis.list_groups import handle_list_groups
from tests.fake_broker.apis.list_offsets import handle_list_offsets
from tests.fake_broker.apis.metadata import handle_metadata
from tests.fake_broker.apis.offset_commit import handle_offset_commit
from tests.fake_broker.apis.offset_fetch import handle_offset_fetch
from tests.fake_broker.apis.offset_for_leader_epoch import handle_offset_for_leader_epoch
from tests.fake_broker.apis.sasl_authenticate import handle_sasl_authenticate
from tests.fake_broker.apis.sasl_handshake import handle_sasl_handshake
from tests.fake_broker.apis.sync_group import handle_sync_group
from tests.fake_broker.context import Handler
from tests.fake_broker.releases import Api

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        Api.FETCH: handle_fetch,
        Api.LIST_OFFSETS: handle_list_offsets,
        Api.METADATA: handle_metadata,
        Api.OFFSET_COMMIT: handle_offset_commit,
        Api.OFFSET_FETCH: handle_offset_fetch,
        Api.FIND_COORDINATOR: handle_find_coordinator,
        Api.JOIN_GROUP: handle_join_group,
        Api.HEARTBEAT: handle_heartbeat,
        Api.LEAVE_GROUP: handle_leave_group,
        Api.SYNC_GROUP: handle_sync_group,
        Api.DESCRIBE_GROUPS: handle_describe_groups,
        Api.LIST_GROUPS: handle_list_groups,
        Api.SASL_HANDSHAKE: handle_sasl_handshake,
        Api.SASL_AUTHENTICATE: handle_sasl_authenticate,
        Api.API_VERSIONS: handle_api_versions,
        Api.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
        Api.CONSUMER_GROUP_HEARTBEAT: handle_consumer_group_heartbeat,
        Api.CONSUMER_GROUP_DESCRIBE: handle_consumer_group_describe,
    }
)
