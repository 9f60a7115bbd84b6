"""Random sources: two or three streams and tables with a few columns whose values often meet."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from strandline.jobs.model.definitions import Kind
from tests.properties.picker import Picker

EPOCH = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)

COMMON: dict[str, list[Any]] = {
    "INT": [None, 0, 1, 2, 3, -1],
    "BIGINT": [None, 0, 1, 2, 10, -7],
    "VARCHAR": [None, "", "a", "b", "c", "ab"],
    "DOUBLE": [None, 0.0, 0.5, 1.25, -2.5, 4.0],
    "DECIMAL(8, 2)": [None, Decimal("0.00"), Decimal("1.25"), Decimal("-3.10"), Decimal("7.00")],
    "DECIMAL(38, 10)": [None, Decimal("0E-10"), Decimal("1.0000000000"), Decimal("-0.0000000001")],
    "BOOLEAN": [None, True, False],
    "DATE": [None, dt.date(2024, 1, 1), dt.date(2024, 2, 29)],
    "TIMESTAMP": [None, EPOCH, EPOCH + dt.timedelta(seconds=90)],
    "ARRAY<INT>": [None, [], [1], [2, None, 1]],
}
"""The usual values of each type: few, so that joins find partners and groups have rows. The first is NULL. Statements
are written with these."""

_ENDS: dict[str, list[Any]] = {
    "INT": [2**31 - 1, -(2**31)],
    "BIGINT": [2**63 - 1, -(2**63)],
    "VARCHAR": ["\0", "a\0", "\u00fc", "\U0001f600"],
    # No large value has an opposite: what is left of their sum would depend on the order.
    "DOUBLE": [-0.0, math.nan, math.inf, -math.inf, 1e308, 1e17, 1.0, 5e-324],
    "DECIMAL(38, 10)": [Decimal("12345678901234567890123456.0123456789")],
    "DATE": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "TIMESTAMP": [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)],
    "ARRAY<INT>": [[2**31 - 1, -(2**31)]],
}

VALUES: dict[str, list[Any]] = {kind: [*common * 2, *_ENDS.get(kind, ())] for kind, common in COMMON.items()}
"""The values that events have: the usual ones, and the ends of each type's range."""

KEY_TYPES = ("INT", "VARCHAR")
_COLUMN_TYPES = (
    "INT",
    "INT",
    "VARCHAR",
    "VARCHAR",
    "BIGINT",
    "DOUBLE",
    "DECIMAL(8, 2)",
    "DECIMAL(38, 10)",
    "BOOLEAN",
    "DATE",
    "TIMESTAMP",
    "ARRAY<INT>",
)


@dataclass(frozen=True)
class Schema:
    """One source. The first column of a table is its key."""

    name: str
    kind: Kind
    columns: tuple[tuple[str, str], ...]

    @property
    def log(self) -> str:
        """Where its events go."""
        return self.name if self.kind == "stream" else f"{self.name}__log"

    @property
    def statement(self) -> str:
        columns = [
            f"{name} {kind}{' PRIMARY KEY' if self.kind == 'table' and place == 0 else ''}"
            for place, (name, kind) in enumerate(self.columns)
        ]
        options = f"KAFKA_TOPIC='{self.name}', VALUE_FORMAT='JSON', PARTITIONS=2"
        return f"CREATE {self.kind.upper()} {self.name} ({', '.join(columns)}) WITH ({options});"


def schemas(pick: Picker) -> tuple[Schema, ...]:
    """Two or three sources, at least one of them a stream. Each has columns of types that keys have, to join by."""
    kinds: list[tuple[Kind, ...]] = [("stream", "table"), ("stream", "stream", "table"), ("stream", "table", "table")]
    return tuple(_schema(pick, f"{kind[0]}{number}", kind) for number, kind in enumerate(pick.one(kinds)))


def _schema(pick: Picker, name: str, kind: Kind) -> Schema:
    types = [pick.one(KEY_TYPES), pick.one(KEY_TYPES)]
    types += [pick.one(_COLUMN_TYPES) for _ in range(pick.count(1, 3))]
    return Schema(name, kind, tuple((f"{name[0]}{place}", each) for place, each in enumerate(types)))
