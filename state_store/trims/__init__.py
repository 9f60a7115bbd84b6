"""Trims of event logs: the oldest files taken out of a log, planned and committed, with what went said."""
