"""What is asked of a whole query after its clauses are read: its fingerprint, and what ksqlDB wants of a projection."""
