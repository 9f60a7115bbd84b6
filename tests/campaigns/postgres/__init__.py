"""Programs of PostgreSQL's clients. Each runs by itself, in an environment that has its client, against one address."""
