"""Changelog topics: the changes of a view's table, published to a compacted topic exactly once."""
