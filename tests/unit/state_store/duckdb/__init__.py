"""Tests of tables in DuckDB."""
