"""SliceDecoders: how the fetcher gets a decoder for one partition's slice of a response frame.

Owns the settings every decoder of a consumer shares. Making a decoder reads no record and costs
next to nothing; it is done on the network thread, the decoding is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._native.record_batch import SliceDecoder

if TYPE_CHECKING:
    from kfast._native.buffers import OwnedBuffer
    from kfast._native.fetch_response import FetchedPartition
    from kfast.config import ConsumerConfig
    from kfast.types import TopicPartition


class SliceDecoders:
    """Makes compiled decoders with the settings of one consumer.

    Parameters
    ----------
    config : ConsumerConfig
        ``isolation_level``, ``check_crcs``, ``max_decompressed_batch_bytes``.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._is_read_committed = config.isolation_level == "read_committed"
        self._check_crcs = config.check_crcs
        self._max_decompressed_batch_bytes = config.max_decompressed_batch_bytes

    def make(
        self,
        frame: OwnedBuffer,
        tp: TopicPartition,
        part: FetchedPartition,
        position: int,
    ) -> SliceDecoder:
        """Return a decoder of ``part``'s records from ``position`` on."""
        return SliceDecoder(
            frame,
            part.records_start,
            part.records_end,
            topic=tp.topic,
            partition=tp.partition,
            position=position,
            aborted_transactions=part.aborted_transactions if self._is_read_committed else (),
            read_committed=self._is_read_committed,
            check_crcs=self._check_crcs,
            max_decompressed_batch_bytes=self._max_decompressed_batch_bytes,
        )
