"""Tables in DuckDB: rows, changes and commits, computed in this process."""
