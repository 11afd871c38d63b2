"""A fake Kafka cluster for failure-mode tests: deterministic, in memory, programmable.

File map
--------
releases            version ranges that brokers 2.1 ... 4.3 offer
log, writer         one partition's log: encoded batches, watermarks, epochs, transactions
topology            nodes, topics and partitions as plain state
cluster             FakeCluster: builds and changes that state, hands out connections
fetch_sessions      KIP-227 sessions of one node
groups              FakeGroups: coordinators of consumer groups, and their time
classic_groups, classic_members   one classic group: generations, rebalances, its members
consumer_groups, consumer_members, server_assignors   one KIP-848 group, and its parts
committed_offsets   what a group has committed, open transactions included
parked              answers that wait for a group
connection          FakeConnection: one client connection, sans-IO (bytes in, bytes out)
dispatch            request bytes -> handler -> response bytes
context, apis/      one file per API, and what a handler knows
reply_plan          how one request is going to be answered: the sum of its faults
faults, fault_actions, fetch_faults   what goes wrong, and when
request_log         what was asked
server              FakeBrokerServer: the cluster on real sockets, one thread
loopback            the cluster behind ``kfast.network`` in one thread, with a FakeClock
loopback_consumer   a whole consumer on top of that, driven by the test in virtual time

The state is protected by ``FakeCluster.lock``; nothing here reads a clock but ``server``.
"""
