"""A catalog that speaks Iceberg's REST protocol over HTTP, and can fail as servers do.

Requests and answers are of pyiceberg's models, the tables of a catalog in a file. It is not one of
the servers that people run; what it has that they do not is `Fault`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest


class Fault(Enum):
    """What happens to a commit."""

    LOST_ANSWER = "it is done, and the connection breaks"
    UNKNOWN = "it is done, and the answer is 500"
    REFUSED = "it is not done, and the answer is 503"
    LATE = "the answer is 500, and it is tried when `RestCatalogServer.late` is called"


class RestCatalogServer:
    """One server; ``faults`` are of the next commits of snapshots, one each."""

    def __init__(self, folder: Path) -> None:
        self.catalog = SqlCatalog(
            "server", uri=f"sqlite:///{folder}/rest.db", warehouse=f"file://{folder}/rest"
        )
        self.faults: list[Fault] = []
        self.commits = 0
        self._late: list[CommitTableRequest] = []
        self._lock = threading.Lock()
        server = self

        class Handler(_Handler):
            owner = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """Stop to listen."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def commit(self, request: CommitTableRequest) -> str:
        """Commit to a table; the JSON of the answer."""
        identifier = (*request.identifier.namespace.root, request.identifier.name)
        with self._lock:
            table = self.catalog.load_table(identifier)
            answer = self.catalog.commit_table(table, request.requirements, request.updates)
            self.commits += 1
        return str(answer.model_dump_json(by_alias=True))

    def fault_of(self, request: CommitTableRequest) -> Fault | None:
        """The fault of this commit."""
        has_snapshot = any(update.action == "add-snapshot" for update in request.updates)
        return self.faults.pop(0) if has_snapshot and self.faults else None

    def delay(self, request: CommitTableRequest) -> None:
        """Keep a commit for `late`."""
        self._late.append(request)

    def late(self) -> int:
        """Try the commits that are late; how many were accepted."""
        done = 0
        for request in self._late:
            try:
                self.commit(request)
                done += 1
            except CommitFailedException:
                pass
        self._late.clear()
        return done


class _Handler(BaseHTTPRequestHandler):
    owner: RestCatalogServer

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing to the terminal."""

    def do_GET(self) -> None:
        names = self._names
        if names == ["config"]:
            self._answer(200, '{"defaults": {}, "overrides": {}}')
        elif len(names) == 4:
            self._try(lambda: self._table(self.owner.catalog.load_table((names[1], names[3]))))
        else:
            self._try(lambda: str(self.owner.catalog.load_namespace_properties(names[1]) and "{}"))

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        names = self._names
        if names == ["namespaces"]:
            self._try(self._create_namespace)
        elif len(names) == 3:
            self._try(lambda: self._create(names[1], json.loads(body)))
        else:
            self._commit(CommitTableRequest.model_validate_json(body))

    def do_DELETE(self) -> None:
        names = self._names
        self._try(lambda: str(self.owner.catalog.drop_table((names[1], names[3])) or ""))

    @property
    def _names(self) -> list[str]:
        return self.path.partition("?")[0].strip("/").split("/")[1:]

    def _create_namespace(self) -> str:
        self.owner.catalog.create_namespace("lake")
        return '{"namespace": ["lake"], "properties": {}}'

    def _create(self, namespace: str, body: dict[str, Any]) -> str:
        absent = {"location": None, "partition-spec": None, "write-order": None}
        request = CreateTableRequest.model_validate({**absent, **body})
        more = {} if request.partition_spec is None else {"partition_spec": request.partition_spec}
        return self._table(
            self.owner.catalog.create_table(
                (namespace, request.name),
                request.table_schema,
                properties=request.properties,
                **more,
            )
        )

    @staticmethod
    def _table(table: Any) -> str:
        metadata = table.metadata.model_dump_json(by_alias=True)
        return f'{{"metadata-location": "{table.metadata_location}", "metadata": {metadata}}}'

    def _commit(self, request: CommitTableRequest) -> None:
        fault = self.owner.fault_of(request)
        if fault is Fault.REFUSED:
            self._error(503, "ServiceUnavailableException")
        elif fault is Fault.LATE:
            self.owner.delay(request)
            self._error(500, "CommitStateUnknownException")
        elif fault is None:
            self._try(lambda: self.owner.commit(request))
        else:
            self.owner.commit(request)
            if fault is Fault.UNKNOWN:
                self._error(500, "CommitStateUnknownException")
            self.close_connection = True

    def _try(self, action: Any) -> None:
        for kind, status in (
            (NoSuchTableError, 404),
            (NoSuchNamespaceError, 404),
            (CommitFailedException, 409),
            (TableAlreadyExistsError, 409),
            (NamespaceAlreadyExistsError, 409),
        ):
            action = self._mapped(action, kind, status)
        answer = action()
        if answer is not None:
            self._answer(200, answer)

    def _mapped(self, action: Any, kind: type[Exception], status: int) -> Any:
        def mapped() -> str | None:
            try:
                answer: str | None = action()
            except kind as error:
                self._error(status, f"{kind.__name__}: {error}")
                return None
            return answer

        return mapped

    def _error(self, status: int, message: str) -> None:
        text = message.replace('"', "'").replace("\n", " ")
        self._answer(status, f'{{"error": {{"message": "{text}", "type": "x", "code": {status}}}}}')

    def _answer(self, status: int, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def rest_catalog(folder: Path) -> Iterator[RestCatalogServer]:
    """A server that listens; its tables are in a folder."""
    (folder / "rest").mkdir()
    server = RestCatalogServer(folder)
    try:
        yield server
    finally:
        server.close()
