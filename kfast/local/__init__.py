"""LocalKafka, a real Apache Kafka on this machine: Java, jars, nodes, topics; and a local Spark."""
