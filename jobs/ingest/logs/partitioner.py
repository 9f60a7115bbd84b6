"""The partition of a keyed record, by Kafka's default partitioner, so that the local log agrees with Kafka."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of Kafka's `Utils.murmur2`, as Java prints it: signed."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        k = (int.from_bytes(data[start : start + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> _R)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if length > whole:
        h = ((h ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def partition_for(key: bytes | None, partitions: int, position: int = 0) -> int:
    """The partition of a record with `key`; records without a key go round robin by `position`."""
    if key is None:
        return position % partitions
    return (murmur2(key) & 0x7FFFFFFF) % partitions
