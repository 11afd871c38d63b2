"""kfast doctor: each check, the mistakes it names, and the exit status of the first of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfast import cli
from kfast.protocol.api_keys import ApiKey
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import EditResponse
from kfast.testing.sasl import SaslListener
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import HOST, dead_port, raw_server, web_server
from tests.unit.security.tls.authority import ca_pem, server_context

Checks = dict[str, dict[str, Any]]
Run = Callable[..., tuple[int, Checks]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def checks(servers: str, *words: str) -> tuple[int, Checks]:
        status = cli.main(["-b", servers, "doctor", *words, "-f", "json"])
        printed = capfd.readouterr()
        assert printed.err == ""
        found = json.loads(printed.out)
        assert found["ok"] is all(check["ok"] is not False for check in found["checks"])
        assert found["ok"] is (status == 0)
        for check in found["checks"]:
            assert [*check] == ["name", "ok", "ms", "message", "try"]
            assert check["ok"] is not False or check["try"], check
        return status, {check["name"]: check for check in found["checks"]}

    return checks


def failed(checks: Checks) -> list[str]:
    return [name for name, check in checks.items() if check["ok"] is False]


@pytest.fixture
def server() -> Iterator[BrokerServer]:
    cluster = FakeCluster(2)
    cluster.create_topic("orders", 2)
    cluster.append("orders", 1, [Record(b"k", b"v", timestamp=1_769_860_800_000)] * 5)
    cluster.create_topic("empty")
    with BrokerServer(cluster) as running:
        yield running


def test_everything_works(server: BrokerServer, run: Run) -> None:
    """CL-66: every server, every broker, topic, group, a record; with the time each took."""
    status, checks = run(server.bootstrap_servers, "orders", "-g", "billing")
    assert (status, failed(checks)) == (0, [])
    first, second = server.bootstrap_servers.split(",")
    assert [*checks] == [
        *("settings", "codecs", f"dns {HOST}"),
        *(f"tcp {first}", f"kafka {first}", f"tcp {second}", f"kafka {second}"),
        *("metadata", f"broker 1 {first}", f"broker 2 {second}"),
        *("topic orders", "group billing", "record", "clock"),
    ]
    assert checks["settings"]["message"] == f"bootstrap.servers={server.bootstrap_servers} (-b)"
    assert checks["metadata"]["message"] == "cluster fake-cluster: 2 brokers, 2 topics"
    assert checks["record"]["message"].startswith("orders-1 offset 0, ")
    assert all(isinstance(check["ms"], int) for check in checks.values())
    assert not [each for each in server.cluster.requests if each.api_key == ApiKey.JOIN_GROUP]


def test_the_table_has_marks_causes_and_hints(
    server: BrokerServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """CL-66: a line per check as it is done, cause and try below it; no escapes in a pipe."""
    assert cli.main(["-b", server.bootstrap_servers, "doctor", "ordes"]) == 5
    lines = capfd.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("✗"))
    assert lines[at].startswith("✗ topic ordes ")
    assert lines[at].endswith('no topic "ordes" on this cluster (2 topics)')
    assert lines[at + 1] == '    try: did you mean "orders"?'
    assert [line[0] for line in lines[at + 2 :]] == ["\u2013"] * 3
    assert {line[0] for line in lines[:at]} == {"✓"}
    assert all(" ms  " in line for line in lines[:at])
    assert cli.main(["-b", server.bootstrap_servers, "doctor", "-f", "csv"]) == 0
    assert capfd.readouterr().out.startswith("name,ok,ms,message,try\nsettings,true,")


@pytest.mark.parametrize(
    ("variables", "words", "is_coloured"),
    [
        ({}, [], True),
        ({"NO_COLOR": "1"}, [], False),
        ({"CLICOLOR": "0"}, [], False),
        ({"TERM": "dumb"}, [], False),
        ({}, ["--color", "never"], False),
        ({"NO_COLOR": "1"}, ["--color", "always"], True),
    ],
)
def test_marks_are_coloured_as_options_and_variables_say(
    variables: dict[str, str],
    words: list[str],
    is_coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """CL-66: on a terminal, like the headings of tables."""
    monkeypatch.setattr("os.isatty", lambda _fd: True)
    for name, value in ({"NO_COLOR": "", "CLICOLOR": "", "TERM": "xterm"} | variables).items():
        monkeypatch.setenv(name, value)
    cli.main(["doctor", "-X", "fetch.min.bytez=1", *words])
    assert ("\x1b[" in capfd.readouterr().out) is is_coloured


def test_refused_and_unknown_names(run: Run) -> None:
    """CL-67: exit 3, the check that failed, nothing after it is tried."""
    address = f"{HOST}:{dead_port()}"
    started = time.monotonic()
    status, checks = run(address)
    assert time.monotonic() - started < 3
    assert (status, failed(checks)) == (3, [f"tcp {address}"])
    assert checks[f"tcp {address}"]["message"] == f"cannot connect to {address}: connection refused"
    assert checks[f"tcp {address}"]["try"] == "check -b, and that the broker runs"
    assert checks["cluster"]["ok"] is None
    status, checks = run("no-such-host.invalid:9092")
    assert (status, failed(checks)) == (3, ["dns no-such-host.invalid"])


def test_a_server_that_works_makes_up_for_one_that_does_not(server: BrokerServer, run: Run) -> None:
    """CL-67: it is named nevertheless."""
    address = f"{HOST}:{dead_port()}"
    status, checks = run(f"{address},{server.bootstrap_servers}", "orders")
    assert (status, failed(checks)) == (3, [f"tcp {address}"])
    assert checks["record"]["ok"] is True


def test_servers_that_are_no_kafka_brokers(run: Run) -> None:
    """CL-67: HTTP is named, silence ends at --timeout."""
    with web_server() as address:
        status, checks = run(address)
        assert (status, failed(checks)) == (3, [f"kafka {address}"])
        assert "answers HTTP, not Kafka" in checks[f"kafka {address}"]["message"]
    with raw_server(None) as address:
        started = time.monotonic()
        status, checks = run(address, "--timeout", "1s")
        assert time.monotonic() - started < 4
        assert (status, failed(checks)) == (3, [f"kafka {address}"])
        assert "did not answer within" in checks[f"kafka {address}"]["message"]
    with raw_server(b"SSH-2.0-OpenSSH_9.6\r\n") as address:
        assert failed(run(address)[1]) == [f"kafka {address}"]


def test_tls(server: BrokerServer, run: Run) -> None:
    """CL-67: both ways round, an unknown issuer; it works with the right certificate."""
    first = server.bootstrap_servers.split(",")[0]
    status, checks = run(first, "-X", "security.protocol=SSL")
    assert (status, failed(checks)) == (3, [f"tls {first}"])
    assert "looks like a plaintext listener" in checks[f"tls {first}"]["message"]
    cluster = FakeCluster(1)
    with BrokerServer(cluster, server_context()) as secured:
        address = secured.bootstrap_servers
        status, checks = run(address)
        assert (status, failed(checks)) == (3, [f"kafka {address}"])
        status, checks = run(address, "-X", "security.protocol=SSL")
        assert (status, failed(checks)) == (4, [f"tls {address}"])
        pem = f"ssl_ca_pem={ca_pem()}"
        status, checks = run(address, "-X", "security.protocol=SSL", "-X", pem)
        assert (status, failed(checks)) == (0, [])
        assert checks[f"tls {address}"]["message"] == "certificate accepted, handshake complete"


def test_sasl(run: Run) -> None:
    """CL-67: a refusal is exit 4 and tried once, whatever the number of servers."""
    cluster = FakeCluster(2)
    cluster.sasl = SaslListener(users={"app": "s3cr3t"})
    words = [
        *("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"),
        *("-X", "sasl.username=app", "-X"),
    ]
    with BrokerServer(cluster) as running:
        first, second = running.bootstrap_servers.split(",")
        status, checks = run(running.bootstrap_servers, *words, "sasl.password=wrong")
        assert (status, failed(checks)) == (4, [f"sasl {first}"])
        assert checks[f"kafka {second}"]["message"] == "the log-in was refused"
        assert cluster.sasl.refusals == 1
        status, checks = run(running.bootstrap_servers, *words, "sasl.password=s3cr3t")
        assert (status, failed(checks)) == (0, [])
        assert checks[f"sasl {first}"]["message"] == 'logged in as "app" (PLAIN)'
        assert "s3cr3t" not in json.dumps(checks)


def test_a_dead_advertised_address(server: BrokerServer, run: Run) -> None:
    """CL-67: every broker is tried at the address it advertises."""
    first, second = server.bootstrap_servers.split(",")
    port = dead_port()
    server.cluster.advertise(2, HOST, port)
    status, checks = run(first)
    assert (status, failed(checks)) == (3, [f"broker 2 {HOST}:{port}"])
    check = checks[f"broker 2 {HOST}:{port}"]
    assert check["message"] == (
        f"connected to {first}, but that broker gives its address as {HOST}:{port}, "
        "where nothing listens"
    )
    assert check["try"] == "set advertised.listeners, or connect from inside that network"
    assert second not in str(checks)


def test_topics_groups_and_clocks(server: BrokerServer, run: Run) -> None:
    """CL-67: denied groups, partitions without a leader, no records, timestamps of the future."""
    servers, cluster = server.bootstrap_servers, server.cluster
    cluster.groups.denied.add("secret")
    status, checks = run(servers, "empty", "-g", "secret")
    assert (status, failed(checks)) == (4, ["group secret"])
    assert (checks["record"]["ok"], checks["record"]["message"]) == (None, "the topic is empty")
    assert checks["clock"]["ok"] is None
    cluster.append("empty", 0, [Record(b"k", b"v", timestamp=4_102_444_800_000)])
    status, checks = run(servers, "empty")
    assert (status, failed(checks)) == (1, ["clock"])

    def take_leader(message: Any, _: object) -> None:
        for topic in message.topics:
            topic.partitions[0].leader_id = -1

    rule = cluster.faults.add(EditResponse(take_leader), api=ApiKey.METADATA, times=None)
    try:
        status, checks = run(servers, "orders")
    finally:
        cluster.faults.remove(rule)
    assert (status, failed(checks)) == (3, ["topic orders"])
    assert checks["topic orders"]["message"] == "orders has 1 partition without a leader"
    assert checks["record"]["ok"] is True


def test_mistakes_in_settings(run: Run, server: BrokerServer) -> None:
    """CL-67: exit 2; files of TLS that are not there; secrets are not shown."""
    servers = server.bootstrap_servers
    status, checks = run(servers, "-X", "fetch.min.bytez=1")
    assert (status, failed(checks)) == (2, ["settings"])
    assert checks["settings"]["try"] == "did you mean fetch.min.bytes (int, default 1)?"
    missing = os.path.join(os.sep, "no", "such.pem")
    words = ["-X", "security.protocol=SSL", "-X", f"ssl.truststore.location={missing}"]
    status, checks = run(servers, *words)
    assert status == 2
    assert failed(checks) in (["settings"], ["tls files"])


def test_threads_and_sockets_end(server: BrokerServer, run: Run) -> None:
    """CL-66: nothing of a probe stays."""

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    run(server.bootstrap_servers)
    before = descriptors()
    for _ in range(3):
        run(server.bootstrap_servers)
    deadline = time.monotonic() + 5
    while descriptors() > before + 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert descriptors() <= before + 2
