"""Topics and their records, in Kafka or in the lake's own files."""
