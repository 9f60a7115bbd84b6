"""Replicas in LMDB: a memory-mapped tree that other processes may read while one writes."""
