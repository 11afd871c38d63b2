"""From the bytes of one request to the answer of its handler, and from the answer to bytes.

Owns the rules by which a broker refuses a request: unknown API, version outside the offered range
(except ApiVersions), undecodable body. A refused request is logged and its connection closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kfast.errors import KafkaError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.message import Message
from kfast.protocol.messages import REQUESTS
from kfast.testing.answers import Answer, VersionedAnswer
from kfast.testing.apis import HANDLERS
from kfast.testing.cluster import FakeCluster
from kfast.testing.context import RequestContext
from kfast.testing.fault_table import ReplyPlan
from kfast.testing.headers import decode_request_header, encode_response
from kfast.testing.request_log import LoggedRequest


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request frame taken apart.

    Attributes
    ----------
    entry : LoggedRequest
        As it goes into the request log.
    is_refused : bool
        The broker closes the connection instead of answering.
    """

    entry: LoggedRequest
    is_refused: bool


def parse_request(
    cluster: FakeCluster, node_id: int, connection_id: int, frame: bytes, now_ms: int
) -> ParsedRequest:
    """Take a request frame (without size prefix) apart."""
    header = decode_request_header(frame)
    message: Any = None
    offered = cluster.api_versions(node_id).get(header.api_key)
    is_in_range = offered is not None and offered[0] <= header.api_version <= offered[1]
    request_class = REQUESTS.get(header.api_key)
    if is_in_range and header.api_key in HANDLERS and request_class is not None:
        try:
            message = request_class.decode(frame, header.api_version, header.body_offset)
        except KafkaError:
            message = None
    entry = LoggedRequest(
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        message,
        node_id,
        connection_id,
        now_ms,
    )
    is_version_question = header.api_key == ApiKey.API_VERSIONS and not is_in_range
    return ParsedRequest(entry, message is None and not is_version_question)


def answer_request(
    cluster: FakeCluster, entry: LoggedRequest, plan: ReplyPlan, now_ms: int
) -> Answer:
    """Let the handler of the API answer."""
    return HANDLERS[entry.api_key](RequestContext(cluster, entry, plan, now_ms), entry.message)


def encode_answer(
    answer: Message | VersionedAnswer, entry: LoggedRequest, plan: ReplyPlan
) -> bytes:
    """Return the frame to send, after all edits of the plan."""
    if not isinstance(answer, VersionedAnswer):
        answer = VersionedAnswer(answer, entry.version)
    if plan.throttle_time_ms and hasattr(answer.message, "throttle_time_ms"):
        answer.message.throttle_time_ms = plan.throttle_time_ms
    plan.edit_message(answer.message, entry)
    frame = encode_response(answer.message, answer.version, entry.correlation_id)
    return plan.edit_frame(frame)
