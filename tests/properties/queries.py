"""Random queries over some relations: a grammar of every operator that a view may have.

A query is SQL text; what the front end refuses as not supported yet is counted, and another is drawn.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.properties.expressions import Name, aggregate, condition
from tests.properties.from_forms import FromForms
from tests.properties.query_parts import Known, Made, listed, pairs_of
from tests.properties.windows import analytic_call, time_window


class Queries(FromForms):
    """The grammar: a method for each form."""

    def any(self) -> Made:
        """A query of any form."""
        forms: list[Callable[[], Made]] = [
            self.plain,
            self.join,
            self.join,
            self.semi,
            self.scalar_subquery,
            self.nested,
        ]
        forms += [self.aggregate, self.aggregate, self.aggregate_join, self.distinct, self.set_operation, self.top_k]
        forms += [self.first_rows, self.any_join, self.member_value]
        forms += [self.unnested, self.constants, self.nearest, self.sessions, self.partitions]
        forms += [self.analytic, self.windowed, self.windowed, self.within, self.comma_join, self.exploded]
        if any(each.source for each in self.tables):
            forms.append(self.stream_table)
        return self.pick.one(forms)()

    def plain(self) -> Made:
        """Filter and projection; perhaps over a UNION ALL of two branches."""
        source = self.pick.one(self.known)
        names = source.under("a")
        items = self.items(names)
        return self.made("plain", f"SELECT {listed(items)} FROM {source.name} AS a{self.where(names)}", items)

    def join(self) -> Made:
        """Two or three inputs, perhaps the same one twice, by equality and perhaps more."""
        text, names, _ = self.joined(self.pick.one([2, 2, 2, 3]))
        items = self.items(names, most=4)
        return self.made("join", f"SELECT {listed(items)} {text}{self.where(names, 30)}", items)

    def comma_join(self) -> Made:
        """Three inputs whose joins stand in WHERE."""
        chosen = [self.pick.one(self.known) for _ in range(3)]
        names = [source.under(alias) for source, alias in zip(chosen, "abc", strict=True)]
        first, second = pairs_of(names[0], names[1]), pairs_of([*names[0], *names[1]], names[2])
        if not first or not second:
            return self.join()
        where = [" = ".join(self.pick.one(pairs)) for pairs in (first, second)]
        items = self.items([name for each in names for name in each], most=4)
        inputs = ", ".join(f"{source.name} AS {alias}" for source, alias in zip(chosen, "abc", strict=True))
        return self.made("comma join", f"SELECT {listed(items)} FROM {inputs} WHERE {' AND '.join(where)}", items)

    def exploded(self) -> Made:
        """A row for each item of an array."""
        source = self.pick.one(self.known)
        names = source.under("a")
        arrays = [name.text for name in names if name.type == "ARRAY<INT>"] or ["ARRAY[1, 2]"]
        items = [*self.items(names), Name(f"EXPLODE({self.pick.one(arrays)}) AS e", "INT")]
        return self.made("exploded", f"SELECT {listed(items)} FROM {source.name} AS a{self.where(names, 30)}", items)

    def semi(self) -> Made:
        """IN, EXISTS, and their negations."""
        source = self.pick.one(self.known)
        names = source.under("a")
        items = self.items(names)
        text = f"SELECT {listed(items)} FROM {source.name} AS a WHERE {self.subquery_condition(names)}"
        if self.pick.chance(20):
            text += f" AND {condition(self.pick, names, 0)}"
        return self.made("semi", text, items)

    def scalar_subquery(self) -> Made:
        """A subquery of one value, correlated or not, as a column or in WHERE."""
        source, other = self.pick.one(self.known), self.pick.one(self.known)
        names, inner = source.under("a"), other.under("b")
        items = self.items(names)
        numbers = [name for name in inner if name.is_number]
        value = f"MAX({self.pick.one(numbers).text})" if numbers and self.pick.chance(50) else "COUNT(*)"
        pairs = pairs_of(names, inner)
        where = f" WHERE {'{} = {}'.format(*self.pick.one(pairs))}" if pairs and self.pick.chance(60) else ""
        subquery = f"(SELECT {value} FROM {other.name} AS b{where})"
        if self.pick.chance(40):
            return self.made("scalar", f"SELECT {listed(items)} FROM {source.name} AS a WHERE {subquery} > 1", items)
        items.append(Name(f"{subquery} AS c{len(items)}", ""))
        return self.made("scalar", f"SELECT {listed(items)} FROM {source.name} AS a", items)

    def aggregate(self) -> Made:
        """GROUP BY over one input, perhaps with grouping sets or HAVING."""
        source = self.pick.one(self.known)
        names = source.under("a")
        ordered = source.stream or source.source
        return self.grouped("aggregate", f"FROM {source.name} AS a{self.where(names, 30)}", names, ordered)

    def aggregate_join(self) -> Made:
        """GROUP BY over a join."""
        text, names, _ = self.joined(2)
        return self.grouped("aggregate join", f"{text}{self.where(names, 20)}", names, ordered=False)

    def distinct(self) -> Made:
        """SELECT DISTINCT."""
        source = self.pick.one(self.known)
        names = [name for name in source.under("a") if name.is_simple]
        if not names:
            return self.plain()
        items = self.items(names)
        return self.made(
            "distinct", f"SELECT DISTINCT {listed(items)} FROM {source.name} AS a{self.where(names)}", items
        )

    def set_operation(self) -> Made:
        """UNION, INTERSECT and EXCEPT, each also with ALL, of two or three branches."""
        first = self.pick.one(self.known)
        columns = self.pick.some([name for name in first.under("a") if name.is_simple], 1, 2)
        if not columns:
            return self.plain()
        items = [Name(f"{name.text} AS c{number}", name.type) for number, name in enumerate(columns)]
        branches = [f"SELECT {listed(items)} FROM {first.name} AS a{self.where(first.under('a'), 30)}"]
        for _ in range(self.pick.one([1, 1, 2])):
            branches.append(self.branch([name.type for name in columns]))
        word = self.pick.one(["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
        return self.made(word.lower(), f" {word} ".join(branches), items)

    def top_k(self) -> Made:
        """The first rows of each partition, by ROW_NUMBER or RANK."""
        source = self.pick.one(self.known)
        names = source.under("a")
        shown = [Name(f"{name.text} AS c{number}", name.type) for number, name in enumerate(names)]
        call = analytic_call(self.pick, names, ("ROW_NUMBER", "RANK", "DENSE_RANK"), exact=not source.source)
        inner = f"SELECT {listed(shown)}, {call} AS rn FROM {source.name} AS a{self.where(names, 20)}"
        items = [Name(f"q.c{number}", name.type) for number, name in enumerate(names)]
        text = f"SELECT {listed(items)} FROM ({inner}) AS q WHERE q.rn <= {self.pick.count(1, 2)}"
        return Made(text, tuple(Name(f"c{n}", name.type) for n, name in enumerate(names)), "top k")

    def first_rows(self) -> Made:
        """ORDER BY with LIMIT, or the first row of each group."""
        source = self.pick.one(self.known)
        names = source.under("a")
        simple = [name for name in names if name.is_simple and name.type != "BOOLEAN"]
        if not simple:
            return self.plain()
        by = self.pick.one(simple)
        distinct = f"DISTINCT ON ({by.text}) " if self.pick.chance(30) else ""
        order = ", ".join(dict.fromkeys((by.text, self.pick.one(simple).text)))
        limit = "" if distinct and self.pick.chance(50) else f" LIMIT {self.pick.count(1, 3)}"
        items = self.items(names)
        # An order that is not selected, and ties, are for the rows' keys to decide; over a view those may be hidden.
        if not source.source or (distinct and limit):
            return self.plain()
        text = (
            f"SELECT {distinct}{listed(items)} FROM {source.name} AS a{self.where(names, 20)} ORDER BY {order}{limit}"
        )
        return self.made("first rows", text, items)

    def any_join(self) -> Made:
        """Two inputs whose condition is no equality."""
        left, right = self.pick.one(self.known), self.pick.one(self.known)
        pairs = pairs_of(left.under("a"), right.under("b"))
        if not pairs:
            return self.plain()
        kind = self.pick.one(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN"])
        on = f" {self.pick.one(['<', '>=', 'IS NOT DISTINCT FROM'])} ".join(self.pick.one(pairs))
        items = self.items([*left.under("a"), *right.under("b")], most=4)
        return self.made(
            "any join", f"SELECT {listed(items)} FROM {left.name} AS a {kind} {right.name} AS b ON {on}", items
        )

    def member_value(self) -> Made:
        """IN and EXISTS as a column, or under OR."""
        source = self.pick.one(self.known)
        names = source.under("a")
        items = self.items(names)
        asked = self.subquery_condition(names)
        if self.pick.chance(50):
            where = f"{condition(self.pick, names, 0)} OR {asked}"
            return self.made("member", f"SELECT {listed(items)} FROM {source.name} AS a WHERE {where}", items)
        items.append(Name(f"({asked}) AS c{len(items)}", "BOOLEAN"))
        return self.made("member", f"SELECT {listed(items)} FROM {source.name} AS a", items)

    def analytic(self) -> Made:
        """A function OVER a window as a column."""
        source = self.pick.one(self.known)
        names = source.under("a")
        items = self.items(names)
        call = analytic_call(self.pick, names, None, exact=not source.source)
        items.append(Name(f"{call} AS c{len(items)}", ""))
        return self.made("analytic", f"SELECT {listed(items)} FROM {source.name} AS a", items)

    def windowed(self) -> Made:
        """TUMBLING, HOPPING or SESSION windows of a stream, perhaps EMIT FINAL."""
        source = self.pick.one(self.streams)
        names = source.under("a")
        groups = self.pick.some([name for name in names if name.is_simple], 1, 2)
        if not groups:
            return self.plain()
        items = [Name(f"{name.text} AS c{number}", name.type) for number, name in enumerate(groups)]
        calls = [aggregate(self.pick, names, ordered=True) for _ in range(self.pick.count(1, 2))]
        items += [Name(f"{call} AS d{number}", "") for number, call in enumerate(calls)]
        items += [Name("WINDOWSTART AS ws", "BIGINT"), Name("WINDOWEND AS we", "BIGINT")]
        window, final = time_window(self.pick)
        having = " HAVING COUNT(*) > 1" if self.pick.chance(15) else ""
        text = f"SELECT {listed(items)} FROM {source.name} AS a {window}{self.where(names, 20)}"
        text += f" GROUP BY {', '.join(name.text for name in groups)}{having} EMIT {final}"
        return self.made("windowed", text, items, "TABLE")

    def within(self) -> Made:
        """Two streams whose events are near in time."""
        left, right = self.pick.one(self.streams), self.pick.one(self.streams)
        pairs = pairs_of(left.under("a"), right.under("b"))
        if not pairs:
            return self.plain()
        kind = self.pick.one(["JOIN", "JOIN", "LEFT JOIN", "FULL OUTER JOIN"])
        grace = " GRACE PERIOD 10 SECONDS" if self.pick.chance(30) else ""
        near = self.pick.one(["5 SECONDS", "(0 SECONDS, 20 SECONDS)"])
        on = self.pick.one(pairs)
        items = self.events(left, right, on, "ROWKEY" if kind.startswith("FULL") else on[0])
        joined = f"{left.name} AS a {kind} {right.name} AS b WITHIN {near}{grace} ON {' = '.join(on)}"
        return self.made("within", f"SELECT {listed(items)} FROM {joined}", items, "STREAM")

    def stream_table(self) -> Made:
        """Events that join a table as it was at their time."""
        stream = self.pick.one(self.streams)
        table = self.pick.one([each for each in self.tables if each.source])
        key = next(name for name in table.under("b") if name.text == f"b.{table.key[0]}")
        pairs = pairs_of(stream.under("a"), [key])
        if not pairs:
            return self.plain()
        on = self.pick.one(pairs)
        items = self.events(stream, table, on, on[0])
        create = self.pick.one(["STREAM", "MATERIALIZED VIEW"])
        said = create != "STREAM" or self.pick.chance(30)
        time = " FOR SYSTEM_TIME AS OF a.ROWTIME" if said else ""
        kind = self.pick.one(["JOIN", "LEFT JOIN"])
        joined = f"{stream.name} AS a {kind} {table.name}{time} AS b ON {' = '.join(on)}"
        where = self.where([*stream.under("a"), *table.under("b")], 20)
        return self.made("stream table", f"SELECT {listed(items)} FROM {joined}{where}", items, create)

    def nested(self) -> Made:
        """A CTE or a subquery in FROM, read by a query of its own."""
        inner = self.pick.one([self.plain, self.join, self.aggregate, self.aggregate, self.distinct])()
        columns = tuple(name for name in inner.outputs if name.type)
        if not columns or inner.create != "MATERIALIZED VIEW":
            return inner
        source = Known("q", columns, stream=False, source=False)
        names = source.under("q")
        if self.pick.chance(50):
            made = self.grouped("nested", f"FROM q{self.where(names, 30)}", names, ordered=False)
        else:
            items = self.items(names)
            made = self.made("nested", f"SELECT {listed(items)} FROM q{self.where(names)}", items)
        if self.pick.chance(50):
            return Made(f"WITH q AS ({inner.text}) {made.text}", made.outputs, "nested")
        return Made(made.text.replace("FROM q", f"FROM ({inner.text}) AS q", 1), made.outputs, "nested")
