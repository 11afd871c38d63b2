"""A Kafka in Python, for tests of programs that read from Kafka.

`FakeKafka` runs it on sockets for the time of a ``with`` statement; its ``cluster`` is the state to
change: leaders, nodes, groups, and faults of requests to come (`kfast.testing.faults`). It is no
part of a consumer: nothing of it is loaded by ``import kfast``.

File map, from the log to the network
-------------------------------------
batches, log            record batches; one partition's log
topology, cluster       nodes, topics, partitions and their writer; FakeCluster, which changes them
changes                 the lock of that state, and the listeners of its changes
fetch_sessions          KIP-227 sessions of one node
groups/                 coordinators, classic groups, KIP-848 groups, committed offsets
sasl                    the server's side of PLAIN, SCRAM and OAUTHBEARER
releases                the versions of requests that brokers 2.1 to 4.3 offer
apis/, context          handlers of requests
answers                 responses that are sent later or in another version
faults, fault_table     errors, delays, dropped connections, and the requests they hit
request_log             the requests so far
headers                 frames: request headers to read, responses to write
connection              one client connection, sans-IO: bytes in, bytes out, time as an argument
server, fake_kafka      sockets and the only thread
"""

from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.fake_kafka import FakeKafka

__all__ = ["FakeCluster", "FakeKafka", "Record"]
