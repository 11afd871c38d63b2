"""``LocalKafka``: a real Apache Kafka on this machine, for development, tests and benchmarks.

Owns a cluster of one or more KRaft nodes, each broker and controller, on loopback: start, stop, and
the operations of tests on brokers. ``java`` and ``jars`` find Java and jars, ``node`` is one
process, ``topics`` creates and deletes topics, ``security`` has listeners, users and ACLs. The
nodes and their folder (``running``) are removed by ``stop``, when the object is collected, when the
interpreter exits, and when the program is killed (``reaper``).

Not thread-safe. A forked child must not use the object; its copy does nothing.
"""

from __future__ import annotations

import os
import subprocess
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError, IllegalStateError, LocalKafkaError
from kfast.local import requests
from kfast.local.acl import Acl
from kfast.local.certificates import Certificates
from kfast.local.jars import DEFAULT_VERSION, Progress, resolve_jars
from kfast.local.java import find_java
from kfast.local.node import HOST, LocalNode, Runtime, free_ports, random_uuid
from kfast.local.requests import Address
from kfast.local.running import SHUTDOWN_TIMEOUT_MS, Running
from kfast.local.security import PLAINTEXT, LocalSecurity

__all__ = ["LocalKafka", "resolve_jars"]

logger = get_logger(__name__)
_CHECK_SECONDS: Final = 0.05
_PORT_TRIES: Final = 3
_STARTUP_TIMEOUT_MS: Final = 120_000
_TOPIC_TIMEOUT_MS: Final = 30_000


def _broker_defaults(nodes: int, startup_timeout_ms: int = _STARTUP_TIMEOUT_MS) -> dict[str, str]:
    """Return broker settings for development: fast start, small, no retention by age."""
    replicas = str(min(nodes, 3))
    few = "1" if nodes == 1 else "3"
    settings = {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # A broker that finds no controller in this time exits; Kafka's default is 60 s.
        "initial.broker.registration.timeout.ms": str(startup_timeout_ms),
        "log.retention.ms": "-1",
        "log.segment.delete.delay.ms": "1000",
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
        "share.coordinator.state.topic.min.isr": "1",
        "transaction.state.log.min.isr": "1",
    }
    if nodes > 1:  # a killed node is fenced, and may register again, after the session timeout
        settings["broker.heartbeat.interval.ms"] = "500"
        settings["broker.session.timeout.ms"] = "4000"
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{topic}.num.partitions"] = few
        settings[f"{topic}.replication.factor"] = replicas
    return settings


