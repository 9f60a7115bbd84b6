"""How Spark and DuckDB spell what a rule means."""
