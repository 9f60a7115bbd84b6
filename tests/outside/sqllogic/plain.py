"""A plain DuckDB that runs what a file sets up: its tables are read from it, whatever statements made them.

    CREATE TABLE t …; INSERT …; UPDATE …       ──>       the rows of t

So nothing of a suite's INSERT … SELECT, UPDATE or ROLLBACK has to be understood here. Views are kept as their text, for
the engine that is tried to maintain. Queries are not asked of it, but to see whether a documented difference of the
dialects explains an answer.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Timer
from typing import Any, Final

import duckdb

_ENDS: Final = ("9999-12-31", "0001-01-01")
_SECONDS: Final = 5.0
_VIEW: Final = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?(?:RECURSIVE\s+)?(?:MATERIALIZED\s+)?VIEW\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>[\w.\"]+)\s*(?:\((?P<columns>[^()]*)\))?\s*(?:WITH\s*\([^()]*\)\s*)?AS\b(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
_IMMV: Final = re.compile(
    r"\s*SELECT\s+(?:pgivm\.)?create_immv\(\s*'(?P<name>[\w.]+)\s*(?:\((?P<columns>[^()]*)\))?'\s*,\s*'(?P<query>.*)'\s*\)\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
_DROPS: Final = re.compile(
    r"\s*DROP\s+(?:MATERIALIZED\s+)?(?:VIEW|TABLE)\s+(?:IF\s+EXISTS\s+)?(?P<names>[\w.\", ]+)", re.IGNORECASE
)
# It would end a transaction with an error, and makes no rows.
_NOT_NEEDED: Final = re.compile(
    r"\s*(?:SELECT|GRANT|REVOKE|FLUSH|WAIT|CREATE\s+(?:UNIQUE\s+)?(?:INDEX|EXTENSION|USER|ROLE)|DROP\s+(?:INDEX|USER|ROLE)"
    r"|SET\s+(?:SESSION|ROLE))\b",
    re.IGNORECASE,
)
# RisingWave's and PostgreSQL's words for what DuckDB has too, or does not need.
_SPELLED: Final = (
    (re.compile(r"\bCREATE\s+MATERIALIZED\s+VIEW\b", re.IGNORECASE), "CREATE VIEW"),
    (re.compile(r"\bDROP\s+MATERIALIZED\s+VIEW\b", re.IGNORECASE), "DROP VIEW"),
    (re.compile(r"\bSTRUCT\s*<\s*([^<>]*)>", re.IGNORECASE), r"STRUCT(\1)"),
    (re.compile(r"\)\s*APPEND\s+ONLY\b", re.IGNORECASE), ")"),
    (re.compile(r"\bSELECT\s+(generate_series\s*\([^()]*\))", re.IGNORECASE), r"SELECT unnest(\1)"),
    (re.compile(r"\bpublic\.", re.IGNORECASE), ""),
    (re.compile(r"\bJSONB\b", re.IGNORECASE), "JSON"),
    (re.compile(r"\bCHARACTER VARYING\b", re.IGNORECASE), "VARCHAR"),
)


_HEXADECIMAL: Final = re.compile(r"'\\x((?:[0-9a-fA-F]{2}){2,})'")
_MADE: Final = re.compile(
    r"\s*CREATE\s+(?:TRIGGER\b.*?\bON|SINK\b.*?\bINTO)\s+(?P<fires>\w+)"
    r"|\s*(?:CREATE\s+(?:\w+\s+)*?(?:TABLE|SOURCE|TYPE|FUNCTION|MACRO|SCHEMA)|INSERT\s+INTO|ALTER\s+(?:\w+\s+)*?(?:TABLE|VIEW)|UPDATE|COPY)\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>[\w.\"]+)",
    re.IGNORECASE | re.DOTALL,
)
_COLLATED: Final = "a collation"
_UNSTEADY: Final = "rows that are not the same twice"
OWN_REASONS: Final = (_COLLATED, _UNSTEADY)
"""Why tables are not fed although DuckDB has them."""
_CLOCK: Final = re.compile(
    r"\b(?:random|setseed|now|today|uuid|uuidv\d|gen_random_uuid|get_current_\w+|nextval)\s*\(|\bcurrent_(?:date|time|timestamp)\b",
    re.IGNORECASE,
)
_TAKES_FROM_CHANGE: Final = re.compile(r"\s*WITH\b.*\bRETURNING\b[^()]*\)\s*INSERT\s+INTO\b", re.IGNORECASE | re.DOTALL)
"""`WITH x AS (INSERT … RETURNING …) INSERT …`, which DuckDB runs as it stands."""
_CHANGE: Final = re.compile(r"\bAS\s*\(\s*(?=(?:INSERT|UPDATE|DELETE)\b)", re.IGNORECASE)

Answer = list[list[str | None]]
Saying = Callable[[str], str]
_State = tuple[dict[str, str], dict[str, Any]]
"""Views and the rows of tables, as a transaction found them."""


@dataclass(frozen=True)
class PlainTable:
    """A table: its columns with DuckDB's types, and the columns of its primary key."""

    name: str
    columns: tuple[tuple[str, Any], ...]
    key: tuple[str, ...]


