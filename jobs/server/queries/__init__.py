"""Queries, each in a process of its own that can be ended at any moment; and pushed changes, read once for all."""
