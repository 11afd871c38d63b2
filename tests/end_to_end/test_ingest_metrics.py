"""CL-271: metrics of ``kfast ingest`` over a fake cluster, while it runs."""

from __future__ import annotations

import socket
import threading

import pytest

from kfast import cli
from kfast.table.ingest import Ingest
from kfast.table.ingest.options import IngestOptions
from tests.end_to_end.ingests import Table, Truth
from tests.end_to_end.metrics_server import free_port, lag, scraped
from tests.end_to_end.stage import eventually


@pytest.mark.parametrize("every_ms", [20, 3_600_000])
def test_metrics_of_a_follow(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch, every_ms: int
) -> None:
    """CL-271: what was read and is not in the table counts as lag."""
    monkeypatch.setattr("kfast.table.ingest.ingesting._LAG_MS", 10)
    port = free_port()
    options = IngestOptions(
        topics=("t",), to=str(table.folder), follow=True, every_ms=every_ms, metrics=f":{port}"
    )
    run = Ingest(options, {"bootstrap_servers": table.servers})
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        # Up to the ends as of the start it is published at once.
        eventually(lambda: scraped(port).get("rows_total") == 80)
        assert scraped(port)['end_offset{topic="t",partition="0"}'] == 50
        truth.write(0, 5)
        if every_ms == 20:
            eventually(lambda: scraped(port)["rows_total"] == 85)
            eventually(lambda: lag(port) == [0, 0])
        else:
            eventually(lambda: lag(port) == [5, 0])
            assert scraped(port)["rows_total"] == 80
    finally:
        run.stop()
        thread.join(30)
    assert scraped(port) == {}
    table.check(truth)


def test_the_option(truth: Truth, table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    """CL-270: an address that cannot be taken is an error before anything is read."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(table.command("--metrics", f":{port}")) == 2
    assert "cannot be served there" in capsys.readouterr().err
    assert cli.main(table.command("--metrics", "9400")) == 2
    assert "not an address to serve at" in capsys.readouterr().err
    assert table.names() == []
    assert cli.main(table.command("--metrics", ":0")) == 0
    table.check(truth)
