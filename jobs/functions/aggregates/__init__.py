"""The aggregate functions: what each keeps per group, and the SQL that adds, merges and shows it."""
