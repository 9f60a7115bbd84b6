"""Backups of a lake: incremental, verified, resumed after a kill; and the restore into an empty lake."""
