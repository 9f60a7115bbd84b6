"""Maintenance of tables: small files merged, what nobody needs removed, the feed folded; planned, done, proved."""
