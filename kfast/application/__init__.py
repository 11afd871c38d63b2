"""What a ``KafkaConsumer`` does on the application thread, one concern per module."""
