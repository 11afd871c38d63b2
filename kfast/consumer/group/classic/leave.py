"""GroupLeaving: says good-bye to the coordinator of a classic group, where that is of any use.

Owns the LeaveGroup requests and the JoinGroup whose answer makes somebody a member who has left
before it came. Whoever leaves goes on at once; nothing is retried, because a broker that hears
nothing ends the session by itself. Sans-IO, network thread.

| who leaves | LeaveGroup |
|---|---|
| dynamic member | sent, unless told to remain |
| static member | not sent, unless told to leave (KIP-345, KIP-1092) |
| one that joins for the first time | sent when the answer names the member it would have been |
| coordinator unknown, or no member | not sent |
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from kfast.client.request import Channel, UnsentRequest
from kfast.consumer.pending_result import PendingResult
from kfast.errors import KafkaError, error_info
from kfast.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kfast.client.request import ClientResponse
    from kfast.consumer.group.classic.messages import GroupRequests
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.group.membership import CloseOperation
    from kfast.consumer.manager_context import ManagerContext
    from kfast.protocol.messages.join_group import JoinGroupResponse
    from kfast.protocol.messages.leave_group import LeaveGroupResponse

logger = logging.getLogger(__name__)

LIST_VERSION: Final = 3
"""First LeaveGroup with a list of members instead of one id."""


class GroupLeaving:
    """Leaves a group.


    Attributes
    ----------
    outbox : list of UnsentRequest
        To be taken and sent by the membership.
    """

    def __init__(
        self,
        context: ManagerContext,
        finder: CoordinatorFinder,
        requests: GroupRequests,
    ) -> None:
        config = context.config
        self._group_id = config.group_id
        self._is_static = config.group_instance_id is not None
        self._finder = finder
        self._connections = context.connections
        self._requests = requests
        self._orphans: dict[UnsentRequest, PendingResult[None]] = {}
        self.outbox: list[UnsentRequest] = []

    def leave(
        self,
        member_id: str,
        reason: str,
        operation: CloseOperation,
        *,
        join: UnsentRequest | None,
    ) -> PendingResult[None]:
        """Leave, or stay, as the table says.

        Parameters
        ----------
        member_id : str
            Who leaves; empty for one that is no member yet.
        reason : str
            Told to the broker.
        operation : str
            ``"leave_group"``, ``"remain_in_group"`` or ``"default"``.
        join : UnsentRequest or None
            The JoinGroup in flight, whose answer nobody waits for from now on.

        Returns
        -------
        PendingResult
            Done when the coordinator answered, the request failed, or there was nothing to send.
        """
        result: PendingResult[None] = PendingResult()
        is_leaving = operation == "leave_group" or (operation == "default" and not self._is_static)
        if not is_leaving or self._finder.node_id is None:
            result.complete(None)
        elif member_id:
            self._send(member_id, reason, result, is_behind_join=join is not None)
        elif join is not None:
            self._orphans[join] = result
        else:
            result.complete(None)
        return result

    def join_answered(self, request: UnsentRequest, message: JoinGroupResponse | None) -> None:
        """Note that a JoinGroup nobody waits for was answered, or (None) will never be."""
        result = self._orphans.pop(request, None)
        if result is None:
            return
        if message is None or not message.member_id:
            result.complete(None)
        else:
            self._send(message.member_id, "left while joining", result, is_behind_join=False)

    def _send(
        self, member_id: str, reason: str, result: PendingResult[None], *, is_behind_join: bool
    ) -> None:
        node_id = self._finder.node_id
        if node_id is None:
            result.complete(None)
            return
        # A broker answers one connection in order: behind a parked JoinGroup nobody would read it.
        channel = Channel.DATA if is_behind_join else Channel.COORDINATOR
        has_list = self._offers_list(node_id, channel)
        message = self._requests.leave(member_id, reason, has_list=has_list)
        self.outbox.append(
            UnsentRequest(
                message,
                self,
                node_id=node_id,
                context=result,
                channel=channel,
                min_version=LIST_VERSION if has_list else None,
                max_version=None if has_list else LIST_VERSION - 1,
            )
        )
        logger.info("Member %s leaves group %s: %s", member_id, self._group_id, reason)

    def _offers_list(self, node_id: int, channel: Channel) -> bool:
        try:
            version = self._connections.api_version(node_id, ApiKey.LEAVE_GROUP, None, channel)
        except KafkaError:  # no such connection yet: brokers from 2.4 on do
            return True
        return version >= LIST_VERSION

    def handle_response(
        self,
        request: UnsentRequest,
        response: ClientResponse,
        now_ms: int,  # noqa: ARG002 - as every ResponseHandler
    ) -> None:
        """Note that the coordinator knows; what it says of it makes no difference."""
        code = cast("LeaveGroupResponse", response.message).error_code
        logger.debug("Left group %s: %s", self._group_id, error_info(code).name)
        cast("PendingResult[None]", request.context).complete(None)

    def handle_failure(
        self,
        request: UnsentRequest,
        error: KafkaError,
        now_ms: int,  # noqa: ARG002 - as every ResponseHandler
    ) -> None:
        """Give up: the session will end by itself."""
        logger.debug("Leaving group %s failed: %s", self._group_id, error)
        cast("PendingResult[None]", request.context).complete(None)

    def __repr__(self) -> str:
        return f"<GroupLeaving {self._group_id} orphans={len(self._orphans)}>"
