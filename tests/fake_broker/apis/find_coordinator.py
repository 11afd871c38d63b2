"""FindCoordinator (key 10): the node that coordinates a group, by any node (KIP-699).

Share groups and transactions have no coordinator here (42).
"""

from __future__ import annotations

from typing import Final

from kfast.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.fake_broker.context import Answer, RequestContext

NOT_AVAILABLE: Final = 15
INVALID_REQUEST: Final = 42
GROUP_AUTHORIZATION_FAILED: Final = 30
FIRST_VERSION_WITH_SEVERAL: Final = 4


def handle_find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> Answer:
    """Answer one request."""
    throttle = context.plan.throttle_time_ms
    if context.version >= FIRST_VERSION_WITH_SEVERAL:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            throttle, coordinators=[_find(context, request.key_type, key) for key in keys]
        )
    found = _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        throttle, found.error_code, found.error_message, found.node_id, found.host, found.port
    )


def _find(context: RequestContext, key_type: int, key: str) -> Coordinator:
    groups = context.cluster.groups
    error = context.plan.top_level_error
    if key_type != GROUP_KEY_TYPE:
        error = error or INVALID_REQUEST
    if key in groups.denied:
        error = error or GROUP_AUTHORIZATION_FAILED
    if not groups.is_available:
        error = error or NOT_AVAILABLE
    if error:
        return Coordinator(key, -1, "", -1, error, None)
    node_id = groups.coordinator(key)
    host, port = context.cluster.nodes[node_id].address
    return Coordinator(key, node_id, host, port, 0, None)
