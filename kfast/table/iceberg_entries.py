"""SnapshotEntries: the entries of an Iceberg table, in the summaries of its snapshots.

Owns where they are:

====================  =============================================================================
``kfast.entry``       in the summary of each snapshot of an ingest: the whole entry but its files
``kfast.id``,         beside it: the id of the entry and its number
``kfast.sequence``
``kfast.entry``,      properties of the table, set by the same commit: the newest entry again, with
``kfast.snapshot``    the id of the table, and id and sequence number of the snapshot
====================  =============================================================================

The snapshots from the current one back through its parents are what the table consists of, so the
first of them with an entry has the truth: after a rollback it is an older one. The properties are
for the time when that snapshot has expired. They count only if the table provably still descends
from it: it is the parent of the oldest snapshot, or files of the table have its id or its sequence
number, as those that it added and those of a compaction which began with it. Otherwise the
table may have been rolled back before it, or replaced, and is refused.

Long entries are compressed, as a table's metadata has all of its snapshots. Reads what was loaded
of a table; nothing is written.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from typing import Any, Final

from kfast.errors import TableError
from kfast.table.entries import Entry, decode_entry, encode_entry

ENTRY: Final = "kfast.entry"
SNAPSHOT: Final = "kfast.snapshot"
ENTRY_ID: Final = "kfast.id"
SEQUENCE: Final = "kfast.sequence"
CONFIRMED: Final = "kfast.confirmed-snapshot"
"""Set by a person who knows that a table was not rolled back: the id of its current snapshot."""

_LONGEST_PLAIN: Final = 1_024
_PACKED: Final = "deflate:"


def summary_of(entry: Entry) -> dict[str, str]:
    """The properties of the summary of an entry's snapshot."""
    return {ENTRY: _pack(entry), ENTRY_ID: entry.id, SEQUENCE: str(entry.sequence)}


def properties_of(
    entry: Entry, table_uuid: Any, snapshot_id: int, sequence_number: int
) -> dict[str, str]:
    """The properties of the table that go with a snapshot."""
    snapshot = {"table": str(table_uuid), "id": snapshot_id, "sequence-number": sequence_number}
    return {ENTRY: _pack(entry), SNAPSHOT: json.dumps(snapshot, separators=(",", ":"))}


def _pack(entry: Entry) -> str:
    data = encode_entry(entry, with_files=False)
    if len(data) <= _LONGEST_PLAIN:
        return data.decode()
    return _PACKED + base64.b64encode(zlib.compress(data, 9)).decode()


def _unpack(text: str, place: str) -> Entry:
    if text.startswith(_PACKED):
        try:
            return decode_entry(zlib.decompress(base64.b64decode(text[len(_PACKED) :])), place)
        except (ValueError, zlib.error) as error:
            raise TableError(
                f"{place} is not an entry of a table's log",
                cause=str(error),
                hint="roll the table back to the snapshot before it",
            ) from error
    return decode_entry(text, place)