class LocalKafka:
    """A real Apache Kafka cluster in processes of this machine.

    Parameters
    ----------
    nodes : int
        Number of brokers; each is a controller as well. Usually 1 or 3.
    version : str
        Release of Apache Kafka. Its jars are downloaded at the first use and cached per user.
    config : Mapping, optional
        Broker settings over the defaults, by Kafka's dotted names, the same for all nodes.
    heap : str
        Java's ``-Xmx`` of each node.
    java_options : sequence of str
        Further options for the brokers' Java. ``-XX:TieredStopAtLevel=1`` starts in three
        quarters of the time and costs throughput.
    log_dir : path, optional
        Folder of data and logs, which a later LocalKafka with the same folder continues; rules and
        SCRAM users are data. Default: a temporary folder that `stop` removes.
    port : int, optional
        Client port of the first node, for the first protocol in ``security``; further nodes have
        the ports after it. Default: any free ports.
    startup_timeout_ms : int
        Longest time for the nodes to start, without the download of jars. Three of them took 45 s
        on two busy cores.
    progress : callable, optional
        Called with a short text when there is something to wait for.
    security : str or iterable of str
        Security protocols that have a listener: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL. Brokers
        and Kafka's tools use PLAINTEXT, which always has one.
    users : Mapping, optional
        Users and their passwords, for PLAIN and both SCRAMs; for OAUTHBEARER the clients and
        secrets of `token_endpoint`. Default: the user ``app`` with a password made up.
    acls : iterable of Acl, optional
        Makes the brokers have an authorizer that allows this and nothing else. A connection without
        a user (PLAINTEXT, and SSL without a client certificate) may do everything.
    mechanisms : iterable of str, optional
        Mechanisms of SASL. Default: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. GSSAPI
        needs ``sasl.jaas.config`` of each listener, with a keytab, in ``config``.
    reauth_ms : int
        How long a client that has logged in by SASL may stay without logging in again (KIP-368); 0
        for ever.
    certificates : Certificates, optional
        Those of another LocalKafka. Default: new ones at each start.

    Raises
    ------
    LocalKafkaError
        When started: no Java, no jars, or a broker did not start; the message has the end of its
        log.
    MissingDependencyError
        When started: TLS and OAUTHBEARER need the package ``cryptography``.

    Notes
    -----
    A node takes about 2 s to start and 320 MB of memory. Topics are not created automatically,
    records are not deleted by age, and groups form without a delay.

    Examples
    --------
    >>> with kfast.LocalKafka() as kafka:
    ...     kafka.create_topic("events", partitions=3)
    ...     kfast.read_topic("events", bootstrap_servers=kafka.bootstrap_servers)

    With TLS and users:

    >>> with kfast.LocalKafka(security="SASL_SSL", users={"app": "secret"}) as kafka:
    ...     kafka.create_topic("events")
    ...     kfast.read_topic("events", **kafka.client_config())
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        version: str = DEFAULT_VERSION,
        config: Mapping[str, object] | None = None,
        heap: str = "512m",
        java_options: Sequence[str] = (),
        log_dir: str | os.PathLike[str] | None = None,
        port: int | None = None,
        startup_timeout_ms: int = _STARTUP_TIMEOUT_MS,
        progress: Progress | None = None,
        security: str | Iterable[str] = PLAINTEXT,
        users: Mapping[str, str] | None = None,
        acls: Iterable[Acl] | None = None,
        mechanisms: Iterable[str] | None = None,
        reauth_ms: int = 0,
        certificates: Certificates | None = None,
    ) -> None:
        if not 1 <= nodes <= 9:
            raise ConfigurationError(f"nodes = {nodes}: must be between 1 and 9")
        self._count = nodes
        self._version = version
        self._security = LocalSecurity(security, users, acls, mechanisms, reauth_ms, certificates)
        self._config = _texts(config)
        self._flags = (f"-Xmx{heap}", *java_options)
        self._log_dir = None if log_dir is None else Path(log_dir).absolute()
        self._port = port
        self._startup_timeout_ms = startup_timeout_ms
        self._progress = progress
        self._running: Running | None = None
        self._end: Callable[[], object] = _nothing

    def __repr__(self) -> str:
        if self._running is None:
            return f"<LocalKafka {self._version}, {self._count} node(s), stopped>"
        return f"<LocalKafka {self._version} {list(self._running.nodes.values())}>"

    # --- start and stop ---------------------------------------------------------------------------

    def start(self) -> Self:
        """Start all nodes and wait until they serve.

        Returns
        -------
        LocalKafka
            Itself.
        """
        if self._running is not None:
            raise IllegalStateError("this LocalKafka runs already", hint="stop() it first")
        java = find_java()
        jars = tuple(resolve_jars(self._version, progress=self._progress))
        for attempt in range(1, _PORT_TRIES + 1):
            running = Running(self._log_dir, self._security)
            self._running = running
            self._end = weakref.finalize(self, running.remove, os.getpid())
            try:
                self._start_nodes(Runtime(java, jars, running.reaper.pid))
                return self
            except _PortTakenError:
                self.stop()
                if attempt == _PORT_TRIES or self._port is not None:
                    raise
            except BaseException:
                self.stop()
                raise
        raise AssertionError("unreachable")

    def _start_nodes(self, runtime: Runtime) -> None:
        assert self._running is not None
        running = self._running
        running.runtime = runtime
        self._security.start(running.folder / "security", HOST)
        flags = (*self._security.java_options(), *self._flags)
        names = (PLAINTEXT, *self._security.listeners)
        ports = iter(free_ports((len(names) + 1) * self._count))
        for node_id in range(1, self._count + 1):
            listeners = {name: next(ports) for name in names}
            if self._port is not None:
                listeners[self._security.protocols[0]] = self._port + node_id - 1
            running.nodes[node_id] = LocalNode(
                node_id,
                running.folder / f"node-{node_id}",
                port=listeners.pop(PLAINTEXT),
                controller_port=next(ports),
                runtime=runtime,
                flags=flags,
                listeners=listeners,
            )
        nodes = list(running.nodes.values())
        self._configure(nodes)
        stored_id = next(filter(None, (node.cluster_id() for node in nodes)), None)
        cluster_id = stored_id or random_uuid()
        first, *others = nodes
        if first.cluster_id() is None:
            first.format(cluster_id)
        for node in others:
            if node.cluster_id() is None:
                node.format_like(first, cluster_id)
        started = time.monotonic()
        for node in nodes:
            node.spawn()
        self._wait_until_ready(nodes)
        self._security.apply(nodes)
        logger.info("%r started in %.1f s", self, time.monotonic() - started)

    def _configure(self, nodes: Sequence[LocalNode]) -> None:
        config = {
            **_broker_defaults(self._count, self._startup_timeout_ms),
            **self._security.broker_config(),
            **self._config,
            "controller.quorum.voters": ",".join(node.voter for node in nodes),
        }
        for node in nodes:
            node.configure(config)

    def _wait_until_ready(self, nodes: Sequence[LocalNode]) -> None:
        deadline = time.monotonic() + self._startup_timeout_ms / 1000
        waiting = list(nodes)
        while waiting := [node for node in waiting if not node.is_ready()]:
            for node in waiting:
                if node.is_running:
                    continue
                failure = _PortTakenError if node.found_port_taken() else LocalKafkaError
                raise failure(
                    f"broker {node.node_id} ended while starting",
                    cause=f"the end of {node.log_file}:\n{node.log_tail(20)}",
                    node=node.node_id,
                )
            if time.monotonic() > deadline:
                node = waiting[0]
                raise LocalKafkaError(
                    f"broker {node.node_id} did not start in {self._startup_timeout_ms / 1000:g} s",
                    cause=f"the end of {node.log_file}:\n{node.log_tail(20)}",
                    hint="raise startup_timeout_ms",
                    node=node.node_id,
                )
            time.sleep(_CHECK_SECONDS)

    def stop(self) -> None:
        """Stop all nodes, and remove their data unless ``log_dir`` was given."""
        self._end()
        self._end = _nothing
        self._running = None

    def __enter__(self) -> Self:
        return self.start() if self._running is None else self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # --- nodes ------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes, for the setting of this name: ``bootstrap()``."""
        return self.bootstrap()

    def bootstrap(self, security: str | None = None) -> str:
        """Return the addresses of all nodes for one security protocol.

        Parameters
        ----------
        security : str, optional
            Default: the first of the LocalKafka's. PLAINTEXT is always there.
        """
        listener = self._security.listener(self._security.protocol(security))
        addresses = [node.client_address(listener) for node in self._state.nodes.values()]
        return ",".join(f"{host}:{port}" for host, port in addresses)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Kafka's ids of the nodes, running or not."""
        return tuple(range(1, self._count + 1))

    @property
    def pids(self) -> dict[int, int]:
        """Process id of every node that runs, by node id."""
        nodes = self._state.nodes.items()
        return {node_id: node.pid for node_id, node in nodes if node.pid is not None}

    def address(self, node_id: int) -> str:
        """Return ``host:port`` of one node, for the first security protocol."""
        host, port = self._node(node_id).client_address(self._security.protocols[0])
        return f"{host}:{port}"

    def log_tail(self, node_id: int | None = None, lines: int = 40) -> str:
        """Return the end of one node's log, or of every node's under a heading each."""
        if node_id is not None:
            return self._node(node_id).log_tail(lines)
        nodes = self._state.nodes.values()
        return "\n".join(f"--- {node!r}\n{node.log_tail(lines)}" for node in nodes)

    @property
    def _state(self) -> Running:
        if self._running is None:
            raise IllegalStateError(
                "this LocalKafka does not run", hint="call start(), or use it in a with statement"
            )
        return self._running

    def _node(self, node_id: int) -> LocalNode:
        node = self._state.nodes.get(node_id)
        if node is None:
            raise ConfigurationError(f"no node {node_id}: there are {list(self.node_ids)}")
        return node

    # --- topics and tools -------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic and wait until every running broker has its metadata and leaders.

        Parameters
        ----------
        name : str
            Name of the topic.
        partitions, replication_factor : int
            Number of partitions, and replicas of each.
        config : Mapping, optional
            Topic settings, such as ``{"cleanup.policy": "compact"}``.
        """
        requests.create_topic(
            self.run_tool,
            self.bootstrap(PLAINTEXT),
            name,
            partitions,
            replication_factor,
            _texts(config),
        )
        requests.wait_for_topic(self._serving(), name, partitions, _TOPIC_TIMEOUT_MS)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no running broker has it in its metadata."""
        requests.delete_topic(self.run_tool, self.bootstrap(PLAINTEXT), name)
        requests.wait_for_topic(self._serving(), name, None, _TOPIC_TIMEOUT_MS)

    def _serving(self) -> list[Address]:
        return [node.client_address(PLAINTEXT) for node in self._serving_nodes()]

    def _serving_nodes(self) -> list[LocalNode]:
        nodes = self._state.nodes.values()
        return [node for node in nodes if node.is_running and not node.is_paused]

    def run_tool(
        self, main_class: str, *args: str, stdin: str | None = None, timeout_ms: int = 60_000
    ) -> str:
        """Run one of Kafka's own command-line programs.

        Parameters
        ----------
        main_class : str
            Such as ``"org.apache.kafka.tools.TopicCommand"``.
        *args : str
            Its arguments; most programs need ``--bootstrap-server``: ``bootstrap("PLAINTEXT")``.
        stdin : str, optional
            Text for its standard input.
        timeout_ms : int
            Longest time it may take.

        Returns
        -------
        str
            Its standard output.
        """
        runtime = self._state.runtime
        assert runtime is not None
        try:
            done = runtime.run_tool(main_class, *args, stdin=stdin, timeout_ms=timeout_ms)
        except subprocess.TimeoutExpired:
            raise LocalKafkaError(f"{main_class} took more than {timeout_ms / 1000:g} s") from None
        if done.returncode:
            raise LocalKafkaError(
                f"{main_class} failed with exit status {done.returncode}",
                cause=(done.stderr.strip() or done.stdout.strip())[-2000:],
            )
        return done.stdout

    # --- failures of brokers ----------------------------------------------------------------------

    def kill_node(self, node_id: int) -> None:
        """Kill a node (SIGKILL)."""
        self._node(node_id).kill()

    def stop_node(self, node_id: int, timeout_ms: int = SHUTDOWN_TIMEOUT_MS) -> None:
        """Shut a node down in a controlled way: its leaders move to other brokers first."""
        self._node(node_id).terminate(timeout_ms)

    def restart_node(self, node_id: int) -> None:
        """Start a node again on its ports and data, shutting it down first if it runs."""
        node = self._node(node_id)
        node.terminate(SHUTDOWN_TIMEOUT_MS)
        node.spawn()
        self._wait_until_ready([node])

    def pause_node(self, node_id: int) -> None:
        """Suspend a node (SIGSTOP): its connections stay open and it sends no response."""
        self._node(node_id).pause()

    def resume_node(self, node_id: int) -> None:
        """Resume a suspended node (SIGCONT)."""
        self._node(node_id).resume()

    # --- security ---------------------------------------------------------------------------------

    def client_config(
        self, security: str | None = None, user: str | None = None, mechanism: str | None = None
    ) -> dict[str, Any]:
        """Return all that a KafkaConsumer needs to connect, as keywords.

        Parameters
        ----------
        security : str, optional
            Security protocol. Default: the first of the LocalKafka's.
        user : str, optional
            Default: the first one. With SSL a user means a client certificate, which is made and
            has the user's name, and there is none by default unless brokers require one.
        mechanism : str, optional
            Default: SCRAM-SHA-512 if it is enabled, else the first one. OAUTHBEARER uses
            `token_endpoint`.
        """
        protocol = self._security.protocol(security)
        servers = {"bootstrap_servers": self.bootstrap(protocol)}
        return servers | self._security.client_config(protocol, user, mechanism)

    @property
    def certificates(self) -> Certificates:
        """PEM files of the brokers' certificate and its authority, and of clients."""
        return self._security.certificates

    @property
    def token_endpoint(self) -> str:
        """URL of an OAuth token endpoint for users and their passwords, in this process."""
        return self._security.token_endpoint

    def token(self, user: str, *, lifetime_s: float = 3600, **claims: object) -> str:
        """Return an OAuth token that the brokers accept.

        Parameters
        ----------
        user : str
            The claim ``sub``; does not have to be among the users.
        lifetime_s : float
            Seconds until it expires; less than 0 if it has.
        **claims : object
            Further claims, or others than the default ones; None leaves one out.
        """
        return self._security.token(user, lifetime_s, claims)

    def set_password(self, user: str, secret: str) -> None:
        """Change the password of a user, or add one.

        With SCRAM and at the token endpoint it counts when this returns, for new connections; with
        PLAIN, whose users are settings of the broker, from a node's next start on.
        """
        self._security.set_password(self._serving(), user, secret)
        self._configure(list(self._state.nodes.values()))

    def add_acl(self, *acls: Acl) -> None:
        """Allow or deny something, on every broker that runs; needs ``acls`` to be given."""
        self._security.add_acls(self._serving(), acls)

    def remove_acl(self, *acls: Acl) -> None:
        """Remove what was allowed or denied; no error if it was not there."""
        self._security.remove_acls(self._serving(), acls)

    def set_client_auth(self, mode: str) -> None:
        """Change whether clients of SSL need a certificate.

        Parameters
        ----------
        mode : str
            ``"requested"`` (at first) or ``"required"``. Brokers have a listener for each: the
            addresses of `bootstrap` and `client_config` change, running clients are not affected.
        """
        self._security.set_client_auth(mode)

    def set_server_certificate(self, certificate: str | os.PathLike[str]) -> None:
        """Change the certificate of the brokers that run; connections that are open stay.

        Parameters
        ----------
        certificate : str or path
            ``"server"`` (the first one), ``"expired"``, ``"other_ca"``, or a file with key and
            certificate, such as ``certificates.for_host("x")``.
        """
        self._security.set_server_certificate(self._serving_nodes(), certificate)


class _PortTakenError(LocalKafkaError):
    """Another program has bound one of the ports meanwhile."""


def _nothing() -> None:
    pass


def _texts(config: Mapping[str, object] | None) -> dict[str, str]:
    """Return settings in Kafka's text form."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (config or {}).items()
    }
