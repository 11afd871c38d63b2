"""SnapshotEntries: the entries of an Iceberg table, in the summaries of its snapshots.

Owns where they are:

====================  =============================================================================
``kfast.entry``       in the summary of each snapshot of an ingest: the whole entry but its files
``kfast.id``,         beside it: the id of the entry and its number
``kfast.sequence``
``kfast.entry``,      properties of the table, set by the same commit: the newest entry again, with
``kfast.snapshot``    the id and the sequence number of its snapshot
====================  =============================================================================

The snapshots from the current one back through its parents are what the table consists of, so the
first of them with an entry has the truth: after a rollback it is an older one. The properties are
for the time when that snapshot has expired. They count only if the table provably still descends
from it: the chain ends at its id, or files of the table have its id or its sequence number, as
those that it added and those of a compaction which began with it. Otherwise somebody may have
rolled the table back before it, and the table is refused.

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


def properties_of(entry: Entry, snapshot_id: int, sequence_number: int) -> dict[str, str]:
    """The properties of the table that go with a snapshot."""
    snapshot = {"id": snapshot_id, "sequence-number": sequence_number}
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
        snapshot_id = self._current_id
        root = None
        while snapshot_id is not None and snapshot_id in self._snapshots:
            if (entry := self._entry(snapshot_id)) is not None:
                return entry
            root, snapshot_id = snapshot_id, self._snapshots[snapshot_id].parent_snapshot_id
        if ENTRY not in self._table.properties:
            return None
        if snapshot_id is None:
            self._check_root(root)
            return None
        return self._property_entry(snapshot_id)

    def entries(self) -> Iterator[tuple[Entry, int]]:
        """Entries and their times in ms, the newest first, as far back as there are snapshots."""
        for snapshot_id in self._chain(self._current_id):
            if (entry := self._entry(snapshot_id)) is not None:
                yield entry, int(self._snapshots[snapshot_id].timestamp_ms)

    def has(self, entry: Entry) -> bool | None:
        """Whether an entry was ever committed, also if it was rolled back since.

        None if it cannot be known, as snapshots have expired.
        """
        if any(_summary(each).get(ENTRY_ID) == entry.id for each in self._snapshots.values()):
            return True
        for snapshot_id in self._chain(self._current_id):
            number = _summary(self._snapshots[snapshot_id]).get(SEQUENCE)
            if number is not None and int(number) <= entry.sequence:
                return False
            if self._snapshots[snapshot_id].parent_snapshot_id is None:
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

    def _property_entry(self, missing_id: int) -> Entry:
        """The entry in the properties, if the table descends from its snapshot."""
        snapshot_id, number = self._property_snapshot()
        is_confirmed = self._table.properties.get(CONFIRMED) == str(self._current_id)
        if missing_id == snapshot_id or is_confirmed or self._has_files_of(snapshot_id, number):
            return _unpack(self._table.properties[ENTRY], f"property {ENTRY} of {self._name}")
        raise TableError(
            f"the snapshots of the Iceberg table {self._name} that say which offsets it has have "
            "expired",
            cause=f"its last entry is of snapshot {snapshot_id}, and it cannot be proved that the "
            "table was not rolled back before it",
            found=f"the parents of the current snapshot {self._current_id} are known back to "
            f"{missing_id}, which has expired",
            hint=f"if it was not rolled back, set its property {CONFIRMED} to "
            f"{self._current_id}; else write to another table",
        )

    def _property_snapshot(self) -> tuple[int, int]:
        try:
            body = json.loads(self._table.properties[SNAPSHOT])
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

    def _check_root(self, root: int | None) -> None:
        """Check that a table whose snapshots have no entry, back to the first, was rolled back.

        A table that was replaced, such as by ``CREATE OR REPLACE``, has other snapshots, and may
        have the rows all the same.
        """
        if root is None:
            return
        snapshot_id, _ = self._property_snapshot()
        if root in self._chain(snapshot_id):
            return
        raise TableError(
            f"the Iceberg table {self._name} was replaced: its snapshots do not descend from those "
            "of the ingest",
            found=f"the first one is {root}, and the last entry is of snapshot {snapshot_id}",
            hint=f"remove its property {ENTRY} to begin again, with the offsets of --start; or "
            "roll it back",
        )

    def __repr__(self) -> str:
        return f"<SnapshotEntries {self._name}, {len(self._snapshots)} snapshots>"


def _summary(snapshot: Any) -> dict[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties
