"""ManifestLog: the log of a table of plain files, Parquet or Arrow.

Owns most of the folder ``_kfast`` of such a table, which readers ignore as its name begins with
``_``::

    _kfast/log/00000000000000000000.json    entries, numbered without gaps (`Entry`)
    _kfast/finished/00000000000000000000    marks of finished batches, empty
    _kfast/staging/WRITER/...               files, until they are published
    _kfast/lock                             locked by a run of ``kfast ingest``, on local disks

An entry is created only if there is none with its number, so the entries have one order, even if
several drivers write the table by mistake. A batch becomes part of the table in three steps, each
flushed to disk before the next:

1. Its manifest, the entry, is created. From then on the batch is part of the table.
2. Its files are renamed to the names that readers see. The names are in the manifest, so that any
   process can repeat this.
3. It is marked as finished. From then on its files are the user's, who may delete, move or compact
   them, and nothing here asks for them again.

A process that is killed between 1 and 3 leaves the rest to ``recover`` at the next start. A file
that no entry lists is not part of the table.
"""

from __future__ import annotations

from typing import Final

from kfast.errors import ConfigurationError, KafkaError
from kfast.table.batches import DataFile
from kfast.table.entries import Entry, TableShape, Writer, decode_entry, encode_entry, first_entry
from kfast.table.fsspec_store import open_store
from kfast.table.projection import Projection
from kfast.table.staged_files import StagedFiles
from kfast.table.store import TableStore
from kfast.table.table_log import FOLDER, OpenFolder, OpenTable, is_hidden

LOG: Final = f"{FOLDER}/log"
FINISHED: Final = f"{FOLDER}/finished"
KEPT_ENTRIES: Final = 1_000
"""Older entries are removed: the newest have the totals, and Spark repeats only the last one."""

_DELTA_LOG: Final = "_delta_log"
_DIGITS: Final = 20


