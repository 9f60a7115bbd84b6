"""Dagster: shows what there is, and starts jobs as child processes."""
