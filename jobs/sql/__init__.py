"""The language: statements, catalog, types, plans."""
