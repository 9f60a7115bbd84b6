"""PostgreSQL's system catalog over the catalog of the lake: what psql's `\\d`, drivers and BI tools ask for."""
