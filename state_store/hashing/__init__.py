"""Hashes of values and rows, and the digest of a table that is made of them."""
