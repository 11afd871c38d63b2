"""JoinRound: the JoinGroup and the SyncGroup that a classic group member waits for.

Owns which of the two is in flight, and what the answer to JoinGroup said. An answer counts only
while it is awaited: requests are compared by identity, and after `clear` nobody waits for any.
It decides nothing; `ClassicMembership` does. Network thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.client.request import Channel, UnsentRequest
from kfast.consumer.group.classic.errors import Exchange

if TYPE_CHECKING:
    from kfast.client.request import ResponseHandler
    from kfast.consumer.group.classic.messages import GroupRequests, JoinedGroup
    from kfast.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from kfast.protocol.messages.sync_group import SyncGroupRequest


class JoinRound:
    """What one member has sent to get into the next generation.

    Parameters
    ----------
    requests : GroupRequests
        Knows versions and time limits, and reads answers.
    handler : ResponseHandler
        Who gets the answers.

    Attributes
    ----------
    join, sync : UnsentRequest or None
        What is in flight.
    joined : JoinedGroup or None
        What JoinGroup was answered, until the next round.
    """

    def __init__(self, requests: GroupRequests, handler: ResponseHandler) -> None:
        self._requests = requests
        self._handler = handler
        self.join: UnsentRequest | None = None
        self.sync: UnsentRequest | None = None
        self.joined: JoinedGroup | None = None

    def send_join(self, message: JoinGroupRequest, node_id: int) -> UnsentRequest:
        """Begin a round; its answer may take as long as the other members do."""
        requests = self._requests
        self.sync = self.joined = None
        self.join = UnsentRequest(
            message,
            self._handler,
            node_id=node_id,
            timeout_ms=requests.join_timeout_ms,
            channel=Channel.COORDINATOR,
            min_version=requests.join_version,
        )
        return self.join

    def send_sync(self, message: SyncGroupRequest, node_id: int) -> UnsentRequest:
        """Ask for the assignment, or hand it in."""
        self.sync = UnsentRequest(
            message,
            self._handler,
            node_id=node_id,
            channel=Channel.COORDINATOR,
            min_version=self._requests.member_version,
        )
        return self.sync

    def answered(self, request: UnsentRequest) -> Exchange | None:
        """Return what a request was that is over, None if nobody waits for it."""
        if request is self.join:
            self.join = None
            return Exchange.JOIN
        if request is self.sync:
            self.sync = None
            return Exchange.SYNC
        return None

    def joined_by(self, response: JoinGroupResponse) -> JoinedGroup:
        """Return, and remember, what an answer to JoinGroup without error says.

        Raises
        ------
        KafkaError
            As `GroupRequests.joined`.
        """
        self.joined = self._requests.joined(response)
        return self.joined

    def clear(self) -> None:
        """End the round: nobody waits for its answers any more."""
        self.join = self.sync = None
        self.joined = None

    def __repr__(self) -> str:
        waits = "join" if self.join is not None else "sync" if self.sync is not None else "nothing"
        return f"<JoinRound in_flight={waits} joined={self.joined is not None}>"
