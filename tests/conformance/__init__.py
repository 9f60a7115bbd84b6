"""Conformance with ksqlDB: its own query validation cases, read from outside the project, run against the engine."""
