"""The whole consumer against the fake cluster.

``test_virtual_*`` drive kfast's parts in one thread and virtual time (``LoopbackConsumer``): exact
about moments, the same in every run. The other modules use the public ``KafkaConsumer``, threads
included, over real sockets.
"""
