"""Replicas: local copies of a projection for fast reads, rebuilt from its table and its change feed, without a JVM.

    table at V ──restore──> store ──verify──> digest equal?  ──> VERIFIED ──follow the feed from V+1──> LIVE

| module | owns |
| --- | --- |
| `follow` | the way from nothing to LIVE, and the answer to a feed that is gone |
| `restore` | the rows of one version, loaded in resumable pieces |
| `replica` | one copy: apply a version, read rows, digest, backup |
| `changes`, `state`, `progress` | what a version does to the stored rows; where a copy stands; how far a restore is |
| `codec` | rows as bytes, and keys as bytes in the order of SQL |
| `base` | what a backend does; `memory`, `rocksdb`, `lmdb`, `dynamodb` do it, each in files of the same names |
"""
