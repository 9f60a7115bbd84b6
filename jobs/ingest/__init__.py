"""The way from topics to event logs: logs, formats, and the Spark source over both."""
