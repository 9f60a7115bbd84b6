"""The grammar of statements: rules over sqlglot's parser, one method per statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from strandline.jobs.model.definitions import FOREIGN_OPTIONS, Kind
from strandline.jobs.model.errors import SqlError, SqlSyntaxError
from strandline.jobs.sql import size
from strandline.jobs.sql.clauses import Clauses
from strandline.jobs.sql.dialect import fold, position_of
from strandline.jobs.sql.from_text import check_read, data_type, is_type_name, type_of
from strandline.jobs.sql.syntax import (
    AlterSource,
    CreateFunction,
    CreateSource,
    CreateType,
    CreateView,
    DeclaredColumn,
    Delete,
    Describe,
    DescribeFunction,
    Drop,
    DropFunction,
    DropType,
    Explain,
    InsertSelect,
    InsertValues,
    Print,
    Rename,
    Select,
    SetProperty,
    Show,
    Statement,
    Swap,
    UnsetProperty,
    Update,
)
from strandline.jobs.sql.trees import constant_number, with_names

if TYPE_CHECKING:
    from collections.abc import Iterable


# The grammar of DELETE, UPDATE and ALTER, as rules over sqlglot's parser.

_KEYS = "expected WHERE and the keys: WHERE id = 1, or WHERE id IN (1, 2)"

_CHANGES = ("DROP", "ALTER", "RENAME", "SET")
_BREAKING = "columns can be added; for another change DROP it with its views, and CREATE it again: docs/evolution.md"


class ChangeClauses(Clauses):
    """The rules for the text that follows DELETE, UPDATE and ALTER."""

    def _delete(self) -> Delete:
        self._expect("FROM")
        target = self._name("the name of a table")
        return Delete(target=target, where=self._keys())

    def _update(self) -> Update:
        target = self._name("the name of a table")
        self._expect("SET")
        assignments = cast(list[tuple[str, exp.Expression]], self._parse_csv(cast(Any, self._assignment)))
        return Update(target=target, assignments=tuple(assignments), where=self._keys())

    def _alter(self) -> AlterSource | Rename | Swap:
        materialized = self._match_text_seq("MATERIALIZED")
        if not self._match_texts(("VIEW",) if materialized else ("STREAM", "TABLE", "VIEW")):
            self.raise_error("expected STREAM, TABLE or MATERIALIZED VIEW after ALTER")
        what = self._prev.text.upper()
        if_exists = bool(self._match_text_seq("IF", "EXISTS"))
        name = self._name("the name of a stream, table or view")
        if self._match_text_seq("RENAME", "TO"):
            following = self._name("the name that it is to have")
            return Rename(what=cast(Any, what), name=name, following=following, if_exists=if_exists)
        if if_exists:
            self.raise_error("expected RENAME TO after IF EXISTS and the name")
        if self._match_text_seq("SWAP", "WITH"):
            return Swap(what=cast(Any, what), name=name, other=self._name("the name that it is to be swapped with"))
        if what == "VIEW":
            refused = "the columns of a view are those of its query"
            raise self._refuse(refused, f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS SELECT …")
        if self._match_text_seq("RENAME"):
            raise self._refuse(
                "ALTER … RENAME COLUMN is not supported: the columns of a source are the fields of its records",
                f"CREATE VIEW … AS SELECT … AS … FROM {name} gives a column another name",
            )
        if not self._match_texts(("ADD",), advance=False) and self._match_texts(_CHANGES, advance=False):
            raise self._refuse(f"ALTER … {self._curr.text.upper()} is not supported yet", _BREAKING)
        columns: list[DeclaredColumn] = []
        more = True
        while more:
            self._expect("ADD")
            self._match_text_seq("COLUMN")
            columns.append(self._declared_column())
            more = bool(self._match(TokenType.COMMA)) or self._match_texts(("ADD",), advance=False)
        return AlterSource(name=name, kind=cast(Kind, what.lower()), columns=tuple(columns))

    def _assignment(self) -> tuple[str, exp.Expression]:
        name = self._name("the name of a column")
        self._punctuation(TokenType.EQ, "= after the name of the column")
        return name, self._value("a value")

    def _keys(self) -> exp.Expression:
        if not self._match(TokenType.WHERE):
            self.raise_error(_KEYS)
        return self._value("a condition")

    def _value(self, what: str) -> exp.Expression:
        tree = self._parse_disjunction()
        if not isinstance(tree, exp.Expression):
            self.raise_error(f"expected {what}")
        found = cast(exp.Expression, tree)
        check_read(found)
        return fold(found)


# The grammar of CREATE FUNCTION and CREATE TYPE, as rules over sqlglot's parser.


class FunctionClauses(Clauses):
    """The rules for the text that follows CREATE [OR REPLACE] when it creates a function."""

    def _is_function(self) -> bool:
        return bool(self._match_texts(("FUNCTION", "AGGREGATE"), advance=False))

    def _create_function(self, *, or_replace: bool) -> CreateFunction:
        aggregate = bool(self._match_text_seq("AGGREGATE"))
        self._expect("FUNCTION")
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        name = self._name("the name of the function").upper()
        self._punctuation(TokenType.L_PAREN, "( before the parameters")
        parameters: list[DeclaredColumn] = []
        if not self._match(TokenType.R_PAREN):
            parameters = cast(list[DeclaredColumn], self._parse_csv(cast(Any, self._parameter)))
            self._punctuation(TokenType.R_PAREN, ", or ) after a parameter")
        self._expect("RETURNS")
        start = self._curr
        tree = self._parse_types()
        if tree is None:
            self.raise_error("expected a type after RETURNS", start)
        self._expect("LANGUAGE")
        if not self._match_text_seq("PYTHON"):
            raise self._refuse("functions are written in PYTHON", hint="LANGUAGE PYTHON AS 'module:name'")
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS 'module:name'")
        return CreateFunction(
            name=name,
            parameters=tuple(parameters),
            returns=type_of(cast(exp.Expression, tree), at=start),
            code=self._text("'module:name'"),
            aggregate=aggregate,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
        )

    def _create_type(self) -> CreateType:
        """The rest of CREATE TYPE; from here on, its name stands for the type in this text."""
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        at = self._curr
        name = self._name("the name of the type")
        if is_type_name(name):
            self.raise_error(f"{name.upper()} is a type of the language: it cannot stand for another one", at)
        self._punctuation(TokenType.ALIAS, "AS and a type")
        start = self._curr
        tree = self._parse_types()
        if tree is None:
            self.raise_error("expected a type after AS", start)
        named = type_of(cast(exp.Expression, tree), at=start)
        if not (if_not_exists and name in self.named_types):
            self.named_types = {**self.named_types, name: data_type(named)}
        return CreateType(name=name, type=named, if_not_exists=if_not_exists)

    def _drop_type(self, *, if_exists: bool) -> DropType:
        """The rest of DROP TYPE; from here on, the name stands for no type in this text."""
        name = self._name("the name of a type")
        self.named_types = {known: tree for known, tree in self.named_types.items() if known != name}
        return DropType(name=name, if_exists=if_exists)

    def _parameter(self) -> DeclaredColumn:
        column = self._declared_column()
        if column.key is not None or column.header is not None:
            self.raise_error("a parameter is no column of a record", self._prev)
        return column


# Misspelt words of the language: `FORM` for FROM is taken as an alias, and the fault shows only at the next word.

_CLAUSES = (
    *("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "PARTITION", "HAVING", "WINDOW", "LIMIT", "JOIN", "INNER", "LEFT"),
    *("RIGHT", "FULL", "OUTER", "UNION", "VALUES", "WITH", "WITHIN", "EMIT", "CHANGES", "PRIMARY", "BETWEEN", "USING"),
)
# Words and operators of other dialects, and what says the same here.
_MISSPELT = {
    **dict.fromkeys(("RLIKE", "REGEXP", "SIMILAR"), "text ~ pattern, or REGEXP_LIKE(text, pattern)"),
    "COLLATE": "texts are compared by their code points: LCASE(text) leaves case out",
    "DIV": "INT / INT is an INT",
    "MINUS": "EXCEPT",
    "TOP": "LIMIT n after the query",
    "APPLY": "[LEFT | CROSS] JOIN LATERAL (SELECT …) AS name",
}
# FORM and FROM share 0.75, as does any transposition in a word of four letters; FORMAT and FROM 0.6.
_ALIKE = 0.74


def meant(word: str, known: Iterable[str] = _CLAUSES) -> str | None:
    """The hint for a word that is close to a known one, and is none itself; None when there is none."""
    choices = list(known)
    if word.upper() in choices:
        return None
    close = get_close_matches(word.upper(), choices, n=1, cutoff=_ALIKE)
    return f"did you mean {close[0]}?" if close else None


def meant_before(tokens: Sequence[Token], line: int | None, column: int | None) -> str | None:
    """The hint for a fault at a place of a statement: the word there, or the one before it, is misspelt.

    Args:
        tokens: the statement's.
        line, column: where the parser could not go on, 1-based.
    """
    before = [token for token in tokens if (token.line, token.col - len(token.text) + 1) <= (line or 0, column or 0)]
    said = next(
        (_MISSPELT[word] for token in reversed(before[-2:]) if (word := token.text.upper()) in _MISSPELT),
        None,
    )
    if said is not None:
        return said
    pairs = list(zip([None, *before], before, strict=False))[-2:]
    words = (token for last, token in reversed(pairs) if token.token_type is TokenType.VAR and not _is_value(last))
    return next((hint for token in words if (hint := meant(token.text)) is not None), None)


def _is_value(last: Token | None) -> bool:
    """True if what follows that token is a value, such as the JSON of an option."""
    return last is not None and last.token_type is TokenType.EQ


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
    "SPOOL": "strandline sql -f FILE.sql > OUTPUT",
    "DEFINE": "let the shell write the values: envsubst < FILE.sql | strandline sql",
    "UNDEFINE": "let the shell write the values: envsubst < FILE.sql | strandline sql",
    "ASSERT": "EXPECT in WITH says what is expected of rows; strandline test FILE tries a view on rows that are given",
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
        # Feldera's word for a view that is no output of its pipeline. Its rows are maintained like those of any other.
        local = self._match_text_seq("LOCAL", "VIEW", advance=False) and self._match_text_seq("LOCAL")
        read_only = not local and self._match_text_seq("SOURCE")
        kind: Kind | None = None
        plain = False
        if self._match_texts(("STREAM", "TABLE")):
            kind = cast(Kind, self._prev.text.lower())
        elif not self._match_text_seq("MATERIALIZED", "VIEW"):
            if not self._match_text_seq("VIEW"):
                self.raise_error("expected STREAM, TABLE, VIEW or MATERIALIZED VIEW after CREATE")
            plain = not local
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._name("a name")
        columns = self._declared_columns() if kind and self._match(TokenType.L_PAREN) else ()
        names = self._column_names() if not kind and self._match(TokenType.L_PAREN) else ()
        options = self._options()
        foreign = kind is not None and any(each.name in FOREIGN_OPTIONS for each in options)
        registered = kind is not None and not self._curr  # columns from the schema registry
        if read_only and not columns and not foreign and not registered:
            self.raise_error("expected columns in parentheses: a SOURCE is read from its topic, not from a query")
        if kind and (columns or foreign or registered):
            return CreateSource(
                read_only=read_only,
                name=name,
                kind=kind,
                columns=columns,
                options=options,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
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
            plain=plain,
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
        if self._next and self._next.text.upper() == "TOPICS":
            self._match_text_seq("ALL")  # ksqlDB's word for topics of its own: there are none here
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
        if limit is None or limit.args.get("limit_options") is not None:
            return Select(query=query, emit=emit)
        count = constant_number(limit.expression)
        if count is None:
            self.raise_error("LIMIT takes a number", self._prev)
        query.set("limit", None)
        return Select(query=query, emit=emit, limit=count)


def _sized(statement: Statement) -> None:
    """Make the query of a statement short, and check that it is not too large. Raises NotSupported."""
    match statement:
        case CreateView(query=query) | InsertSelect(query=query):
            size.check(size.balanced(size.shortened(query)), size.VIEW)
        case Select(query=query) | Explain(query=exp.Query() as query):
            size.check(size.balanced(size.shortened(query)), size.PULL)
