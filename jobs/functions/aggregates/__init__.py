"""The aggregate functions: what each keeps per group, adds, merges, and shows."""
