"""The two engines, Spark and DuckDB: each one's spelling of the SQL that rules are made of."""
