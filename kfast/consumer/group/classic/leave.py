"""LeaveGroupRequests: LeaveGroup requests of a classic group member.

Owns the requests to send and every JoinGroup in flight whose member has left before the response.
Nothing is retried: without a LeaveGroup the broker ends the session by itself. Sans-IO, network
thread.

| member | LeaveGroup |
|---|---|
| dynamic | sent, unless the operation is "remain_in_group" |
| static | not sent, unless the operation is "leave_group" (KIP-345, KIP-1092) |
| joins for the first time | sent when the JoinGroup response has its member id |
| coordinator unknown, or not a member | not sent |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kfast._base.logs import get_logger
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

logger = get_logger(__name__)

LIST_VERSION: Final = 3
"""First LeaveGroup with a list of members instead of one id."""


class LeaveGroupRequests:
    """Leaves a group; the membership takes the requests in ``outbox`` and sends them."""

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
        """Leave, or stay, as the table says; done with the response, or if nothing is sent.

        ``member_id`` is empty before the first join; ``join`` is the JoinGroup in flight.
        """
        result: PendingResult[None] = PendingResult()
        is_leaving = operation == "leave_group" or (operation == "default" and not self._is_static)
        if not is_leaving or self._finder.node_id is None:
            result.complete(None)
        elif member_id:
            self._send(member_id, reason, result, is_join_in_flight=join is not None)
        elif join is not None:
            self._orphans[join] = result
        else:
            result.complete(None)
        return result

    def join_answered(self, request: UnsentRequest, message: JoinGroupResponse | None) -> None:
        """Handle the response (None: failure) to a JoinGroup whose member has left."""
        result = self._orphans.pop(request, None)
        if result is None:
            return
        if message is None or not message.member_id:
            result.complete(None)
        else:
            self._send(message.member_id, "left while joining", result, is_join_in_flight=False)

    def _send(
        self, member_id: str, reason: str, result: PendingResult[None], *, is_join_in_flight: bool
    ) -> None:
        node_id = self._finder.node_id
        if node_id is None:
            result.complete(None)
            return
        # A broker serves one connection in order: a JoinGroup in flight would block it.
        channel = Channel.DATA if is_join_in_flight else Channel.COORDINATOR
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
        except KafkaError:  # no such connection yet: brokers from 2.4 on offer it
            return True
        return version >= LIST_VERSION

    def handle_response(
        self,
        request: UnsentRequest,
        response: ClientResponse,
        now_ms: int,  # noqa: ARG002 - as every ResponseHandler
    ) -> None:
        """Complete, whatever the error code: it makes no difference."""
        code = cast("LeaveGroupResponse", response.message).error_code
        logger.debug("Left group %s: %s", self._group_id, error_info(code).name)
        cast("PendingResult[None]", request.context).complete(None)

    def handle_failure(
        self,
        request: UnsentRequest,
        error: KafkaError,
        now_ms: int,  # noqa: ARG002 - as every ResponseHandler
    ) -> None:
        """Complete: the broker ends the session by itself."""
        logger.debug("Leaving group %s failed: %s", self._group_id, error)
        cast("PendingResult[None]", request.context).complete(None)

    def __repr__(self) -> str:
        return f"<LeaveGroupRequests {self._group_id} orphans={len(self._orphans)}>"
