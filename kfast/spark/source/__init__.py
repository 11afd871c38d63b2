"""``format("kfast")``: Kafka as a source of Spark batch and streaming queries."""
