"""dbt projects of others, run by our adapter and by dbt-duckdb, and compared."""
