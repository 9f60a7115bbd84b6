"""The clauses of a SELECT, read in the order in which SQL evaluates them."""
