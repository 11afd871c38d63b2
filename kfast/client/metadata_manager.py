"""MetadataManager: sends Metadata requests when one is due, and requests a rebootstrap.

Sans-IO request manager on the network thread. At most one request of its own is in flight. With
``metadata_recovery_strategy="rebootstrap"`` it requests a return to ``bootstrap_servers`` when no
refresh succeeded for ``metadata_recovery_rebootstrap_trigger_ms`` or a broker answers
REBOOTSTRAP_REQUIRED (KIP-1102). The network client carries that out; it also does so by itself when
a request that any broker could answer finds none that can be reached (KIP-899).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kfast._base.logs import get_logger
from kfast.client.metadata import Metadata, MetadataScope
from kfast.client.request import ClientResponse, UnsentRequest
from kfast.client.request_manager import NEVER_MS, PollResult
from kfast.errors import ErrorCode, KafkaError, exception_for
from kfast.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.protocol.messages.metadata import MetadataResponse

logger = get_logger(__name__)

FIRST_VERSION_BY_ID: Final = 12
"""Earlier versions carry topic ids in the request, but brokers ignore them."""


class MetadataManager:
    """Refreshes one `Metadata`."""

    def __init__(self, config: ConsumerConfig, metadata: Metadata) -> None:
        self._metadata = metadata
        self._may_rebootstrap = config.metadata_recovery_strategy == "rebootstrap"
        self._trigger_ms = config.metadata_recovery_rebootstrap_trigger_ms
        self._in_flight: UnsentRequest | None = None
        self._trying_since_ms: int | None = None

    def poll(self, now_ms: int) -> PollResult:
        """Return the request to send, if one is due, and the time of the next poll."""
        if self._in_flight is not None:
            self._check_rebootstrap(now_ms)
            return PollResult((), self._ms_to_trigger(now_ms))
        delay = self._metadata.time_to_next_update(now_ms)
        if delay > 0:
            return PollResult((), delay)
        if self._trying_since_ms is None:
            self._trying_since_ms = now_ms
        self._check_rebootstrap(now_ms)
        self._in_flight = self._request()
        return PollResult((self._in_flight,), self._ms_to_trigger(now_ms))

    def _request(self) -> UnsentRequest:
        scope = self._metadata.scope()
        if scope.topic_ids:
            by_id = [MetadataRequestTopic(topic_id=i, name=None) for i in sorted(scope.topic_ids)]
            message = MetadataRequest(topics=by_id, allow_auto_topic_creation=False)
            return UnsentRequest(message, self, context=scope, min_version=FIRST_VERSION_BY_ID)
        topics = None
        if scope.topics is not None:
            topics = [MetadataRequestTopic(name=name) for name in sorted(scope.topics)]
        message = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=(
                self._metadata.allow_auto_topic_creation and topics is not None
            ),
        )
        return UnsentRequest(message, self, context=scope)

    # --- outcomes ---------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Merge a response into the metadata."""
        self._in_flight = None
        message = cast("MetadataResponse", response.message)
        scope = cast("MetadataScope", request.context)
        code = message.error_code
        if code == 0:
            if self._metadata.update(
                message, now_ms, scope=scope, api_version=response.api_version
            ):
                self._trying_since_ms = None
            return
        self._metadata.failed(exception_for(code, node=response.node_id), now_ms)
        if code == ErrorCode.REBOOTSTRAP_REQUIRED and self._may_rebootstrap:
            self._metadata.request_rebootstrap(f"broker {response.node_id} asked for it")

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Note a failed refresh; it is retried after a back-off."""
        self._in_flight = None
        logger.debug("%r failed: %s", request, error)
        self._metadata.failed(error, now_ms)

    # --- rebootstrap ------------------------------------------------------------------------------

    def _check_rebootstrap(self, now_ms: int) -> None:
        if self._ms_to_trigger(now_ms) == 0:
            self._trying_since_ms = now_ms
            self._metadata.request_rebootstrap(
                f"no metadata for {self._trigger_ms} ms from any known broker"
            )

    def _ms_to_trigger(self, now_ms: int) -> int:
        if not self._may_rebootstrap or self._trying_since_ms is None:
            return NEVER_MS
        return max(0, self._trying_since_ms + self._trigger_ms - now_ms)

    def __repr__(self) -> str:
        return f"<MetadataManager in_flight={self._in_flight} since={self._trying_since_ms}>"
