"""PostgreSQL's wire protocol: psql, drivers and BI tools read the lake as if it were a database of theirs."""
