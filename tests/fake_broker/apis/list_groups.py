"""ListGroups (key 16): the groups whose coordinator the asked node is.

Groups the client may not use are left out, as a broker leaves out what may not be described.
"""

from __future__ import annotations

from kfast.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.fake_broker.context import Answer, RequestContext


def handle_list_groups(context: RequestContext, request: ListGroupsRequest) -> Answer:
    """Answer one request."""
    groups = context.cluster.groups
    throttle, error = context.plan.throttle_time_ms, context.plan.top_level_error
    if error:
        return ListGroupsResponse(throttle, error)
    states = {state.lower() for state in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    found = []
    for group_id in groups.names():
        if groups.error_for(context.node_id, group_id):
            continue
        state, kind, protocol_type = groups.summary(group_id)
        if (not states or state.lower() in states) and (not types or kind in types):
            found.append(ListedGroup(group_id, protocol_type, state, kind))
    return ListGroupsResponse(throttle, 0, found)
