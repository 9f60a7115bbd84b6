"""What the forms of the query grammar are put together from: FROM, WHERE, SELECT and GROUP BY over what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.properties.expressions import Name, aggregate, condition, scalar
from tests.properties.picker import Picker

# Types whose values are worth joining by: their columns have values in common.
_JOINABLE = ("INT", "VARCHAR", "BIGINT")


@dataclass(frozen=True)
class Known:
    """A relation that a query may read.

    Attributes:
        stream: its rows are events, which are only added.
        source: it is a stream or table of its own, not a view.
        columns: the visible columns; their texts are their names.
        key: of a table, the visible columns that identify a row.
    """

    name: str
    columns: tuple[Name, ...]
    stream: bool
    source: bool
    key: tuple[str, ...] = ()

    def under(self, alias: str) -> list[Name]:
        """The columns, qualified."""
        return [Name(f"{alias}.{column.text}", column.type) for column in self.columns]


@dataclass(frozen=True)
class Made:
    """A query.

    Attributes:
        create: `MATERIALIZED VIEW`, `STREAM` or `TABLE`: what it is to be created as.
        outputs: the names and types of its columns; the type of one that only the front end knows is empty.
        form: which rule of the grammar it is.
    """

    text: str
    outputs: tuple[Name, ...]
    form: str
    create: str = "MATERIALIZED VIEW"


class Parts:
    """The parts of queries over what is known.

    Args:
        known: what can be read; at least one stream is among them.
    """

    def __init__(self, pick: Picker, known: Sequence[Known]) -> None:
        self.pick = pick
        self.known = known
        self.streams = [each for each in known if each.stream]
        self.tables = [each for each in known if not each.stream]

    def grouped(self, form: str, source: str, names: Sequence[Name], ordered: bool) -> Made:
        simple = [name for name in names if name.is_simple]
        groups = [scalar(self.pick, [name]) for name in self.pick.some(simple, 0, 2)]
        shown = groups if self.pick.chance(80) else groups[1:]
        items = [Name(f"{name.text} AS c{number}", name.type) for number, name in enumerate(shown)]
        calls = [aggregate(self.pick, names, ordered=ordered) for _ in range(self.pick.count(1, 3))]
        items += [Name(f"{call} AS d{number}", "") for number, call in enumerate(calls)]
        by = ", ".join(name.text for name in groups)
        if groups and self.pick.chance(20):
            sets = [f"ROLLUP ({by})", f"CUBE ({by})", f"GROUPING SETS (({by}), ())"]
            by = self.pick.one(sets)
        text = f"SELECT {listed(items)} {source}{f' GROUP BY {by}' if by else ''}"
        if self.pick.chance(20):
            text += f" HAVING {self.pick.one(['COUNT(*) > 1', 'COUNT(*) < 3'])}"
        return self.made(form, text, items)

    def joined(self, inputs: int) -> tuple[str, list[Name], bool]:
        """The FROM clause, the columns, and whether all inputs are streams."""
        chosen = [self.pick.one(self.known)]
        text, names = f"FROM {chosen[0].name} AS a", chosen[0].under("a")
        for alias in "bc"[: inputs - 1]:
            source = self.pick.one(self.known)
            pairs = pairs_of(names, source.under(alias))
            if not pairs:
                continue
            kind = self.pick.one(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN"])
            on = "{} = {}".format(*self.pick.one(pairs))
            if self.pick.chance(20):
                on += f" AND {condition(self.pick, source.under(alias), 0)}"
            text += f" {kind} {source.name} AS {alias} ON {on}"
            names += source.under(alias)
            chosen.append(source)
        return text, names, all(each.stream for each in chosen)

    def branch(self, types: Sequence[str]) -> str:
        """A branch of a set operation; a type that the relation does not have is a NULL."""
        source = self.pick.one(self.known)
        names = source.under("a")
        columns = []
        for number, kind in enumerate(types):
            fitting = [name for name in names if name.type == kind]
            columns.append(f"{self.pick.one(fitting).text if fitting else f'CAST(NULL AS {kind})'} AS c{number}")
        return f"SELECT {', '.join(columns)} FROM {source.name} AS a{self.where(names, 30)}"

    def subquery_condition(self, names: Sequence[Name]) -> str:
        other = self.pick.one(self.known)
        inner = other.under("b")
        pairs = pairs_of(names, inner)
        if not pairs:
            return condition(self.pick, names)
        left, right = self.pick.one(pairs)
        negated = self.pick.one(["", "", "NOT "])
        if self.pick.chance(50):
            return f"{left} {negated}IN (SELECT {right} FROM {other.name} AS b{self.where(inner, 30)})"
        more = f" AND {condition(self.pick, inner, 0)}" if self.pick.chance(30) else ""
        return f"{negated}EXISTS (SELECT 1 FROM {other.name} AS b WHERE {right} = {left}{more})"

    def items(self, names: Sequence[Name], most: int = 3) -> list[Name]:
        """The SELECT list; each item with a name of its own."""
        chosen = [scalar(self.pick, names) for _ in range(self.pick.count(1, most))]
        return [Name(f"{each.text} AS c{number}", each.type) for number, each in enumerate(chosen)]

    def events(self, left: Known, right: Known, on: tuple[str, str], key: str) -> list[Name]:
        """The SELECT list of CREATE STREAM over a join: the column that it joins on must be there, and only once."""
        kind = next(name.type for name in left.under("a") if name.text == on[0])
        names = [name for name in (*left.under("a"), *right.under("b")) if name.text not in on]
        # A stream of nothing but its key is refused.
        items = self.items(names) if names else [Name(f"AS_VALUE({on[0]}) AS c0", kind)]
        return [*items, Name(f"{key} AS k", kind)]

    def where(self, names: Sequence[Name], percent: int = 50) -> str:
        return f" WHERE {condition(self.pick, names)}" if self.pick.chance(percent) else ""

    def made(self, form: str, text: str, items: Sequence[Name], create: str = "MATERIALIZED VIEW") -> Made:
        outputs = tuple(Name(item.text.rsplit(" AS ", 1)[1], item.type) for item in items)
        return Made(text, outputs, form, create)


def listed(items: Sequence[Name]) -> str:
    return ", ".join(item.text for item in items)


def pairs_of(left: Sequence[Name], right: Sequence[Name]) -> list[tuple[str, str]]:
    """Columns that can be equal."""
    return [(a.text, b.text) for a in left for b in right if a.type == b.type and a.type in _JOINABLE]
