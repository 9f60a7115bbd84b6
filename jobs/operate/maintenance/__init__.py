"""Maintenance of tables: small files merged, old events and what nobody needs removed, the feed folded; proved."""
