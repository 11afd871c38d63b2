"""Spark for benchmarks and tests: sessions, a Java for them, the JVM's own Kafka connector."""
