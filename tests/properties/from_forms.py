"""Random queries over what is no table: items of arrays, constants, the nearest row, sessions; several partitions."""

from __future__ import annotations

from tests.properties.expressions import Name, condition, literal
from tests.properties.query_parts import Known, Made, Parts, listed, pairs_of
from tests.properties.sources import COMMON
from tests.properties.windows import analytic_call


class FromForms(Parts):
    """The grammar of these: a method for each form."""

    def unnested(self) -> Made:
        """Items of arrays as rows, perhaps grouped, perhaps joined with another input."""
        source = self.pick.one(self.known)
        names = source.under("a")
        arrays = [name.text for name in names if name.type == "ARRAY<INT>"]
        numbers = [name.text for name in names if name.type == "INT"]
        array = self.pick.one([*arrays, f"ARRAY[{', '.join(['3', *numbers, '1'])}]"])
        item = Name("u.x", "INT")
        how = self.pick.one([", UNNEST({}) AS u (x)", " CROSS JOIN UNNEST({}) AS u (x)"])
        if self.pick.chance(20):
            how = " LEFT JOIN UNNEST({}) AS u (x) ON TRUE"
        text = f"FROM {source.name} AS a{how.format(array)}"
        known = [*names, item]
        other = self.pick.one(self.tables) if self.tables else source
        pairs = pairs_of([item], other.under("b"))
        if pairs and self.pick.chance(30):
            text += f" {self.pick.one(['JOIN', 'LEFT JOIN'])} {other.name} AS b ON {' = '.join(self.pick.one(pairs))}"
            known += other.under("b")
        if self.pick.chance(30):
            return self.grouped("unnested", f"{text}{self.where(known, 30)}", known, ordered=False)
        items = [*self.items(known), Name("u.x AS e", "INT")]
        return self.made("unnested", f"SELECT {listed(items)} {text}{self.where(known, 30)}", items)

    def constants(self) -> Made:
        """VALUES, alone or joined with an input."""
        source = self.pick.one(self.known)
        kind = self.pick.one(["INT", "VARCHAR"])
        values = [literal(value, kind) for value in self.pick.some(COMMON[kind], 1, 4)]
        rows = ", ".join(f"({value}, {place})" for place, value in enumerate(values))
        constants = [Name("v.x", kind), Name("v.y", "INT")]
        table = f"(VALUES {rows}) AS v (x, y)"
        pairs = pairs_of(source.under("a"), constants[:1])
        if not pairs or self.pick.chance(20):
            items = self.items(constants)
            return self.made("constants", f"SELECT {listed(items)} FROM {table}{self.where(constants, 30)}", items)
        kind = self.pick.one(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN"])
        text = f"FROM {source.name} AS a {kind} {table} ON {' = '.join(self.pick.one(pairs))}"
        names = [*source.under("a"), *constants]
        if self.pick.chance(30):
            return self.grouped("constants", text, names, ordered=False)
        items = self.items(names, most=4)
        return self.made("constants", f"SELECT {listed(items)} {text}{self.where(names, 30)}", items)

    def nearest(self) -> Made:
        """ASOF JOIN of two inputs."""
        left, right = self.pick.one(self.known), self.pick.one(self.known)
        equal = pairs_of(left.under("a"), right.under("b"))
        near = [
            (one.text, other.text)
            for one in left.under("a")
            for other in right.under("b")
            if one.type == other.type and one.is_simple and one.type != "BOOLEAN"
        ]
        # Of two rows that are equally near the smaller key decides; that of a view may be hidden.
        if not equal or not near or not (left.source and right.source):
            return self.nothing_new(left)
        operator = self.pick.one(["<", "<=", ">", ">="])
        on = f"{' = '.join(self.pick.one(equal))} AND {f' {operator} '.join(self.pick.one(near))}"
        names = [*left.under("a"), *right.under("b")]
        text = f"FROM {left.name} AS a ASOF {self.pick.one(['JOIN', 'LEFT JOIN'])} {right.name} AS b ON {on}"
        if self.pick.chance(20):
            return self.grouped("nearest", text, names, ordered=False)
        items = self.items(names, most=4)
        return self.made("nearest", f"SELECT {listed(items)} {text}{self.where(names, 20)}", items)

    def sessions(self) -> Made:
        """SESSION of a column of times, with a key or without."""
        timed = [each for each in self.known if any(name.type == "TIMESTAMP" for name in each.columns)]
        if not timed:
            return self.nothing_new(self.pick.one(self.known))
        source = self.pick.one(timed)
        at = next(name.text for name in source.columns if name.type == "TIMESTAMP")
        keys = [name.text for name in source.columns if name.is_simple and name.text != at]
        arguments = ", ".join([source.name, at, "INTERVAL '1' MINUTE", *self.pick.some(keys, 0, 1)])
        bounds = [Name(f"a.window_{side}", "TIMESTAMP") for side in ("start", "end")]
        items = self.items([*source.under("a"), *bounds], most=4)
        return self.made("sessions", f"SELECT {listed(items)} FROM SESSION({arguments}) AS a", items)

    def partitions(self) -> Made:
        """Functions OVER two or three windows, perhaps with a condition on one of them."""
        source = self.pick.one(self.known)
        names = source.under("a")
        items = self.items(names)
        count = self.pick.count(2, 3)
        calls = [analytic_call(self.pick, names, None, exact=not source.source) for _ in range(count)]
        items += [Name(f"{call} AS w{number}", "") for number, call in enumerate(calls)]
        last = f" QUALIFY w{count - 1} IS NOT NULL" if self.pick.chance(30) else ""
        return self.made(
            "partitions", f"SELECT {listed(items)} FROM {source.name} AS a{self.where(names, 30)}{last}", items
        )

    def nothing_new(self, source: Known) -> Made:
        """What is made where the form does not fit: a filter."""
        names = source.under("a")
        items = self.items(names)
        where = condition(self.pick, names)
        return self.made("plain", f"SELECT {listed(items)} FROM {source.name} AS a WHERE {where}", items)
