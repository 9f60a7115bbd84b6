"""Blocks rewritten to blocks, each of which one stage or several maintain."""
