"""Replicas in the memory of this process: the fastest reads, rebuilt from the table at each start."""
