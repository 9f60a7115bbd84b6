"""Replicas in RocksDB: on local disk, larger than memory, open again in a moment after a kill."""
