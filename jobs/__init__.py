"""The language, the incremental engine, ingest, serving, and the command. Nothing here knows Dagster."""
