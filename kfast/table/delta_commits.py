"""DeltaCommits: the commits of a Delta log, as far as an ingest reads them itself.

Owns ``_delta_log/VERSION.json``: who committed what is in ``commitInfo``, which clients of Delta do
not give by version once a commit without it, or a restored version, is in between. An ingest has
its `Entry` there, under `ENTRY`.

The history of a table is not the list of its versions: a version made by ``RESTORE`` goes on from
the one that it has restored, and what was committed in between is not part of it. `chain` follows
that. A Delta client removes commits that are older than the table's retention time and that a
checkpoint has; of those only the application transactions (``txn``) are left (`transactions`).

Used by the process that publishes.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kfast._base.clock import SystemClock
from kfast._base.optional import optional_package
from kfast.errors import TableError
from kfast.table.store import TableStore

DELTA_LOG: Final = "_delta_log"
ENTRY: Final = "kfast"
"""The key in ``commitInfo``."""

_RESTORE: Final = "RESTORE"
_VERSION: Final = "version"
_TIMES: Final = ("timestamp", "datetime")
_INFO: Final = '"commitInfo"'
_CHECKPOINT: Final = re.compile(
    r"(?P<version>\d{20})\.checkpoint(?:\.(?P<part>\d{10})\.(?P<parts>\d{10}))?"
    r"(?:\.[0-9a-f-]{36})?\.(?P<ending>parquet|json)"
)


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """What one commit says of itself; all of it may be missing."""

    version: int
    operation: str = ""
    entry: str = ""
    """JSON of the ingest's entry, "" for the commit of another client."""
    time_ms: int | None = None
    restored_version: int | None = None
    """Of a RESTORE to a version."""
    restored_time: str = ""
    """Of a RESTORE to a time, as its client has written it."""
    is_missing: bool = False
    """Whether it was removed: nothing is known of it, and of those before."""

    @property
    def is_restore(self) -> bool:
        """Whether it has made the table what it was at an earlier version."""
        return self.operation == _RESTORE


class DeltaCommits:
    """The commits of one table."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def read(self, version: int) -> DeltaCommit:
        """The commit of a version."""
        path = commit_path(version)
        data = self._store.read(path)
        if data is None:
            return DeltaCommit(version, is_missing=True)
        try:
            return _commit_of(version, data.decode())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise TableError(
                f"{self._store.url}/{path} is not a commit of a Delta table",
                cause=f"{type(error).__name__}: {error}",
                hint="restore the file",
            ) from error

    def chain(self, version: int, restored: Callable[[DeltaCommit], int]) -> Iterator[DeltaCommit]:
        """Yield the commits that a version consists of, the newest first.

        RESTORE is yielded, too, and followed by the version that it has restored, which
        ``restored`` looks up. The last one is missing if commits were removed.
        """
        while version >= 0:
            commit = self.read(version)
            yield commit
            if commit.is_missing:
                return
            version = restored(commit) if commit.is_restore else version - 1

    def transactions(self, least: int, most: int) -> dict[str, int] | None:
        """The application transactions of an ingest in the newest checkpoint of some versions.

        The keys are ids of applications, the values their last versions. None if there is no
        checkpoint.
        """
        checkpoints: dict[int, list[re.Match[str]]] = {}
        for stored in self._store.files(DELTA_LOG):
            match = _CHECKPOINT.fullmatch(stored.path.removeprefix(f"{DELTA_LOG}/"))
            if match is not None and least <= int(match["version"]) <= most:
                checkpoints.setdefault(int(match["version"]), []).append(match)
        for _, files in sorted(checkpoints.items(), reverse=True):
            parts = [file for file in files if file["part"]]
            if parts and len(parts) == len(files) and len(parts) < int(parts[0]["parts"]):
                continue  # still being written, or what is left of a killed writer
            versions: dict[str, int] = {}
            for file in parts or files:
                versions.update(self._transactions_in(f"{DELTA_LOG}/{file[0]}"))
            return versions
        return None

    def _transactions_in(self, path: str) -> Iterator[tuple[str, int]]:
        for row in self._checkpoint_rows(path):
            transaction = row.get("txn") or {}
            app_id = str(transaction.get("appId", ""))
            if app_id == ENTRY or app_id.startswith(f"{ENTRY}:"):
                yield app_id, int(transaction["version"])

    def _checkpoint_rows(self, path: str) -> list[Mapping[str, Any]]:
        if path.endswith(".json"):
            lines = (self._store.read(path) or b"").decode().splitlines()
            return [json.loads(line) for line in lines if line.strip()]
        parquet = optional_package("pyarrow.parquet", "a Delta table")
        with self._store.open_input(path) as opened:
            file = parquet.ParquetFile(opened)
            if "txn" not in file.schema_arrow.names:
                return []
            table = file.read(columns=["txn"])
            rows: list[Mapping[str, Any]] = table.filter(table["txn"].is_valid()).to_pylist()
            return rows

    def set_properties(self, table: Any, properties: Mapping[str, str]) -> bool:
        """Commit properties on a version; return False if it is not the newest any more.

        Not with deltalake, which gives tables with a list of features more of these by the way, and
        such a table is not for all of its readers any more.
        """
        metadata = table.metadata()
        info = {
            "timestamp": SystemClock().wall_ms(),
            "operation": "SET TBLPROPERTIES",
            "operationParameters": {"properties": json.dumps(properties)},
            "engineInfo": "kfast",
            "txnId": str(uuid.uuid4()),  # what is created twice is not another's
        }
        changed = {
            "id": str(metadata.id),
            "name": metadata.name,
            "description": metadata.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": list(metadata.partition_columns),
            "configuration": {**metadata.configuration, **properties},
            "createdTime": metadata.created_time,
        }
        lines = [json.dumps({"commitInfo": info}), json.dumps({"metaData": changed})]
        path = commit_path(int(table.version()) + 1)
        return self._store.create(path, "\n".join(lines).encode())

    def __repr__(self) -> str:
        return f"<DeltaCommits {self._store.url}>"


def commit_path(version: int) -> str:
    """The file of a commit, relative to the table."""
    return f"{DELTA_LOG}/{version:020d}.json"


def _commit_of(version: int, text: str) -> DeltaCommit:
    for line in text.splitlines():
        if _INFO not in line[:32]:  # a commit may have very many files, each on a line
            continue
        info = json.loads(line)["commitInfo"]
        operation = str(info.get("operation", ""))
        parameters = info.get("operationParameters") or {}
        restored, time = None, ""
        if operation == _RESTORE:
            restored = _number(parameters.get(_VERSION))
            time = next((str(parameters[name]) for name in _TIMES if parameters.get(name)), "")
        return DeltaCommit(
            version,
            operation,
            str(info.get(ENTRY, "")),
            _number(info.get("inCommitTimestamp", info.get("timestamp"))),
            restored,
            time,
        )
    return DeltaCommit(version)


def _number(value: object) -> int | None:
    """A number that a client has written as one, or as text."""
    return None if value in (None, "", "null") else int(str(value).strip('"'))
