"""One file, run: what it sets up goes to a plain DuckDB, what it asks to the engine.

Queries between two statements are asked together. For them a lake is made: the tables that they read, the file's views,
and each query as a view of its own. The tables come to the file's rows over several epochs (`sources`), and in the end
each query's view, and the query as a pull, must show what the file states.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from sqlglot.errors import SqlglotError

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model import tables as table_names
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.serve.results import Rows, python_rows
from strandline.jobs.session.interpreter import DEFAULT_PIPELINE, Interpreter
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout
from tests.outside.sqllogic import compare
from tests.outside.sqllogic.outcomes import Outcome, Result, refusal_of
from tests.outside.sqllogic.plain import OWN_REASONS, Plain, PlainTable, names_in
from tests.outside.sqllogic.rules import AS_DUCKDB, BY_WORDS, DIFFERENCES, SAID_AS_IT_IS, names_joined_twice, not_asked
from tests.outside.sqllogic.script import LeftOut, Query, Script, Statement
from tests.outside.sqllogic.sources import MOST_ROWS, FedTable, NoType, Row, cut
from tests.outside.sqllogic.suites import SUITES
from tests.support.event_commits import commit_events, log_table

_EPOCHS: Final = 2
_MEMORY: Final = Path("/dev/shm")

Asked = Query | Statement
"""A query, or a SELECT that must be refused."""


@dataclass
class Runner:
    """The way through one file.

    Args:
        seed: other numbers make other histories.
    """

    suite: str
    script: Script
    duckdb_engine: DuckDBEngine
    seed: int = 0
    plain: Plain = field(init=False)
    before: dict[str, tuple[FedTable, list[Row]]] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    abroad: bool = False
    ordered: bool = False
    hooked: bool = False

    def __post_init__(self) -> None:
        # RisingWave's answers are PostgreSQL's.
        tabbed = SUITES[self.suite].form == "tabbed"
        self.plain = Plain("nulls_last" if tabbed else "nulls_last_on_asc_first_on_desc", of_postgres=not tabbed)

    def outcomes(self) -> Iterator[Outcome]:
        """What became of each query, as a view and as a pull."""
        if self.script.left_out:
            yield Outcome(self.suite, self.script.name, 0, "file", "not asked", self.script.left_out)
            return
        try:
            yield from self._walked()
        finally:
            self.plain.close()

    def _walked(self) -> Iterator[Outcome]:
        waiting: list[Asked] = []
        for record in self.script.records:
            match record:
                case LeftOut():
                    yield from self._both(record.line, "not asked", record.reason)
                case Query():
                    reason = self._reason_not_to_ask(record)
                    if reason == "no SELECT" and not _changes_nothing(record.sql):
                        yield from self._asked(waiting)
                        waiting = []
                        self._set_up(Statement(record.sql, record.line))
                    if reason:
                        yield from self._both(record.line, "not asked", reason, record.sql)
                    else:
                        waiting.append(record)
                case Statement() if record.fails and not not_asked(record.sql):
                    waiting.append(record)
                case Statement() if record.fails:
                    continue
                case Statement():
                    if not _changes_nothing(record.sql):
                        yield from self._asked(waiting)
                        waiting = []
                    self._set_up(record)
        yield from self._asked(waiting)

    def _reason_not_to_ask(self, query: Query) -> str:
        if query.lines is None:
            return "the file states no answer"
        if any(compare.HASH.fullmatch(line) or line.startswith("<FILE>") for line in query.lines):
            return "the answer is a hash"
        if self.abroad:
            return "a time zone of the session"
        if self.ordered:
            return "an order of the session"
        if names_in(query.sql, list(self.stale)):
            return "a view that is not refreshed there"
        if self.hooked:
            return "statements that a refresh runs there"
        return not_asked(query.sql)

    def _set_up(self, statement: Statement) -> None:
        self.plain.run(statement.sql)
        zone = re.match(
            r"\s*set\s+(?:global\s+|session\s+)?time\s*_?zone\s*(?:=|to)?\s*[\"']?([\w/+-]+)",
            statement.sql,
            re.IGNORECASE,
        )
        if zone:
            self.abroad = zone[1].lower() not in ("utc", "default", "gmt", "z")
        order = re.match(r"\s*(?:pragma|set)\s+default_order\s*=\s*'(\w+)'", statement.sql, re.IGNORECASE)
        if order:
            self.ordered = order[1].lower().startswith("desc")
        emptied = re.search(r"refresh_immv\(\s*'([\w.]+)'\s*,\s*(true|false)", statement.sql, re.IGNORECASE)
        if emptied:
            name = emptied[1].split(".")[-1].lower()
            (self.stale.add if emptied[2].lower() == "false" else self.stale.discard)(name)
        if self.suite == "openivm":
            words = statement.sql.lower().split()
            self.hooked |= "openivm_refresh_hooks" in statement.sql
            if words[:1] == ["pragma"]:
                for name in names_in(statement.sql, list(self.stale)):
                    # It takes in what the views below it have taken in.
                    if not names_in(self.plain.views.get(name, ""), list(self.stale - {name})):
                        self.stale.discard(name)
            elif words[:1] in (["insert"], ["update"], ["delete"], ["truncate"]):
                self.stale.update(self.plain.views)

    def _both(self, line: int, result: Result, reason: str, sql: str = "") -> Iterator[Outcome]:
        for mode in ("view", "pull"):
            yield Outcome(self.suite, self.script.name, line, mode, result, reason, sql)

    def _asked(self, asked: Sequence[Asked]) -> Iterator[Outcome]:
        if not asked:
            return
        tables = self.plain.tables()
        read = _read_by(asked, tables, self.plain)
        known, unfit = self._fed(read.tables)
        for each in asked:
            why = read.unfit(each, unfit)
            if why and isinstance(each, Query):
                yield from self._both(each.line, "not asked", why, each.sql)
        fit = [each for each in asked if not read.unfit(each, unfit)]
        if fit:
            pick = random.Random(f"{self.seed}/{self.suite}/{self.script.name}/{asked[0].line}")
            folder = _MEMORY if _MEMORY.is_dir() else None
            with tempfile.TemporaryDirectory(prefix="outside-", dir=folder) as made:
                yield from _Block(self, Path(made), known, read.views, pick).outcomes(fit)
        self.before |= known

    def _fed(self, tables: dict[str, PlainTable]) -> tuple[dict[str, tuple[FedTable, list[Row]]], dict[str, str]]:
        """What is fed, and the tables that cannot be, with the reason."""
        known: dict[str, tuple[FedTable, list[Row]]] = {}
        unfit = {
            name: why if why in OWN_REASONS else "what sets the table up is not understood"
            for name, why in self.plain.failed.items()
        }
        for name, table in tables.items():
            try:
                if self.plain.count(table) > MOST_ROWS:
                    unfit[name] = f"a table of more than {MOST_ROWS} rows"
                else:
                    known[name] = FedTable.of(table), self.plain.rows(table)
            except NoType as error:
                unfit[name] = f"a column of type {error}"
            except Exception:
                unfit[name] = "rows that Python has no values for"
        return known, unfit


@dataclass(frozen=True)
class _ReadBy:
    """The tables that queries read, directly or by views, and these views in their order."""

    tables: dict[str, PlainTable]
    views: dict[str, str]
    failed: tuple[str, ...]

    def unfit(self, asked: Asked, unfit: dict[str, str]) -> str:
        """Why a query cannot be asked: a table that it reads, directly or by views, is not fed."""
        seen: set[str] = set()
        todo = [asked.sql]
        while todo:
            sql = todo.pop()
            for name in names_in(sql, [*self.tables, *self.views, *self.failed]):
                if name in unfit:
                    return unfit[name]
                if name in self.views and name not in seen:
                    seen.add(name)
                    todo.append(self.views[name])
        return ""


def _read_by(asked: Sequence[Asked], tables: dict[str, PlainTable], plain: Plain) -> _ReadBy:
    found: set[str] = set()
    todo = [each.sql for each in asked]
    while todo:
        for name in names_in(todo.pop(), [*tables, *plain.views]):
            if name not in found:
                found.add(name)
                todo += [plain.views[name]] if name in plain.views else []
    return _ReadBy(
        {name: table for name, table in tables.items() if name in found and name not in plain.views},
        {name: text for name, text in plain.views.items() if name in found},
        tuple(plain.failed),
    )


class _Block:
    """Queries that are asked of the same rows, and the lake that has them."""

    def __init__(
        self,
        runner: Runner,
        folder: Path,
        known: dict[str, tuple[FedTable, list[Row]]],
        views: dict[str, str],
        pick: random.Random,
    ) -> None:
        self._runner = runner
        self._known = known
        self._views = views
        self._pick = pick
        self._lake = LakeLayout(folder / "lake")
        self._session = Interpreter(load_settings(lake=self._lake.root))
        self._unmade: dict[str, tuple[Result, str]] = {}
        self._unfed: set[str] = set()

    def outcomes(self, asked: Sequence[Asked]) -> Iterator[Outcome]:
        """What became of each, as a view and as a pull."""
        for name, (table, _) in self._known.items():
            self._made(name, table.statements)
        for name, text in self._views.items():
            self._made(name, (f'CREATE MATERIALIZED VIEW "{name}" AS {_bare(text)}\n;',))
        named = {f"asked_{place}": each for place, each in enumerate(asked)}
        for name, each in named.items():
            if isinstance(each, Query):
                self._made(name, (f"CREATE MATERIALIZED VIEW {name} AS {_bare(each.sql)}\n;",))
        failures = self._lived()
        for name, each in named.items():
            yield from self._judged(name, each, failures)

    def _made(self, name: str, statements: Sequence[str]) -> None:
        try:
            for statement in statements:
                list(self._session.run(statement))
        except Exception as error:
            self._unmade[name] = self._refused(error)

    def _refused(self, error: Exception) -> tuple[Result, str]:
        found = refusal_of(error)
        elsewhere = ("unknown stream, table or view", "there is no lake yet")
        if self._runner.script.name.endswith(".part") and any(each in found[1] for each in elsewhere):
            return "not asked", "reads what another file sets up"
        return found

    def _lived(self) -> dict[str, StrandlineError]:
        """Feed the epochs; what the last refresh could not do."""
        catalog = Catalog(self._lake)
        histories = {
            table.source: cut(table.events(rows, self._rows_before(name, table), self._pick), _EPOCHS, self._pick)
            for name, (table, rows) in self._known.items()
            if name not in self._unmade
        }
        failures: dict[str, StrandlineError] = {}
        for epoch in range(_EPOCHS):
            for source, epochs in histories.items():
                definition = catalog.get(source)
                assert isinstance(definition, Source)
                log_table(self._lake, definition).ensure(CommitRecord(epoch=0))
                try:
                    if epochs[epoch]:
                        commit_events(self._lake, definition, epochs[epoch])
                except pa.ArrowException:
                    self._unfed.add(source.removeprefix("rows_of_"))
            context = RunContext(None, self._lake, f"{DEFAULT_PIPELINE}/1", duckdb_engine=self._runner.duckdb_engine)
            levels = maintained(catalog.pipeline(DEFAULT_PIPELINE), catalog)
            failures = refresh_all(context, levels, frozenset()).failures
            if not histories:
                break
        return failures

    def _rows_before(self, name: str, table: FedTable) -> list[Row]:
        former, rows = self._runner.before.get(name, (table, []))
        return rows if former.types == table.types else []

    def _judged(self, name: str, asked: Asked, failures: dict[str, StrandlineError]) -> Iterator[Outcome]:
        runner = self._runner
        if self._unfed and names_in(asked.sql, [*self._unfed, *self._views]):
            if isinstance(asked, Query):
                for mode in ("view", "pull"):
                    yield Outcome(
                        runner.suite, runner.script.name, asked.line, mode, "not asked", "values that a log cannot hold"
                    )
            return
        below = next((each for each in names_in(asked.sql, self._views) if each in self._unmade), None)
        if isinstance(asked, Statement):
            result, reason = self._must_fail(asked)
            yield Outcome(runner.suite, runner.script.name, asked.line, "refused", result, reason, asked.sql)
            return
        pull = self._unmade[below] if below else self._answer(asked.sql, asked, ordered=True)
        if name in self._unmade or below:
            view = self._unmade[below] if below else self._unmade[name]
        elif name in failures:
            view = refusal_of(failures[name])
        else:
            view = self._compared(asked, *self._stored(name), ordered=False)
        if "wrong" in (view[0], pull[0]) and (kept := self._kept_aside(name, asked)):
            view, pull = (kept if each[0] == "wrong" else each for each in (view, pull))
        for mode, (result, reason) in (("view", view), ("pull", pull)):
            yield Outcome(runner.suite, runner.script.name, asked.line, mode, result, reason, asked.sql)

    def _must_fail(self, asked: Statement) -> tuple[Result, str]:
        try:
            for each in self._session.run(f"{_bare(asked.sql)}\n;"):
                if isinstance(each, Rows):
                    list(each.rows)
        except Exception as error:
            result, reason = refusal_of(error)
            return ("right", "") if result == "refused" else (result, reason)
        return "answered", "answered, and refused there"

    def _kept_aside(self, name: str, asked: Query) -> tuple[Result, str] | None:
        """The outcome where a row fails in a view that the query reads, or in the query's own: it is kept aside, where
        the file has an error, or NULL."""
        read, todo = {name}, [asked.sql]
        while todo:
            found = set(names_in(todo.pop(), self._views)) - read
            read |= found
            todo += [self._views[each] for each in found]
        if any(reader.head(self._lake.table(table_names.dead_letters(each))) is not None for each in read):
            return "as documented", "a row on which an expression fails is kept aside as a dead letter"
        return None

    def _stored(self, name: str) -> tuple[Sequence[str], list[list[object]]]:
        """The columns and rows of a view's table."""
        view = Catalog(self._lake).get(name)
        assert isinstance(view, View)
        names = [column.name for column in view.columns]
        if reader.head(self._lake.table(name)) is None:
            return names, []
        found = reader.read_rows(self._lake.table(name), columns=names)
        table = found if isinstance(found, pa.Table) else found.read_all()
        return names, [list(row) for row in python_rows(table.select(names), [column.type for column in view.columns])]

    def _answer(self, sql: str, asked: Query, *, ordered: bool) -> tuple[Result, str]:
        try:
            (answer,) = self._session.run(f"{_bare(sql)}\n;")
            assert isinstance(answer, Rows)
            rows = [list(row) for row in answer.rows]
        except Exception as error:
            return self._refused(error)
        return self._compared(asked, answer.names, rows, ordered=ordered)

    def _compared(
        self, asked: Query, names: Sequence[str], rows: list[list[object]], *, ordered: bool
    ) -> tuple[Result, str]:
        problem = compare.problem(asked, rows, len(names))
        places = _order_of(asked.sql, names) if ordered and not asked.sorted and not problem else None
        if places is not None:
            stated = compare.rows_of(asked, len(names))
            if stated is not None and compare.out_of_order(stated, rows, places):
                problem = f"another order: {compare.shown(rows)}"
        if not problem:
            return "right", ""
        if not ordered and names_joined_twice(asked.sql):
            return "as documented", "in a view, * of a join shows the columns of both sides"
        return self._explained(asked, rows, places) or ("wrong", problem)

    def _explained(
        self, asked: Query, rows: list[list[object]], places: tuple[int, ...] | None
    ) -> tuple[Result, str] | None:
        """The outcome of an answer that is another one than the file's, where a rule explains it."""
        plain = self._runner.plain
        theirs = plain.answer(asked.sql, {})
        if compare.same_but_spelled(asked, rows):
            return "as documented", "the texts of times, NaN, infinity and of nested values"
        for difference in DIFFERENCES:
            try:
                ours = plain.answer(asked.sql, difference.settings, difference.saying())
                unsaid = theirs if difference.said is None else plain.answer(asked.sql, {}, SAID_AS_IT_IS.saying())
            except SqlglotError:
                continue
            if ours is None or ours == unsaid or compare.unmatched(ours, rows):
                continue
            if places is None or not compare.out_of_order(ours, rows, places):
                return "as documented", difference.title
        if asked.form != "tabbed" and theirs is not None and not compare.unmatched(theirs, rows):
            said = plain.said_by(asked.sql)
            named = next((each.title for each in AS_DUCKDB if each.words.search(said)), None)
            if named is not None:
                return "as documented", named
        by_words = next((each.title for each in BY_WORDS if each.words.search(plain.said_by(asked.sql))), None)
        if by_words is not None:
            return "as documented", by_words
        if plain.depends_on_order(asked.sql):
            return "not asked", "the answer depends on the order of rows, and tables have none"
        return None


