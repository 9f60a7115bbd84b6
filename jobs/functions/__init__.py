"""Functions that users write in Python: loading them, and running them inside Spark and DuckDB."""
