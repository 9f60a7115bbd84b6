"""The execution of statements against catalog, topics and tables."""
