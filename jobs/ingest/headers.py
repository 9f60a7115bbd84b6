"""The headers of records as columns: all of them, or the value of one.

A record may carry one name several times; the last value is the one that `HEADER('name')` means, as in ksqlDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from strandline.jobs.ingest.logs.log import Records


def all_headers(records: Records, base: pa.DataType) -> pa.Array:
    """The headers of each record as an array of (key, value); empty where there are none.

    Args:
        base: the Arrow type of the column, which an engine may spell differently.
    """
    if not any(records.headers):
        starts = pa.array(np.zeros(len(records) + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(starts, pa.array([], type=base.value_type), type=base)
    rows = [[{"key": name, "value": value} for name, value in found or ()] for found in records.headers]
    return pa.array(rows, type=base)


def one_header(records: Records, name: str) -> pa.Array:
    """The value of the last header of that name in each record; NULL where there is none."""
    values = [dict(found).get(name) if found else None for found in records.headers]
    return pa.array(values, type=pa.binary())