def _order_at(sql: str) -> int | None:
    """Where the query's own ORDER BY begins; None: it has none."""
    depth, at, quoted = 0, None, ""
    text = sql.lower()
    for place, letter in enumerate(text):
        if letter in "'\"":
            quoted = "" if quoted == letter else quoted or letter
        if quoted:
            continue
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0 and re.match(r"\border\s+by\b", text[place : place + 40]):
            at = place
    return at


def _order_of(sql: str, names: Sequence[str]) -> tuple[int, ...] | None:
    """The columns of the answer that the query's own ORDER BY names first; None: it has none."""
    at = _order_at(sql)
    if at is None:
        return None
    places = []
    items = re.split(r"\s(?:limit|offset|fetch)\s", re.sub(r"^order\s+by", "", sql[at:].lower()))[0]
    for item in items.strip().rstrip(";").split(","):
        word = item.split()[0].strip('"') if item.split() else ""
        if word == "all":
            return tuple(range(len(names)))
        if word.isdigit() and 0 < int(word) <= len(names):
            places.append(int(word) - 1)
        elif word.split(".")[-1] in names:
            places.append(list(names).index(word.split(".")[-1]))
        else:
            break
    return tuple(places)


def _bare(sql: str) -> str:
    return sql.strip().rstrip(";")


def _changes_nothing(sql: str) -> bool:
    """True for statements after which all tables have the rows that they had."""
    words = sql.lower().replace(";", " ").split()
    return words[:1] in (["show"], ["describe"], ["set"], ["flush"], ["explain"], ["wait"], ["analyze"]) or words[
        :2
    ] == [
        "pragma",
        "enable_verification",
    ]