class Plain:
    """The database of one file.

    Args:
        null_order: where NULL comes in the dialect of the file, as DuckDB's `default_null_order` says it.
        of_postgres: the file's dialect is PostgreSQL's: `'\\x12cd'` are two bytes, which DuckDB writes `'\\x12\\xcd'`.
    """

    def __init__(self, null_order: str = "nulls_last", *, of_postgres: bool = False) -> None:
        self._of_postgres = of_postgres
        self._db = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": "1GB"})
        self._db.execute("SET TimeZone = 'UTC'")
        self._db.execute("SET enable_external_access = false")
        self._db.execute(f"SET default_null_order = '{null_order}'")
        self.views: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self._saved: list[_State] = []

    def close(self) -> None:
        """Forget it."""
        self._db.close()

    def run(self, sql: str) -> str:
        """Run a statement that sets something up; why it cannot be run, or nothing."""
        if self._is_of_transaction(sql):
            return ""
        self._note_views(sql)
        for pattern, text in _SPELLED:
            sql = pattern.sub(text, sql)
        if self._of_postgres and self._fills_bytes(sql):
            sql = _HEXADECIMAL.sub(lambda found: "'" + re.sub("(..)", r"\\x\1", found[1]) + "'", sql)
        changes = list(_changes_in_with(sql))
        immv = _IMMV.match(sql)
        if immv:
            sql = f"CREATE OR REPLACE VIEW {_name(immv['name'])} AS {self.views[_name(immv['name'])]}"
        if _NOT_NEEDED.match(sql) and not changes:
            return ""
        try:
            for each in changes or [sql]:
                self._execute(each)
        except duckdb.Error as error:
            why = str(error).splitlines()[0]
            made = _MADE.match(sql)
            if made:
                self.failed[_name(made["name"] or made["fires"])] = why
            return why
        self._note_made(sql)
        return ""

    def _fills_bytes(self, sql: str) -> bool:
        """True for INSERT into a table that has bytes."""
        made = _MADE.match(sql)
        if made is None or not made["name"] or sql.split()[0].lower() != "insert":
            return False
        table = self.tables().get(_name(made["name"]))
        return table is not None and any(str(kind) == "BLOB" for _, kind in table.columns)

    def _note_made(self, sql: str) -> None:
        """Note what a statement made that is not to be fed."""
        made = _MADE.match(sql)
        if made is None or not made["name"]:
            return
        if re.search(r"\bcollate\b", sql, re.IGNORECASE):
            self.failed[_name(made["name"])] = _COLLATED
        elif _CLOCK.search(sql):
            self.failed[_name(made["name"])] = _UNSTEADY
        elif sql.split()[0].lower() == "create":
            self.failed.pop(_name(made["name"]), None)

    def tables(self) -> dict[str, PlainTable]:
        """The tables there are, by their names in lower case."""
        found = {}
        keys = self._keys()
        for (name,) in self._db.execute(
            "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' AND NOT internal"
            " AND database_name = current_database()"
        ).fetchall():
            relation = self._db.table(f'"{name}"')
            columns = tuple(zip(relation.columns, relation.types, strict=True))
            found[name.lower()] = PlainTable(name, columns, keys.get(name, ()))
        return found

    def count(self, table: PlainTable) -> int:
        """How many rows a table has."""
        [(count,)] = self._db.execute(f'SELECT count(*) FROM "{table.name}"').fetchall()
        return int(count)

    def rows(self, table: PlainTable) -> list[tuple[Any, ...]]:
        """The rows of a table, as Python values.

        Raises:
            ValueError: a time is infinite: to Python it is the last one there is.
        """
        rows = self._db.execute(f'SELECT * FROM "{table.name}"').fetchall()
        if any(str(value).startswith(_ENDS) for row in rows for value in row if isinstance(value, dt.date)):
            raise ValueError(table.name)
        return rows

    def said_by(self, sql: str) -> str:
        """The text of a query with those of the views that it reads, directly or by others."""
        texts, todo = [sql], names_in(sql, self.views)
        while todo:
            text = self.views[todo.pop()]
            if text not in texts:
                texts.append(text)
                todo += names_in(text, self.views)
        return "\n".join(texts)

    def answer(self, sql: str, settings: Mapping[str, str], said: Saying | None = None) -> Answer | None:
        """The answer of a query, as texts; None: DuckDB has none.

        Args:
            settings: under which it is asked.
            said: how the query, and the views that it reads, are said in other words first.
        """
        before = {name: self._db.execute(f"SELECT current_setting('{name}')").fetchall()[0][0] for name in settings}
        try:
            self._set(settings)
            return self._asked(sql, said)
        except duckdb.Error:
            return None
        finally:
            self._set(before)

    def depends_on_order(self, sql: str) -> bool:
        """True if the answer is another one where the tables' rows lie in another order."""
        found = self.answer(sql, {})
        if found is None:
            return False
        for seed in (0.1, 0.5, 0.9):
            self._db.execute("BEGIN")
            try:
                for name in self.tables():
                    self._db.execute(f"SELECT setseed({seed})")
                    self._db.execute(f'CREATE TEMP TABLE "{name}" AS SELECT * FROM main."{name}" ORDER BY random()')
                if self.answer(sql, {}) != found:
                    return True
            except duckdb.Error:
                return False
            finally:
                self._db.execute("ROLLBACK")
        return False

    def _asked(self, sql: str, said: Saying | None) -> Answer:
        if said is None:
            text = f"SELECT COLUMNS(*)::VARCHAR FROM ({sql.strip().rstrip(';')}\n) AS __asked"
            return [list(row) for row in self._execute(text).fetchall()]
        self._db.execute("BEGIN")
        try:
            for name in names_in(" ".join([sql, *self.views.values()]), self.views):
                self._db.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS {said(self.views[name])}')
            return self._asked(said(sql), None)
        finally:
            self._db.execute("ROLLBACK")

    def _set(self, settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            self._db.execute(f"SET {name} = '{value}'")

    def _execute(self, sql: str) -> duckdb.DuckDBPyConnection:
        timer = Timer(_SECONDS, self._db.interrupt)
        timer.start()
        try:
            return self._db.execute(sql)
        finally:
            timer.cancel()

    def _keys(self) -> dict[str, tuple[str, ...]]:
        found = self._db.execute(
            "SELECT table_name, constraint_column_names FROM duckdb_constraints()"
            " WHERE constraint_type = 'PRIMARY KEY' AND schema_name = 'main'"
        ).fetchall()
        return {name: tuple(columns) for name, columns in found}

    def _is_of_transaction(self, sql: str) -> bool:
        """True for BEGIN, ROLLBACK and their like, which are done here: a statement that DuckDB does not know would end
        a transaction of its own."""
        words = sql.upper().replace(";", " ").split()
        match words:
            case ["BEGIN" | "SAVEPOINT", *_] | ["START", "TRANSACTION", *_]:
                self._saved.append(self._state())
            case ["ROLLBACK", "TO", *_] if self._saved:
                self._restore(self._saved[-1])
            case ["ROLLBACK" | "ABORT", *_] if self._saved:
                self._restore(self._saved[0])
                self._saved = []
            case ["COMMIT" | "END" | "RELEASE", *_]:
                self._saved = self._saved[:-1] if words[0] == "RELEASE" else []
            case _:
                return False
        return True

    def _state(self) -> _State:
        rows = {name: self._db.table(f'"{name}"').to_arrow_table() for name in self.tables()}
        return dict(self.views), rows

    def _restore(self, state: _State) -> None:
        self.views = dict(state[0])
        for name in self.tables():
            if name not in state[1]:
                self._db.execute(f'DROP TABLE "{name}" CASCADE')
                continue
            self._db.register("saved_rows", state[1][name])
            try:
                self._db.execute(f'DELETE FROM "{name}"; INSERT INTO "{name}" SELECT * FROM saved_rows')
            except duckdb.Error:  # the transaction made a table of other columns under that name
                self._db.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM saved_rows')
            self._db.unregister("saved_rows")

    def _note_views(self, sql: str) -> None:
        immv = _IMMV.match(sql)
        made = immv or _VIEW.match(sql)
        if made:
            query = made["query"].strip().rstrip(";")
            query = query.replace("''", "'") if immv else query
            if made["columns"]:
                query = f"SELECT * FROM ({query}) AS renamed_view({made['columns']})"
            self.views[_name(made["name"])] = query
        gone = _DROPS.match(sql)
        for name in gone["names"].split(",") if gone else ():
            self.views.pop(_name(name.strip().split(" ")[0]), None)


def _changes_in_with(sql: str) -> Iterator[str]:
    """The changes of PostgreSQL's `WITH x AS (INSERT …), y AS (DELETE …) SELECT`.

    None of them sees what another does: so new rows come last.
    """
    if _TAKES_FROM_CHANGE.match(sql):
        return
    found = list(_in_with(sql))
    yield from sorted(found, key=lambda each: each.lstrip().lower().startswith("insert"))


def _in_with(sql: str) -> Iterator[str]:
    if not sql.lstrip().lower().startswith("with"):
        return
    for found in _CHANGE.finditer(sql):
        depth, at = 1, found.end()
        while depth and at < len(sql):
            depth += {"(": 1, ")": -1}.get(sql[at], 0)
            at += 1
        yield re.sub(r"\bRETURNING\b.*", "", sql[found.end() : at - 1], flags=re.IGNORECASE | re.DOTALL)


def _name(text: str) -> str:
    return text.split(".")[-1].strip('"').lower()


def names_in(sql: str, known: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Those of the names that stand in a text."""
    words = set(re.findall(r"\w+", sql.lower()))
    return [name for name in known if name in words]
