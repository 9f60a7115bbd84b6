"""Random texts that stand in FROM: values as columns, columns as values, and what follows from rows. None can fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.properties.paths.values import BIGINT, DATE, INT, TIMESTAMP, VARCHAR
from tests.properties.paths.views import Relation, Written
from tests.properties.picker import Picker

_FLAT: Final = (INT, BIGINT, VARCHAR, DATE, TIMESTAMP)


class Texts:
    """The grammar over some relations."""

    def __init__(self, pick: Picker, relations: Sequence[Relation]) -> None:
        self.pick = pick
        self.of = pick.one(relations)

    def any(self) -> Written:
        """One of them."""
        return self.pick.one([self.pivoted, self.pivoted, self.unpivoted, self.reached, self.counted_steps])()

    def pivoted(self) -> Written:
        """PIVOT: values of a text, or of a number, as columns; each other column is a column of the groups."""
        of = self._named(INT, VARCHAR)
        value = self.pick.one(self._named(INT))
        names = [each for each in of if each != value]
        if not names:
            return self.reached()
        name = self.pick.one(names)
        kind = dict(self.of.columns)[name]
        flat = [each for each in self._named(*_FLAT) if each not in (name, value)]
        others = self.pick.some(flat, 0, 2)
        called, of_value = self.pick.one(
            [("SUM({})", BIGINT), ("MAX({})", INT), ("COUNT({})", BIGINT), ("MIN({})", INT)]
        )
        listed = ("'a' AS p0", "'' AS p1", "'7' AS p2") if kind == VARCHAR else ("1 AS p0", "0 AS p1", "3 AS p2")
        shown = listed[: self.pick.count(1, 3)]
        columns = [(each, dict(self.of.columns)[each]) for each in others]
        columns += [(f"p{place}", of_value) for place in range(len(shown))]
        rows = f"(SELECT {', '.join([*others, name, value])} FROM {self.of.name})"
        sql = f"{rows} PIVOT ({called.format(value)} FOR {name} IN ({', '.join(shown)}))"
        return Written(sql, self.of.name, tuple(columns))

    def unpivoted(self) -> Written:
        """UNPIVOT: columns of one type as values, with their names."""
        kind = self.pick.one([INT, VARCHAR])
        values = self._named(kind)
        turned = self.pick.some(values, 1, 3)
        others = self.pick.some([each for each in self._named(*_FLAT) if each not in turned], 0, 2)
        nulls = self.pick.one(["", " INCLUDE NULLS", " EXCLUDE NULLS"])
        rows = f"(SELECT {', '.join([*others, *turned])} FROM {self.of.name})"
        columns = [*((each, dict(self.of.columns)[each]) for each in others), ("name", VARCHAR), ("value", kind)]
        sql = f"{rows} UNPIVOT{nulls} (value FOR name IN ({', '.join(turned)}))"
        return Written(sql, self.of.name, tuple(columns))

    def reached(self) -> Written:
        """WITH RECURSIVE: what leads to what, also in circles."""
        one, other, kind = self._edge()
        begin = self.pick.one(["", f" WHERE {one} IS NOT NULL", f" WHERE {other} IS NULL"])
        name = self.of.name
        follows = f"SELECT r.a, e.{other} FROM r JOIN {name} AS e ON r.b = e.{one}"
        query = f"r (a, b) AS (SELECT {one}, {other} FROM {name}{begin} UNION {follows})"
        return Written(f"(WITH RECURSIVE {query} SELECT a, b FROM r)", name, (("a", kind), ("b", kind)))

    def counted_steps(self) -> Written:
        """WITH RECURSIVE up to a number of steps: a row for each way, or for each length."""
        one, other, kind = self._edge()
        name = self.of.name
        every = self.pick.one(["UNION", "UNION ALL"])
        follows = f"SELECT r.a, e.{other}, r.d + 1 FROM {name} AS e JOIN r ON r.b = e.{one} WHERE r.d < 2"
        query = f"r (a, b, d) AS (SELECT {one}, {other}, 1 FROM {name} {every} {follows})"
        return Written(f"(WITH RECURSIVE {query} SELECT a, b, d FROM r)", name, (("a", kind), ("b", kind), ("d", INT)))

    def _edge(self) -> tuple[str, str, str]:
        """Two columns of a type, of which the first tells rows apart in a table."""
        (one, kind), *others = self.of.columns
        (other, *_) = [name for name, its in others if its == kind]
        return one, other, kind

    def _named(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.of.columns if kind in kinds]
