"""TableLog: the log of a table, which lists its files and its writers in one order.

Owns the folder ``_kfast`` of a table, which readers ignore as its name begins with ``_``::

    _kfast/log/00000000000000000000.json    entries, numbered without gaps (``manifest``)
    _kfast/finished/00000000000000000000    marks of finished batches, empty
    _kfast/start/WRITER.json                start offsets of a writer's first batch
    _kfast/staging/WRITER/...               files, until they are published
    _kfast/lock                             locked by a run of ``kfast ingest``, on local disks

An entry is created only if there is none with its number, so the entries have one order, even if
several drivers write the table by mistake. A file that the log does not list is not part of the
table. A file that it lists exists or can be renamed from the staging folder, until its batch is
finished: from then on it is the user's, who may delete, move or compact it.

Used by the process that publishes; any process, one thread at a time.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kfast.errors import ConfigurationError, KafkaError, StorageError
from kfast.table.manifest import Entry, TableShape, Writer, decode_entry, encode_entry
from kfast.table.offsets_json import from_json_dict, to_json_dict
from kfast.table.schema_changes import check_schema
from kfast.table.store import TableStore
from kfast.types import TopicPartition

FOLDER: Final = "_kfast"
LOG: Final = f"{FOLDER}/log"
FINISHED: Final = f"{FOLDER}/finished"
STAGING: Final = f"{FOLDER}/staging"
KEPT_ENTRIES: Final = 1_000
"""Older entries are removed: the newest have the totals, and Spark repeats only the last one."""

_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table opened by a writer, with its newest entry."""

    writer: Writer
    last: Entry


