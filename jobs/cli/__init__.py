"""The command `strandline`, its prompt and its output."""
