"""The wire protocol of PostgreSQL, by real clients and by its own bytes."""