class ManifestLog:
    """The log of one table; see `TableLog`."""

    def __init__(self, store: TableStore, open_folder: OpenFolder = open_store) -> None:
        self.store = store
        self._files = StagedFiles(store, open_folder)

    # --- entries ----------------------------------------------------------------------------------

    def entry(self, sequence: int) -> Entry | None:
        """The entry with a number, None if there is none."""
        path = _path(sequence)
        data = self.store.read(path)
        if data is None:
            return None
        entry = decode_entry(data, f"{self.store.url}/{path}")
        if entry.sequence != sequence:
            raise KafkaError(
                f"{self.store.url}/{path} is entry {entry.sequence} under another name",
                hint="restore the folder as it was",
            )
        return entry

    def last(self) -> Entry | None:
        """The newest entry, None for a table without any.

        The listing of an object store may be stale: entries after the newest one listed are read by
        name.
        """
        names = [_number(file.path) for file in self.store.files(LOG)]
        sequence = max((int(name) for name in names if name), default=-1)
        newest = self.entry(sequence) if sequence >= 0 else None
        while (following := self.entry(sequence + 1)) is not None:
            newest, sequence = following, sequence + 1
        return newest

    def after(self, last: Entry | None) -> list[tuple[Entry, int | None]]:
        """The entries after one, the oldest first, each with its time by the clock of the store."""
        entries: list[tuple[Entry, int | None]] = []
        sequence = 0 if last is None else last.sequence + 1
        while (entry := self.entry(sequence)) is not None:
            stored = self.store.stat(_path(sequence))
            entries.append((entry, None if stored is None else stored.modified_ms))
            sequence += 1
        return entries

    def published(self, writer: Writer, batch_id: int) -> Entry | None:
        """The entry that has the number of a batch, whoever has written it."""
        return self.entry(writer.sequence(batch_id))

    # --- opening ----------------------------------------------------------------------------------

    def check(
        self,
        shape: TableShape,
        projection: Projection,  # noqa: ARG002 - the shape has the columns
        last: Entry | None,
    ) -> None:
        """Check that a table with this newest entry can be written in a shape."""
        if last is None:
            self._check_empty()
        else:
            self._check_shape(last.shape, shape)

    def _check_empty(self) -> None:
        files = [file.path for file in self.store.files("")]
        if any(path.startswith(f"{_DELTA_LOG}/") for path in files):
            raise ConfigurationError(
                f"{self.store.url} is a Delta table", hint="--format delta, or another folder"
            )
        visible = [path for path in files if not is_hidden(path)]
        if visible:
            raise ConfigurationError(
                f"{self.store.url} has files, but no log that lists them",
                found=f"{visible[0]}" + (f" and {len(visible) - 1} more" if visible[1:] else ""),
                hint=f"write to an empty folder, or restore its folder {FOLDER}",
            )

    def _check_shape(self, table_shape: TableShape, shape: TableShape) -> None:
        for name, has, wants in (
            ("format", table_shape.format, shape.format),
            ("partition_by", ",".join(table_shape.partition_by), ",".join(shape.partition_by)),
        ):
            if has != wants:
                raise ConfigurationError(
                    f"{self.store.url} has the {name} {has or 'none'}",
                    found=f"this one has {wants or 'none'}",
                    hint="use the table's, or write to another folder",
                )
        from kfast.table.schema_changes import check_schema  # noqa: PLC0415 - at a start only

        check_schema(table_shape.schema, shape.schema, self.store.url, shape.format)

    def begin(
        self,
        writer: Writer,
        shape: TableShape,
        projection: Projection,  # noqa: ARG002 - the shape has the columns
        last: Entry | None,
    ) -> OpenTable | None:
        """Begin a writer after the entry ``last``, None if there is a later one by now.

        The batch of ``last`` must be finished: a start looks at the newest entry only.
        """
        if last is not None and last.writer == writer:
            return OpenTable(writer, last)
        entry = first_entry(writer, shape) if last is None else last.beginning(writer, shape)
        if not self._create(entry):
            return None
        return OpenTable(writer, entry)

    # --- publishing -------------------------------------------------------------------------------

    def append(self, entry: Entry) -> bool:
        """Create the manifest of a batch and finish it; False if there is one with its number."""
        if not self._create(entry):
            return False
        self._finish(entry)
        return True

    def _create(self, entry: Entry) -> bool:
        if not self.store.create(_path(entry.sequence), encode_entry(entry)):
            return False
        if entry.sequence >= KEPT_ENTRIES:
            self.store.remove(_path(entry.sequence - KEPT_ENTRIES))
            self.store.remove(finished_path(entry.sequence - KEPT_ENTRIES))
        return True

    def recover(self, last: Entry | None) -> None:
        """Finish an entry, unless it was finished before.

        At a start only the newest needs it: those before were finished before it was created.
        """
        if last is not None and not self.is_finished(last):
            self._finish(last)

    def _finish(self, entry: Entry) -> None:
        """Rename the files of an entry to their final names; idempotent."""
        if not entry.files:
            return
        self._files.rename(entry.files, lambda file: self._lost(entry, file))
        self.store.create(finished_path(entry.sequence), b"")

    def is_finished(self, entry: Entry) -> bool:
        """Whether all was done for the files of an entry."""
        return not entry.files or self.store.read(finished_path(entry.sequence)) is not None

    def _lost(self, entry: Entry, file: DataFile) -> KafkaError:
        owner = next(owner for owner in entry.ranges if file in owner.files)
        return KafkaError(
            f"{self._files.store_of(file.folder).url}/{file.path} is lost: its batch was "
            "published but not finished, and it is neither in its folder nor in the staging folder",
            found=f"offsets {owner.from_offset} to {owner.until_offset - 1} of "
            f"{owner.topic_partition}",
            hint="restore the file; if it was moved or deleted on purpose, create the empty file "
            f"{self.store.url}/{finished_path(entry.sequence)}",
            topic=owner.topic,
            partition=owner.partition,
            offset=owner.from_offset,
        )

    def claimed(self) -> set[str]:
        """The staged files of the newest entry, which may not have their names yet."""
        last = self.last()
        return set() if last is None else {file.staged for file in last.files}

    def __repr__(self) -> str:
        return f"<ManifestLog {self.store.url}>"


def _path(sequence: int) -> str:
    return f"{LOG}/{sequence:0{_DIGITS}d}.json"


def finished_path(sequence: int) -> str:
    """The path of the mark of a finished batch."""
    return f"{FINISHED}/{sequence:0{_DIGITS}d}"


def _number(path: str) -> str:
    """The number in the name of an entry, "" for other files."""
    name = path.rpartition("/")[2].removesuffix(".json")
    return name if len(name) == _DIGITS and name.isdigit() else ""
