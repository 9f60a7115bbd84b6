"""Backfills: the rows of a range of time computed anew from history, proved, and put in place in one commit."""
