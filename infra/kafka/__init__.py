"""An Apache Kafka broker on this machine."""
