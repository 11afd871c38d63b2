"""The tries with which a batch is added to a table that has a log of its own: Delta, Iceberg.

Each try asks first whether the batch is there: a commit that was refused, or that overtook another
one, may be of this very batch. Used by the process that publishes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kfast.errors import KafkaError
from kfast.table.manifest import Entry

_TRIES: Final = 5


def add_once(
    entry: Entry,
    add: Callable[[Entry], None],
    conflicts: type[Exception] | tuple[type[Exception], ...],
    table: str,
) -> None:
    """Call ``add``, which does nothing if the batch is there, until no other writer is faster."""
    if not entry.written:
        return
    for number in range(_TRIES):
        try:
            add(entry)
            return
        except conflicts as error:
            if number == _TRIES - 1:
                raise KafkaError(
                    f"cannot add batch {entry.batch_id} to {table}",
                    cause=str(error),
                    hint="start the ingest again: it adds the batch, which is published",
                ) from error
