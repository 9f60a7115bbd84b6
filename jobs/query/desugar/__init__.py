"""Trees of clauses that no stage has, rewritten to trees of clauses that one has, before any name is resolved."""