class SnapshotEntries:
    """The entries of a table as it was loaded; ``name`` is for messages."""

    def __init__(self, table: Any, name: str) -> None:
        self._table = table
        self._name = name
        self._snapshots = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}

    def last(self) -> Entry | None:
        """The newest entry, None if no ingest has written what the table has now.

        Raises ``TableError`` if that cannot be known.
        """
        oldest = None
        for snapshot_id in self._chain(self._current_id):
            if (entry := self._entry(snapshot_id)) is not None:
                return entry
            oldest = snapshot_id
        if ENTRY not in self._table.properties or oldest is None:
            return None
        # Rolled back to before the first batch; a copy of the table has other snapshots.
        snapshot_id, _ = self._property_snapshot()
        if self._is_first(oldest) and oldest in self._chain(snapshot_id):
            return None
        return self._property_entry(oldest)

    def entries(self) -> Iterator[tuple[Entry, int]]:
        """Entries and their times in ms, the newest first, as far back as there are snapshots."""
        for snapshot_id in self._chain(self._current_id):
            if (entry := self._entry(snapshot_id)) is not None:
                yield entry, int(self._snapshots[snapshot_id].timestamp_ms)

    def has(self, entry: Entry) -> bool | None:
        """Whether an entry was ever committed, also if it was rolled back since.

        None if it cannot be known, as snapshots have expired.
        """
        if any(
            _summary(snapshot).get(ENTRY_ID) == entry.id for snapshot in self._snapshots.values()
        ):
            return True
        for snapshot_id in self._chain(self._current_id):
            number = _summary(self._snapshots[snapshot_id]).get(SEQUENCE)
            if number is not None and int(number) <= entry.sequence:
                return False
            if self._is_first(snapshot_id):
                return False
        if self._current_id is None:
            return False
        names = {file.path for file in entry.table_files}
        return True if any(self._ends_with(path, names) for path in self._paths()) else None

    @property
    def _current_id(self) -> int | None:
        snapshot = self._table.current_snapshot()
        return None if snapshot is None else int(snapshot.snapshot_id)

    def _chain(self, snapshot_id: int | None) -> Iterator[int]:
        while snapshot_id is not None and snapshot_id in self._snapshots:
            yield snapshot_id
            snapshot_id = self._snapshots[snapshot_id].parent_snapshot_id

    def _entry(self, snapshot_id: int) -> Entry | None:
        text = _summary(self._snapshots[snapshot_id]).get(ENTRY)
        return None if text is None else _unpack(text, f"snapshot {snapshot_id} of {self._name}")

    # --- where snapshots are missing --------------------------------------------------------------

    def _is_first(self, snapshot_id: int) -> bool:
        """Whether no snapshot was before this one.

        That it has no parent is not enough: pyiceberg removes the id of one that expires, and a
        table that is replaced has new ones. Format 1 does not say it.
        """
        snapshot = self._snapshots[snapshot_id]
        return snapshot.parent_snapshot_id is None and snapshot.sequence_number == 1

    def _property_entry(self, oldest: int) -> Entry:
        """The entry in the properties, if the table descends from its snapshot."""
        snapshot_id, number = self._property_snapshot()
        is_confirmed = self._table.properties.get(CONFIRMED) == str(self._current_id)
        is_parent = self._snapshots[oldest].parent_snapshot_id == snapshot_id
        if is_parent or is_confirmed or self._has_files_of(snapshot_id, number):
            return _unpack(self._table.properties[ENTRY], f"property {ENTRY} of {self._name}")
        raise TableError(
            f"the Iceberg table {self._name} does not say which offsets it has",
            cause=f"snapshots have expired, or the table was replaced: its last entry is of "
            f"snapshot {snapshot_id}, and nothing proves that the table was not rolled back "
            "before it",
            found=f"snapshots from {self._current_id}, the current one, back to {oldest}",
            hint=f"if it has all that was ingested, set its property {CONFIRMED} to "
            f"{self._current_id}; to begin again with --start, remove its property {ENTRY}",
        )

    def _property_snapshot(self) -> tuple[int, int]:
        """Id and sequence number of the snapshot in the properties; 0 if it is of another table."""
        try:
            body = json.loads(self._table.properties[SNAPSHOT])
            if body["table"] != str(self._table.metadata.table_uuid):
                return int(body["id"]), 0  # the properties were copied
            return int(body["id"]), int(body["sequence-number"])
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(
                f"the property {SNAPSHOT} of the Iceberg table {self._name} is damaged",
                cause=f"{type(error).__name__}: {error}",
                hint="restore it, or roll the table back to a snapshot of the ingest",
            ) from error

    def _has_files_of(self, snapshot_id: int, number: int) -> bool:
        """Whether data of the table was added by a snapshot, or rewritten from its state.

        Both are known from the manifests: files that are rewritten keep the sequence number of the
        snapshot that the rewriting began with, which no other snapshot has. Format 1 has none.
        """
        for manifest in self._manifests():
            if manifest.added_snapshot_id == snapshot_id:
                return True
            is_in_range = 0 < (manifest.min_sequence_number or 0) <= number
            if is_in_range or self._table.format_version == 1:
                for entry in manifest.fetch_manifest_entry(io=self._table.io):
                    if entry.snapshot_id == snapshot_id or 0 < number == entry.sequence_number:
                        return True
        return False

    def _manifests(self) -> Iterator[Any]:
        snapshot = self._table.current_snapshot()
        if snapshot is not None:
            yield from snapshot.manifests(io=self._table.io)

    def _paths(self) -> Iterator[str]:
        for manifest in self._manifests():
            for entry in manifest.fetch_manifest_entry(io=self._table.io):
                yield entry.data_file.file_path

    @staticmethod
    def _ends_with(path: str, names: set[str]) -> bool:
        return any(path.endswith(f"/{name}") for name in names)

    def __repr__(self) -> str:
        return f"<SnapshotEntries {self._name}, {len(self._snapshots)} snapshots>"


def _summary(snapshot: Any) -> dict[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties
