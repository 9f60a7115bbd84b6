"""What the changes of one version do to the stored rows, with everything refused that they cannot do.

changes (rows with weights) ──> weight per key and row ──+ what is stored──> what is stored then
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from strandline.state_store.columns import WEIGHT
from strandline.state_store.errors import DuplicateKey, NegativeWeight
from strandline.state_store.hashing.digest import Digest, digest_of_table
from strandline.state_store.replicas.codec.rows import COUNT

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from strandline.state_store.replicas.layout import Layout

Weights = dict[bytes, Counter[bytes]]
"""{key: {the row without its count: the weight}}."""


def weights_of(layout: Layout, changes: pa.Table) -> Weights:
    """The consolidated changes.

    Args:
        changes: the visible columns, and `__weight`; other columns are not looked at.
    """
    found: Weights = {}
    for batch in changes.select([*layout.schema.names, WEIGHT]).combine_chunks().to_batches():
        rows = batch.select(layout.schema.names)
        keys, values = layout.keys.encode(rows), layout.rows.encode(rows)
        for key, value, weight in zip(keys, values, batch.column(WEIGHT).to_pylist(), strict=True):
            found.setdefault(key, Counter())[value[COUNT.size :]] += weight
    return found


def digest_change(layout: Layout, changes: pa.Table) -> Digest:
    """What the changes add to the digest of the rows."""
    total = Digest()
    for sign in (1, -1):
        chosen = changes.filter(pc.equal(changes[WEIGHT], sign)).select(layout.schema.names)
        found = digest_of_table(chosen.to_batches())
        total = total + found if sign == 1 else total - found
    return total


def applied(
    layout: Layout, weights: Weights, stored: Mapping[bytes, bytes | None]
) -> tuple[list[bytes], list[bytes | None]]:
    """The keys whose rows change, and their rows then; None where there is none.

    Args:
        stored: the rows of at least these keys, as they are.

    Raises:
        NegativeWeight: a row is retracted that is not stored.
        DuplicateKey: a key would have two rows.
    """
    keys: list[bytes] = []
    values: list[bytes | None] = []
    for key, changed in weights.items():
        before = stored[key]
        now = Counter(changed)
        if before is not None:
            now[before[COUNT.size :]] += COUNT.unpack_from(before)[0]
        after = _only(layout, now)
        if after != before:
            keys.append(key)
            values.append(after)
    return keys, values


def _only(layout: Layout, rows: Counter[bytes]) -> bytes | None:
    """The one row that is there, with its count."""
    present = [(row, count) for row, count in rows.items() if count]
    if any(count < 0 for _, count in present):
        raise NegativeWeight(f"a row is retracted that is not in the replica, with the key {_named(layout, rows)}")
    if len(present) > 1 or (layout.unique and any(count > 1 for _, count in present)):
        raise DuplicateKey(f"two rows have the key {_named(layout, rows)}", hint="is the key of the view unique?")
    return COUNT.pack(present[0][1]) + present[0][0] if present else None


def _named(layout: Layout, rows: Counter[bytes]) -> dict[str, object]:
    row = layout.rows.decode(COUNT.pack(1) + next(iter(rows)))
    return {name: row[name] for name in layout.key}
