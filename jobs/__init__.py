"""Strandline's work: the language, the incremental engine, ingest, serving, and the command. Knows nothing of Dagster."""
