"""A real Apache Kafka on this machine: Java, jars, nodes, topics."""