class TableLog:
    """The log of one table."""

    def __init__(self, store: TableStore) -> None:
        self.store = store

    # --- entries ----------------------------------------------------------------------------------

    def entry(self, sequence: int) -> Entry | None:
        """Return an entry, None if there is none with this number."""
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

    def created_ms(self, sequence: int) -> int | None:
        """Return when an entry was created, by the clock of the store; None if there is none."""
        found = self.store.stat(_path(sequence))
        return None if found is None else found.modified_ms

    def append(self, entry: Entry) -> bool:
        """Create an entry; return False if there is one with its number."""
        return self.store.create(_path(entry.sequence), encode_entry(entry))

    def last(self) -> Entry | None:
        """Return the newest entry, None for a table without any.

        The listing of an object store may be stale: entries after the newest one listed are read by
        name.
        """
        names = [_number(file.path) for file in self.store.files(LOG)]
        sequence = max((int(name) for name in names if name), default=-1)
        found = self.entry(sequence) if sequence >= 0 else None
        while (following := self.entry(sequence + 1)) is not None:
            found, sequence = following, sequence + 1
        return found

    def forget_before(self, sequence: int) -> None:
        """Remove the entry that is `KEPT_ENTRIES` older, with its mark."""
        if sequence >= KEPT_ENTRIES:
            self.store.remove(_path(sequence - KEPT_ENTRIES))
            self.store.remove(finished_path(sequence - KEPT_ENTRIES))

    # --- finished batches -------------------------------------------------------------------------

    def is_finished(self, entry: Entry) -> bool:
        """Return whether all was done for the files of an entry."""
        return not entry.staged or self.store.read(finished_path(entry.sequence)) is not None

    def mark_finished(self, entry: Entry) -> None:
        """Record that all was done for the files of an entry."""
        if entry.staged:
            self.store.create(finished_path(entry.sequence), b"")

    # --- writers ----------------------------------------------------------------------------------

    def open(
        self,
        writer_id: str,
        checkpoint: str,
        shape: TableShape,
        *,
        take_over: bool = False,
        is_used: bool = False,
        recover: Callable[[Entry], object] | None = None,
    ) -> OpenTable:
        """Open the table for a query of Spark, as a new writer or the one it was before.

        With ``take_over`` the table may be written from another checkpoint than before. A
        checkpoint that ``is_used`` has batches: it can only continue its own table, as Spark
        numbers its next batch after those. ``recover`` finishes the last batch of another writer
        before this one begins.

        Raises ``ConfigurationError`` if another checkpoint writes the table, its shape differs, or
        the folder has files without a log.
        """
        last = self.last()
        self.check(last, shape)
        if last is not None:
            if last.writer.id == writer_id:
                return OpenTable(last.writer, last)
            if not take_over:
                raise ConfigurationError(
                    f"{self.store.url} is written by {last.writer}",
                    found=f"this query has the checkpoint {checkpoint}",
                    hint="use the same, or --take-over (take_over=True) if it writes no more",
                )
        if is_used:
            raise ConfigurationError(
                f"the checkpoint {checkpoint} has batches that {self.store.url} does not have",
                cause="it was used with another table, the table was removed, or another "
                "checkpoint wrote it meanwhile",
                hint="give the ingest an empty folder as its checkpoint",
            )
        if recover is not None and last is not None:
            recover(last)
        opened = self.begin(writer_id, checkpoint, shape, last)
        if opened is None:
            raise ConfigurationError(
                f"another query has just begun to write {self.store.url}",
                hint="start only one of them",
            )
        return opened

    def begin(
        self, writer_id: str, checkpoint: str, shape: TableShape, last: Entry | None
    ) -> OpenTable | None:
        """Begin a writer after the entry ``last``, None if there is a later one by now.

        The batch of ``last`` must be finished: a start looks at the newest entry only.
        """
        begin = 0 if last is None else last.sequence + 1
        writer = Writer(writer_id, checkpoint, begin)
        entry = Entry(begin, writer, shape)
        if last is not None:
            entry = replace(
                last, sequence=begin, writer=writer, shape=shape, batch_id=None, files=()
            )
        if not self.append(entry):
            return None
        self.forget_before(begin)
        return OpenTable(writer, entry)

    def check(self, last: Entry | None, shape: TableShape) -> None:
        """Check that a table with this newest entry can be written in a shape."""
        if last is None:
            self._check_empty()
        else:
            self._check_shape(last.shape, shape)

    def _check_empty(self) -> None:
        files = [file.path for file in self.store.files("") if not is_hidden(file.path)]
        if files:
            raise ConfigurationError(
                f"{self.store.url} has files, but no log that lists them",
                found=f"{files[0]}" + (f" and {len(files) - 1} more" if files[1:] else ""),
                hint="write to an empty folder, or restore its folder _kfast",
            )

    def _check_shape(self, found: TableShape, wanted: TableShape) -> None:
        for name, has, wants in (
            ("format", found.format, wanted.format),
            ("partition_by", ",".join(found.partition_by), ",".join(wanted.partition_by)),
            ("iceberg-table", found.catalog_table, wanted.catalog_table),
        ):
            if has != wants:
                raise ConfigurationError(
                    f"{self.store.url} has the {name} {has or 'none'}",
                    found=f"this one has {wants or 'none'}",
                    hint="use the table's, or write to another folder",
                )
        check_schema(found.schema, wanted.schema, self.store.url, wanted.format)

    def first_offsets(
        self, writer: Writer, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the start offsets of a writer's first batch: ``offsets`` at the first call.

        Spark's checkpoint has the end of a batch, but not the start of the first: that is asked for
        again when the batch is repeated, and log starts and ends may have moved by then.
        """
        path = _start_path(writer)
        data = json.dumps(to_json_dict(offsets)).encode()
        if self.store.create(path, data):
            return dict(offsets)
        return from_json_dict(json.loads(self.store.read(path) or b"{}"))

    # --- the store --------------------------------------------------------------------------------

    def probe(self) -> int:
        """Check that files are created exclusively; return the time by the store's clock."""
        path = f"{FOLDER}/probe-{uuid.uuid4().hex}"
        try:
            is_new = self.store.create(path, b"1")
            is_kept = not self.store.create(path, b"2") and self.store.read(path) == b"1"
            found = self.store.stat(path)
        except OSError as error:
            raise StorageError(
                f"cannot write to {self.store.url}",
                cause=str(error),
                hint="check the folder and its disk, and for an object store its credentials",
            ) from error
        except KafkaError:
            raise
        except Exception as error:  # packages of filesystems have classes of their own
            raise ConfigurationError(
                f"cannot write to {self.store.url}",
                cause=str(error),
                hint="check the folder, and for an object store its credentials",
            ) from error
        finally:
            with contextlib.suppress(Exception):
                self.store.remove(path)
        if not is_new or not is_kept or found is None:
            raise ConfigurationError(
                f"{self.store.url} does not prevent a file from being created twice",
                cause="without that a batch could be published twice",
                hint="upgrade the package of this filesystem, or use another one",
            )
        return found.modified_ms

    def __repr__(self) -> str:
        return f"<TableLog {self.store.url}>"


def is_hidden(path: str) -> bool:
    """Return whether readers of a table ignore a file."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _path(sequence: int) -> str:
    return f"{LOG}/{sequence:0{_DIGITS}d}.json"


def finished_path(sequence: int) -> str:
    """Return the path of the mark of a finished batch."""
    return f"{FINISHED}/{sequence:0{_DIGITS}d}"


def _start_path(writer: Writer) -> str:
    return f"{FOLDER}/start/{writer.id}.json"


def _number(path: str) -> str:
    """Return the number in the name of an entry, "" for other files."""
    name = path.rpartition("/")[2].removesuffix(".json")
    return name if len(name) == _DIGITS and name.isdigit() else ""
