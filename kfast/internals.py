"""What kfast's own programs use of a consumer's parts: the one seam for `cli`, `table` and `spark`.

Not part of the stable API. A name is imported when it is first used (PEP 562), as those of `kfast`
are: a command that lists topics does not load what reads records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.lazy_names import lazy_names

if TYPE_CHECKING:
    from kfast._native.column_text import ColumnTexts
    from kfast._native.record_index import RecordIndex
    from kfast._native.text_writer import TextWriter
    from kfast._native.wire_ids import scan
    from kfast.application.arguments import check_topic, time_ms
    from kfast.application.bounded_read import (
        POLL_MS,
        BoundedRead,
        Loss,
        LossKind,
        ReadPolicy,
        error_of,
    )
    from kfast.application.cluster_admin import ClusterAdmin, has_leader
    from kfast.application.internals import ConsumerInternals
    from kfast.application.read_bounds import (
        END,
        EVERYTHING,
        START,
        Kind,
        OffsetLookups,
        Position,
        Range,
        Ranges,
        resolve_existing,
        resolve_ranges,
    )
    from kfast.application.record_converter import RecordConverter
    from kfast.application.topic_globs import is_glob, topics_like
    from kfast.client.cluster import NO_LEADER, Node, TopicMetadata
    from kfast.client.diagnosis import advertised_address_dead, failure_kind
    from kfast.consumer.admin.descriptions import (
        CLASSIC,
        CONSUMER,
        GroupDescription,
        ListedGroup,
        MemberDescription,
    )
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.consumer.unknown_topic_check import unknown_partition
    from kfast.kafka_consumer import KafkaConsumer
    from kfast.protocol.consumer_protocol import PROTOCOL_TYPE
    from kfast.security.authentication_errors import printable
    from kfast.security.sasl.sasl_settings import SaslSettings
    from kfast.security.sasl.token_provider import token_source
    from kfast.security.tls.ciphers import openssl_name
    from kfast.security.tls.stores import ask_passwords, client_certificate, trusted_certificates
    from kfast.threads.connection_probe import ConnectionProbe
    from kfast.threads.metrics_server import MetricsServer, metrics_address

# fmt: off
__all__ = [
    "BoundedRead", "CLASSIC", "CONSUMER", "ClusterAdmin", "ColumnTexts", "CompletedFetch",
    "ConnectionProbe", "END", "EVERYTHING", "GroupDescription", "KafkaConsumer", "Kind",
    "ListedGroup", "Loss", "LossKind", "MemberDescription", "MetricsServer", "NO_LEADER",
    "Node", "OffsetLookups", "POLL_MS", "PROTOCOL_TYPE", "Position", "Range", "Ranges",
    "ReadPolicy", "RecordConverter", "RecordIndex", "START", "SaslSettings", "TextWriter",
    "TopicMetadata", "advertised_address_dead", "ask_passwords", "check_topic",
    "client_certificate", "error_of", "failure_kind", "has_leader", "internals_of", "is_glob",
    "metrics_address", "openssl_name", "printable", "resolve_existing", "resolve_ranges",
    "scan", "time_ms", "token_source", "topics_like", "trusted_certificates",
    "unknown_partition",
]
# fmt: on

_NAMES = {
    "kfast._native.column_text": "ColumnTexts",
    "kfast._native.record_index": "RecordIndex",
    "kfast._native.text_writer": "TextWriter",
    "kfast._native.wire_ids": "scan",
    "kfast.application.arguments": "check_topic time_ms",
    "kfast.application.bounded_read": "BoundedRead Loss LossKind POLL_MS ReadPolicy error_of",
    "kfast.application.cluster_admin": "ClusterAdmin has_leader",
    "kfast.application.read_bounds": (
        "END EVERYTHING Kind OffsetLookups Position Range Ranges START resolve_existing "
        "resolve_ranges "
    ),
    "kfast.application.record_converter": "RecordConverter",
    "kfast.application.topic_globs": "is_glob topics_like",
    "kfast.client.cluster": "NO_LEADER Node TopicMetadata",
    "kfast.client.diagnosis": "advertised_address_dead failure_kind",
    "kfast.consumer.admin.descriptions": (
        "CLASSIC CONSUMER GroupDescription ListedGroup MemberDescription "
    ),
    "kfast.consumer.fetch.completed_fetch": "CompletedFetch",
    "kfast.consumer.unknown_topic_check": "unknown_partition",
    "kfast.kafka_consumer": "KafkaConsumer",
    "kfast.protocol.consumer_protocol": "PROTOCOL_TYPE",
    "kfast.security.authentication_errors": "printable",
    "kfast.security.sasl.sasl_settings": "SaslSettings",
    "kfast.security.sasl.token_provider": "token_source",
    "kfast.security.tls.ciphers": "openssl_name",
    "kfast.security.tls.stores": "ask_passwords client_certificate trusted_certificates",
    "kfast.threads.connection_probe": "ConnectionProbe",
    "kfast.threads.metrics_server": "MetricsServer metrics_address",
}
"""The names of each module, as above."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def internals_of(consumer: KafkaConsumer) -> ConsumerInternals:
    """Return the calls of a consumer that are not public."""
    return consumer._internals


if not TYPE_CHECKING:  # a type checker would take every misspelt name for one of these
    __getattr__ = lazy_names(__name__, _HOMES)
