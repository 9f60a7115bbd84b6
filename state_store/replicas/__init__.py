"""Replicas: local copies of a projection for fast reads, rebuilt from its table and its change feed, without a JVM.

    table at V ──restore──> store ──verify──> digest equal?  ──> VERIFIED ──follow the feed from V+1──> LIVE

| module | owns |
| --- | --- |
| `follow` | the way from nothing to LIVE, the restore in resumable pieces, and the answer to a feed that is gone |
| `replica` | one copy: apply a version, read rows, digest, backup |
| `state` | where a copy stands and how its rows are laid out; reads as of one version |
| `row_bytes`, `value_bytes` | rows and their keys as bytes; values as bytes in the order of SQL |
| `store` | the interface of a backend, its backups, and the backend in memory |
| `rocksdb`, `lmdb`, `dynamodb` | the other backends |
"""
