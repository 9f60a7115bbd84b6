"""Queries of any kind, each in a process of its own that can be ended at any moment."""
