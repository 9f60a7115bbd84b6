"""Rows and keys as bytes: whole columns at once for restores, single values for point reads. Never pickle."""
