"""Sources: Kafka, the local log, formats, event logs."""
