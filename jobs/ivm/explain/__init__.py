"""EXPLAIN: a view's stages in words."""
