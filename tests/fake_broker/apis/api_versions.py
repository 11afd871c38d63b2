"""ApiVersions (key 18): what the node offers, and how it refuses (KIP-35, KIP-511).

A version beyond the node's own is answered in version 0 with error 35; brokers from 2.4 on add
the range they accept for ApiVersions itself. A software name or version outside the allowed pattern
is error 42 in the version asked, with an empty list.
"""

from __future__ import annotations

import re
from typing import Final

from kfast.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tests.fake_broker.context import Answer, RequestContext, VersionedAnswer
from tests.fake_broker.releases import Api, has_empty_version_refusal

UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42
FIRST_VERSION_WITH_SOFTWARE_NAME: Final = 3

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(context: RequestContext, request: ApiVersionsRequest | None) -> Answer:
    """Answer one request; None stands for one in a version the node does not read."""
    offered = context.cluster.api_versions(context.node_id)
    lowest, highest = offered[Api.API_VERSIONS]
    is_refused = context.plan.top_level_error == UNSUPPORTED_VERSION
    if request is None or is_refused or not lowest <= context.version <= highest:
        keys = [ApiVersion(Api.API_VERSIONS, lowest, highest)]
        if has_empty_version_refusal(context.cluster.release):
            keys = []
        return VersionedAnswer(ApiVersionsResponse(UNSUPPORTED_VERSION, keys), 0)
    if context.plan.top_level_error:
        return ApiVersionsResponse(context.plan.top_level_error)
    if context.version >= FIRST_VERSION_WITH_SOFTWARE_NAME and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(INVALID_REQUEST)
    features = list(context.cluster.features.items())
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, *offered[key]) for key in sorted(offered)],
        throttle_time_ms=context.plan.throttle_time_ms,
        supported_features=[SupportedFeatureKey(name, 1, level) for name, level in features],
        finalized_features_epoch=1 if features else -1,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in features],
    )
