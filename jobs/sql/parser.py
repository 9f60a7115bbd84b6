"""The grammar of statements: rules over sqlglot's parser, one method per statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, cast

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model.definitions import Kind
from strandline.jobs.model.errors import NotSupported, SqlError, SqlSyntaxError
from strandline.jobs.sql import size
from strandline.jobs.sql.change_clauses import ChangeClauses
from strandline.jobs.sql.dialect import position_of
from strandline.jobs.sql.function_clauses import FunctionClauses
from strandline.jobs.sql.misspelt import meant
from strandline.jobs.sql.named_columns import with_names
from strandline.jobs.sql.syntax import (
    CreateSource,
    CreateView,
    Describe,
    DescribeFunction,
    Drop,
    DropFunction,
    Explain,
    InsertSelect,
    InsertValues,
    Print,
    Select,
    SetProperty,
    Show,
    Statement,
    UnsetProperty,
)

_SHOWN = ("STREAMS", "TABLES", "VIEWS", "QUERIES", "TOPICS", "FUNCTIONS", "TYPES", "PROPERTIES")
# Statements of ksqlDB that a reader may try: named in the refusal, so that nobody looks for a typing error.
ABSENT = {
    **{word: f"{word} is not supported yet" for word in ("ASSERT", "DEFINE", "UNDEFINE", "RUN", "SPOOL")},
    **{
        word: f"{word}: no query runs by itself here, a pipeline's views are kept fresh by `strandline run`"
        for word in ("TERMINATE", "PAUSE", "RESUME")
    },
}
_INSTEAD = {
    "TERMINATE": "stop the run with Ctrl-C, or DROP the view",
    "PAUSE": "stop the run with Ctrl-C",
    "RESUME": "strandline run PIPELINE --mode continuous",
    "RUN": "strandline sql -f FILE.sql",
}


class Grammar(ChangeClauses, FunctionClauses):
    """Parses one statement per chunk of tokens into a `Statement`."""

    RULES: ClassVar[dict[str, Callable[[Any], Statement]]] = {
        "CREATE": lambda self: self._create(),
        "INSERT": lambda self: self._insert(),
        "DELETE": lambda self: self._delete(),
        "UPDATE": lambda self: self._update(),
        "ALTER": lambda self: self._alter(),
        "DROP": lambda self: self._drop(),
        "SHOW": lambda self: self._show(),
        "LIST": lambda self: self._show(),
        "PRINT": lambda self: self._print(),
        "DESCRIBE": lambda self: self._describe(),
        "EXPLAIN": lambda self: self._explain(),
        "SET": lambda self: self._set(),
        "UNSET": lambda self: UnsetProperty(name=self._text("the name of a property, in quotes")),
    }

    def statement(self, tokens: list[Token], text: str) -> Statement:
        """The statement that all of `tokens` (at least one) make.

        Raises:
            ParseError, SqlSyntaxError, UnknownName, TypeMismatch, NotSupported
        """
        self.reset()
        self.sql = text
        self._chunks = [tokens]
        self._advance_chunk()
        statement = self._rule()()
        if self._curr:
            self.raise_error("Invalid expression")
        line, column = position_of(tokens[0])
        try:
            _sized(statement)
        except SqlError as error:
            raise error.placed(line, column) from None
        return replace(statement, sql=self._find_sql(tokens[0], tokens[-1]), line=line or 1, column=column or 1)

    def _unexpected(self, what: str, hint: str | None) -> SqlSyntaxError:
        line, column = position_of(self._curr or self._prev)
        return SqlSyntaxError(what, line=line, column=column, hint=hint)

    def _rule(self) -> Callable[[], Statement]:
        if self._curr.token_type in (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN):
            return self._select
        word = self._curr.text.upper()
        if word in ABSENT:
            raise self._refuse(ABSENT[word], _INSTEAD.get(word))
        if not self._match_texts(self.RULES):
            begins = ("SELECT", *self.RULES)
            hint = meant(self._curr.text, begins) or f"statements begin with {', '.join(begins)}"
            raise self._unexpected(f"no statement begins with '{self._curr.text}'", hint)
        return lambda: self.RULES[word](self)

    def _create(self) -> Statement:
        or_replace = self._match_text_seq("OR", "REPLACE")
        if self._is_function():
            return self._create_function(or_replace=or_replace)
        connector = self._match_text_seq("SOURCE", "CONNECTOR", advance=False)
        if self._match_text_seq("TYPE"):
            return self._create_type()
        if connector or self._match_texts(("CONNECTOR", "SINK"), advance=False):
            raise self._refuse(f"CREATE {self._curr.text.upper()} is not supported yet")
        read_only = self._match_text_seq("SOURCE")
        kind: Kind | None = None
        if self._match_texts(("STREAM", "TABLE")):
            kind = cast(Kind, self._prev.text.lower())
        elif not (self._match_text_seq("MATERIALIZED", "VIEW") or self._match_text_seq("VIEW")):
            self.raise_error("expected STREAM, TABLE or MATERIALIZED VIEW after CREATE")
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._name("a name")
        columns = self._declared_columns() if kind and self._match(TokenType.L_PAREN) else ()
        names = self._column_names() if not kind and self._match(TokenType.L_PAREN) else ()
        options = self._options()
        if read_only and not columns:
            self.raise_error("expected columns in parentheses: a SOURCE is read from its topic, not from a query")
        if kind and columns:
            return CreateSource(
                read_only=read_only,
                name=name,
                kind=kind,
                columns=columns,
                options=options,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
            )
        if kind and not self._curr:
            raise NotSupported(
                f"'{name}' has no columns: taking them from the schema registry is not supported yet",
                hint=f"write CREATE {kind.upper()} {name} (column TYPE, …) WITH (…)",
            )
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected columns in parentheses, or AS SELECT" if kind else "expected AS SELECT")
        query, emit = self._query()
        return CreateView(
            name=name,
            kind=kind,
            query=with_names(query, names) if names else query,
            options=options,
            emit=emit,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
        )

    def _column_names(self) -> tuple[str, ...]:
        """The names after ( and the bracket that ends them."""
        found = tuple(cast(list[str], self._parse_csv(cast(Any, lambda: self._name("the name of a column")))))
        self._punctuation(TokenType.R_PAREN, ") after the columns")
        return found

    def _insert(self) -> Statement:
        self._expect("INTO")
        target = self._name("the name of a stream or table")
        columns = self._column_names() if self._match(TokenType.L_PAREN) else ()
        if self._match(TokenType.VALUES):
            rows = cast(list[tuple[exp.Expression, ...]], self._parse_csv(cast(Any, self._row)))
            return InsertValues(target=target, columns=columns, rows=tuple(rows))
        if columns:
            self.raise_error("expected VALUES after the columns")
        if self._match(TokenType.WITH, advance=False):
            raise self._refuse("INSERT INTO … WITH (…) is not supported yet")
        query, emit = self._query()
        return InsertSelect(target=target, query=query, emit=emit)

    def _drop(self) -> Statement:
        if self._match_text_seq("FUNCTION"):
            if_exists = bool(self._match_text_seq("IF", "EXISTS"))
            return DropFunction(name=self._name("the name of a function").upper(), if_exists=if_exists)
        if self._match_text_seq("TYPE"):
            if_exists = bool(self._match_text_seq("IF", "EXISTS"))
            return self._drop_type(if_exists=if_exists)
        self._match_text_seq("MATERIALIZED")
        if not self._match_texts(("STREAM", "TABLE", "VIEW")):
            self.raise_error("expected STREAM, TABLE, VIEW, FUNCTION or TYPE after DROP")
        what = self._prev.text.upper()
        if_exists = self._match_text_seq("IF", "EXISTS")
        name = self._name("a name")
        return Drop(
            what=cast(Any, what),
            name=name,
            if_exists=if_exists,
            cascade=bool(self._match_text_seq("CASCADE")),
            delete_topic=self._match_text_seq("DELETE", "TOPIC"),
        )

    def _show(self) -> Statement:
        if self._next and self._next.text.upper() == "VIEWS":
            self._match_text_seq("MATERIALIZED")
        if not self._match_texts(_SHOWN):
            word = self._curr.text if self._curr else ""
            hint = "DESCRIBE name" if word.upper() in ("COLUMNS", "CREATE") else meant(word, _SHOWN)
            raise self._unexpected(f"expected one of {', '.join(_SHOWN)} after {self._prev.text.upper()}", hint)
        what = self._prev.text.upper()
        return Show(what=cast(Any, what), extended=self._match_text_seq("EXTENDED"))

    def _print(self) -> Statement:
        topic = self._prev.text if self._match(TokenType.STRING) else self._name("the name of a topic")
        from_beginning = bool(self._match_text_seq("FROM", "BEGINNING"))
        limit = None
        if self._match(TokenType.LIMIT):
            if not self._match(TokenType.NUMBER) or not self._prev.text.isdigit():
                self.raise_error("LIMIT takes a number")
            limit = int(self._prev.text)
        return Print(topic=topic, from_beginning=from_beginning, limit=limit)

    def _describe(self) -> Statement:
        if self._match_text_seq("FUNCTION"):
            return DescribeFunction(name=self._name("the name of a function").upper())
        extended = self._match_text_seq("EXTENDED")
        name = self._name("a name")
        return Describe(name=name, extended=self._match_text_seq("EXTENDED") or extended)

    def _explain(self) -> Statement:
        maintenance = self._match_text_seq("MAINTENANCE")
        if self._match_set((TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN), advance=False):
            return Explain(query=self._query()[0], maintenance=maintenance)
        return Explain(name=self._name("the name of a view, or a SELECT"), maintenance=maintenance)

    def _set(self) -> Statement:
        name = self._text("the name of a property, in quotes")
        self._punctuation(TokenType.EQ, "= after the name of the property")
        return SetProperty(name=name, value=self._text("the value of the property, in quotes"))

    def _select(self) -> Statement:
        query, emit = self._query()
        query.set("emit", None)
        limit = query.args.get("limit")
        if limit is None:
            return Select(query=query, emit=emit)
        count = limit.expression
        if not isinstance(count, exp.Literal) or not count.name.isdigit():
            self.raise_error("LIMIT takes a number", self._prev)
        query.set("limit", None)
        return Select(query=query, emit=emit, limit=int(count.name))


def _sized(statement: Statement) -> None:
    """Make the query of a statement short, and check that it is not too large. Raises NotSupported."""
    match statement:
        case CreateView(query=query) | InsertSelect(query=query):
            size.check(size.balanced(size.shortened(query)), size.VIEW)
        case Select(query=query) | Explain(query=exp.Query() as query):
            size.check(size.balanced(size.shortened(query)), size.PULL)
