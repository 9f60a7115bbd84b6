"""The period of a backfill: from a moment up to another one, as a condition on a column of the view."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.model.errors import RangeInseparable
from strandline.jobs.model.types import DATE, TIMESTAMP

if TYPE_CHECKING:
    from strandline.jobs.operate.backfill.columns import TimeColumn


@dataclass(frozen=True)
class Period:
    """The moments from `begin` up to and without `end`, both in UTC; None is open."""

    begin: dt.datetime | None
    end: dt.datetime | None

    def __str__(self) -> str:
        said = [f"from {self.begin:%Y-%m-%d %H:%M:%S}" if self.begin is not None else ""]
        said.append(f"up to {self.end:%Y-%m-%d %H:%M:%S}" if self.end is not None else "")
        return " ".join(each for each in said if each)

    def condition(self, column: TimeColumn) -> str:
        """The condition, in DuckDB's SQL, that a row of the period meets.

        Raises:
            RangeInseparable: the column holds days, and the period begins or ends within one.
        """
        name = engine_of("duckdb").name(column.name)
        bounds = ((self.begin, ">="), (self.end, "<"))
        return " AND ".join(f"{name} {sign} {_value(at, column)}" for at, sign in bounds if at is not None)


def period_of(begin: str | None, end: str | None) -> Period:
    """The period between two texts of ISO 8601; one without a zone is in UTC, one without a time at midnight.

    Raises:
        RangeInseparable: neither is given, nothing lies between them, or one is no moment.
    """
    period = Period(_moment(begin), _moment(end))
    if period.begin is None and period.end is None:
        raise RangeInseparable("a backfill without a begin and an end is a rebuild", hint="type: --from, --to or both")
    if period.begin is not None and period.end is not None and period.begin >= period.end:
        raise RangeInseparable(f"nothing lies {period}", hint="--from is the first moment, --to the first one after")
    return period


def _moment(text: str | None) -> dt.datetime | None:
    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise RangeInseparable(f"'{text}' is no moment", hint="as 2026-11-22 or 2026-11-22T06:30:00") from None
    return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)


def _value(at: dt.datetime, column: TimeColumn) -> str:
    engine = engine_of("duckdb")
    if column.unit == "milliseconds":
        return str(int(at.timestamp() * 1000))
    if column.unit == "timestamp":
        return engine.cast(f"'{at:%Y-%m-%d %H:%M:%S.%f}+00:00'", TIMESTAMP)
    if at.time() != dt.time():
        raise RangeInseparable(f"'{column.name}' holds days, and {at:%Y-%m-%d %H:%M:%S} is within one")
    return engine.cast(f"'{at:%Y-%m-%d}'", DATE)
