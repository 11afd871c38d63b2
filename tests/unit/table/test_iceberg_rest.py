"""W-33: Iceberg tables of a catalog on a server: answers that are lost, late, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfast._base.clock import ExponentialBackoff
from kfast.errors import ConfigurationError, KafkaError
from kfast.table.batches import files_in
from kfast.table.projection import OutputColumn
from kfast.table.store import LocalStore

pytest.importorskip("pyiceberg")

from kfast.table.iceberg_catalog import load_iceberg
from tests.unit.table.iceberg_rest import Fault, RestCatalogServer, rest_catalog
from tests.unit.table.iceberg_tables import (
    NAME,
    Run,
    files_of,
    records,
    rows,
    settings,
    with_columns,
)

pytestmark = pytest.mark.slow  # hundreds of small tables on disk


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestCatalogServer]:
    monkeypatch.setattr("kfast.table.iceberg_log._BACKOFF", ExponentialBackoff(0, 0))
    with rest_catalog(tmp_path) as running:
        settings(monkeypatch, TYPE="rest", URI=running.url)
        yield running


@pytest.fixture
def store(server: RestCatalogServer, tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "table")


def listed() -> set[str]:
    files = load_iceberg(NAME).inspect.files().to_pylist()
    return {row["file_path"].rpartition("/")[2] for row in files}


def test_a_table_of_a_server(store: LocalStore) -> None:
    """It is created, gets columns and partitions, and goes on where it ends."""
    Run(store, partition_by=("partition", "bucket(4,offset)")).publish(count=6)
    more = with_columns(OutputColumn("price", "value", "long"))
    run = Run(store, more)
    run.publish(fill=lambda _, at: {"price": at})
    assert rows() == records(8)
    assert len(load_iceberg(NAME).spec().fields) == 2
    assert load_iceberg(NAME).scan(row_filter="price = 7").to_arrow().num_rows == 2
    assert Run(store, more).last.ends == run.last.ends


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.UNKNOWN, Fault.REFUSED])
def test_a_commit_without_a_good_answer_is_done_once(
    store: LocalStore, server: RestCatalogServer, fault: Fault
) -> None:
    """Whether the server has done it or not."""
    run = Run(store)
    server.faults += [fault]
    run.publish()
    assert server.faults == []
    run.publish()
    assert rows() == records(4)
    assert len(load_iceberg(NAME).snapshots()) == 2
    assert files_of(store) == listed()


def test_a_commit_that_arrives_late_is_refused(
    store: LocalStore, server: RestCatalogServer
) -> None:
    """Behind that of the next try; and one that arrives before it is the one that counts."""
    run = Run(store)
    run.publish()
    server.faults += [Fault.LATE]
    run.publish()
    assert server.late() == 0
    assert rows() == records(4)
    assert files_of(store) == listed()


def test_a_run_that_gives_up_may_still_be_published(
    store: LocalStore, server: RestCatalogServer
) -> None:
    """Its files stay until its commit can arrive no more."""
    run = Run(store)
    run.publish()
    server.faults += [Fault.LATE] * 8
    with pytest.raises(KafkaError, match=r"cannot commit to the Iceberg table test\.lake\.orders"):
        run.publish()
    again = Run(store)
    assert again.last.ends == dict.fromkeys(again.last.ends, 2)
    assert server.late() == 1, "the first one; the others are refused"
    assert rows() == records(4)
    with pytest.raises(KafkaError, match="is now written by"):
        again.publish()
    Run(store).publish()
    assert rows() == records(6)
    server.faults += [Fault.LATE] * 8
    with pytest.raises(KafkaError, match="cannot commit"):
        Run(store).publish()
    Run(store).publish()
    assert server.late() == 0
    assert rows() == records(8)
    Run(store)
    visible = {path for path in files_of(store) if not path.startswith("_kfast/")}
    assert visible == listed()
    assert not [path for path in files_of(store) if "pending-" in path]


def test_dead_letters_of_a_late_commit_are_there(
    store: LocalStore, server: RestCatalogServer, tmp_path: Path
) -> None:
    """The run that gave up has not removed them."""
    letters = LocalStore(tmp_path / "letters")
    run = Run(store)
    run.publish(letters=letters.url)
    parts = run.stage(letters=letters.url)
    server.faults += [Fault.LATE] * 8
    with pytest.raises(KafkaError, match="cannot commit"):
        run.publish(parts)
    run.publisher.abort(run.writer, 1, files_in(parts), is_complete=True)
    assert server.late() == 1
    Run(store)
    assert rows() == records(4)
    assert files_of(letters) == {"0-0.letter", "1-0.letter", "0-2.letter", "1-2.letter"}


def test_a_server_that_is_gone(
    store: LocalStore, server: RestCatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, with what to look at."""
    run = Run(store)
    run.publish()
    parts = run.stage()
    server.close()
    with pytest.raises(KafkaError, match=r"cannot read the Iceberg table test\.lake") as caught:
        run.publish(parts)
    assert "check the catalog" in str(caught.value)
    with pytest.raises(ConfigurationError, match="cannot open the catalog test"):
        Run(store)
    settings(monkeypatch, URI="http://127.0.0.1:9")
