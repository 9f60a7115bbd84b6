"""FROM: the relations, subqueries and common table expressions that a SELECT reads, each under its alias."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import companion, event_log, fed_relation, visible_relation
from strandline.jobs.model.definitions import InsertQuery, Kind, Semantics, Source, View
from strandline.jobs.model.errors import InvalidQuery, NotSupported, UnknownName
from strandline.jobs.model.stage import JoinType
from strandline.jobs.model.tables import META_COLUMNS, WINDOW_BOUNDS, Relation, alike, differ_only_in_case
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.clauses.from_functions import (
    NOWHERE,
    UNNEST,
    constant_rows,
    is_unnest,
    series,
    unnest_alias,
    window_function,
)
from strandline.jobs.query.desugar import bracketed
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.inputs import UNNAMED, FromItem, Inputs, Outer
from strandline.jobs.query.logical import NestedFound, Query, gives_events, outputs_of, reads
from strandline.jobs.query.pulled import NestedQueries, Unnamed
from strandline.jobs.sql.dialect import position_of
from strandline.jobs.sql.size import PULL, VIEW, check_tables
from strandline.jobs.sql.trees import can_be_named, identifier, with_names
from strandline.state_store.wording import Name, quoted, sentence

_META = dict(META_COLUMNS)
_FUNCTIONS = "functions in FROM are UNNEST, GENERATE_SERIES, RANGE, TUMBLE, HOP and SESSION"
_LATERAL = "LATERAL"
ASOF = "ASOF"
"""The word before JOIN by which of all matches the nearest one joins."""
NATURAL = "NATURAL"
"""The word before JOIN by which the columns of one name are equal."""
_SIDES: dict[str, JoinType] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass(frozen=True)
class Context:
    """What surrounds a SELECT while it is read: catalog, statement, common table expressions, outer query.

    Attributes:
        kind: `stream` or `table`, as the statement says; None for a materialized view and for a query inside another.
        queries: the common table expressions in sight, by name.
        outer: the scope of the outer query, when this is a subquery of an expression.
        read: reads a query inside this one; passed in, since importing it would be a cycle.
    """

    catalog: Catalog
    semantics: Semantics
    kind: Kind | None
    read: Callable[[exp.Expr, Context], Query]
    queries: Mapping[str, Query] = field(default_factory=dict)
    outer: Outer | None = None
    padded: frozenset[str] = frozenset()
    """The inputs of the outer query that its outer joins pad."""
    frozen: bool = False
    """Events join tables as they are at the events' time: in CREATE STREAM, and with ksqlDB's semantics."""
    strict: bool = False
    """ksqlDB's restrictions hold of its statements (`jobs.query.clauses.ksql`): a statement is new."""
    outermost: bool = True
    """The rows of the SELECT are the statement's: no query around it combines them or joins them with others."""
    nested: NestedFound | None = None
    """Takes the queries in the expressions of a pull query; None for a view, which joins them."""
    prefixed: bool = False
    """`*` over joins puts the input's name before each column's, in queries inside of this one too."""
    unnamed: Unnamed = "ksql"
    """Whose names the columns get that nobody named."""
    branch: bool = False
    """The query is combined with others, which may say of what type its NULLs are."""
    beside: Mapping[str, Relation] = field(default_factory=dict)
    """Relations that are not in the catalog: tables as they were, in a pull query."""

    @property
    def pulls(self) -> bool:
        """True for a pull query, which is answered once and need not be maintained."""
        return self.nested is not None

    def within(self, outer: Outer | None = None, padded: Collection[str] = ()) -> Context:
        """Context of a query inside this one. In a pull query, one in FROM can also read the queries around."""
        outer = outer or (self.outer if self.pulls else None)
        return replace(self, kind=None, outer=outer, outermost=False, branch=False, padded=frozenset(padded))

    @property
    def branches(self) -> Context:
        """Context of a query that is combined with others."""
        return replace(self, branch=True)

    def nested_in(self, inputs: Inputs) -> NestedQueries | None:
        """Reader of the subqueries in expressions over these inputs; None for a view."""
        if self.nested is None:
            return None
        return NestedQueries(inputs, self.nested, lambda tree, around: self.read(tree, self.within(around)))


@dataclass(frozen=True)
class Joined:
    """A part of FROM and its JOIN node, which is None for the first part.

    Attributes:
        unnest: the node of an UNNEST, whose arrays are still to be read; its part has no columns yet.
        lateral: the query of LATERAL, which reads the parts before it and is still to be read itself, likewise.
        inside: the joins in brackets that stand in the place of one input, likewise.
    """

    part: FromItem
    node: exp.Join | None
    unnest: exp.Table | None = None
    lateral: exp.Query | None = None
    inside: tuple[Joined, ...] = ()

    @property
    def within(self) -> exp.Expr | None:
        found: exp.Expr | None = self.node.this.args.get("within") if self.node is not None else None
        return found

    @property
    def system_time(self) -> exp.Version | None:
        """The node of FOR SYSTEM_TIME AS OF."""
        found: exp.Version | None = self.node.this.args.get("version") if self.node is not None else None
        return found


def read_from(select: exp.Select, context: Context) -> tuple[Joined, ...]:
    """Read the parts of FROM, in the order of the text.

    Raises:
        InvalidQuery: there is none in CREATE STREAM or TABLE, or two have one alias.
        UnknownName: no such stream, table or view.
        NotSupported: another form.
    """
    clause = select.args.get("from_")
    if clause is None:
        if context.kind is not None:
            hint = "SELECT … FROM a stream or table; CREATE MATERIALIZED VIEW … AS holds constants"
            raise InvalidQuery("the query reads nothing", hint=hint)
        return ()
    taken: dict[str, Relation | Query] = {}
    found = _joined(clause, select.args.get("joins") or (), context, taken)
    check_reads(list(taken.values()), context)
    return found


def _joined(
    clause: exp.Expr, joins: Sequence[exp.Join], context: Context, taken: dict[str, Relation | Query]
) -> tuple[Joined, ...]:
    """The parts of FROM, or of brackets in it; each one's source is added to those `taken`, under its alias."""
    check_first_table(clause.this)
    found: list[Joined] = []
    for node in (None, *joins):
        opened = bracketed(node) if node is not None else None
        if opened is not None:
            inside = _joined(exp.From(this=opened[0]), opened[1], context, taken)
            found.append(Joined(FromItem("", "", NOWHERE, (), {}), node, inside=inside))
            continue
        table = series(clause.this if node is None else node.this)
        table = named(table, list(taken))
        part = _part(table, context)
        same = alike(part.alias, list(taken))
        if same is not None:
            raise InvalidQuery(
                f"two inputs are named '{part.alias}'"
                if same == part.alias
                else differ_only_in_case("inputs", same, part.alias),
                hint=f"give each a name of its own: {part.name} AS other",
            ).placed(*position_of(table))
        taken[part.alias] = part.source
        found.append(Joined(part, node, table if is_unnest(table) else None, _query_of_lateral(table)))
    return tuple(found)


def check_reads(sources: Sequence[Relation | Query], context: Context) -> None:
    """Check that a query does not read too many tables. A common table expression counts wherever it is named.

    Raises:
        NotSupported: it does.
    """
    number = sum(1 if isinstance(each, Relation) else reads(each) for each in sources)
    check_tables(number, PULL if context.pulls else VIEW)


def named(table: exp.Expr, taken: Sequence[str]) -> exp.Expr:
    """Give a subquery or VALUES without an alias a free one; leave any other input as it is."""
    if table.alias or not (isinstance(table, exp.Values) or isinstance(table.this, exp.Query)):
        return table
    free = next(name for name in _unnamed_aliases() if name not in taken)
    made = table.copy()
    made.set("alias", exp.TableAlias(this=identifier(free)))
    return made


def _unnamed_aliases() -> Iterator[str]:
    yield UNNAMED
    yield from (f"{UNNAMED}_{number}" for number in count(2))


def _query_of_lateral(table: exp.Expr) -> exp.Query | None:
    """The query of LATERAL (SELECT …); None for any other part of FROM."""
    function = table.this if isinstance(table, exp.Table) else None
    if not isinstance(function, exp.Anonymous) or function.name != _LATERAL or len(function.expressions) != 1:
        return None
    query = function.expressions[0]
    while isinstance(query, exp.Subquery):
        query = query.this
    return query if isinstance(query, exp.Query) else None


def _part(table: exp.Expr, context: Context) -> FromItem:
    """An input under its alias, and under the names that follow the alias in brackets."""
    if is_unnest(table):
        return FromItem(unnest_alias(table), UNNEST, NOWHERE, (), {})
    if _query_of_lateral(table) is not None:
        if not table.alias:
            hint = "LATERAL (SELECT …) AS name"
            raise InvalidQuery("what follows LATERAL needs a name", hint=hint).placed(*position_of(table))
        return FromItem(table.alias, _LATERAL, NOWHERE, (), {})
    table = _with_names_inside(table)
    part = _plain_part(table, context)
    given = renamed(part, table, context)
    return part if given is None else query_part(part.alias, part.name, given)


def _names_after(node: exp.Expr) -> list[str]:
    """The names in `AS alias (a, b)`."""
    alias = node.args.get("alias")
    return [each.name for each in alias.args.get("columns") or ()] if alias is not None else []


def _with_names_inside(table: exp.Expr) -> exp.Expr:
    """A subquery whose own columns have the names that follow its alias, so that it may read the query around it;
    where a clause of it reads them by other names, as it is."""
    names = _names_after(table)
    if not names or not isinstance(table, exp.Subquery) or not can_be_named(table.this, names):
        return table
    made = table.copy()
    made.set("this", with_names(made.this, names))
    made.args["alias"].set("columns", None)
    return made


def renamed(part: FromItem, node: exp.Expr, context: Context) -> Query | None:
    """The query that gives an input's columns the names in `AS alias (a, b)`; None where there are none."""
    names = _names_after(node)
    if not names:
        return None
    held = [name for name, _ in part.columns]
    if len(names) > len(held):
        raise InvalidQuery(f"'{part.alias}' has {len(held)} columns, and {len(names)} names are given").placed(
            *position_of(node)
        )
    items: list[exp.Expr] = [
        exp.Alias(this=column(old), alias=identifier(new)) for old, new in zip(held, names, strict=False)
    ]
    items += [column(name) for name in held[len(names) :]]
    tree = exp.Select(expressions=items, from_=exp.From(this=exp.Table(this=identifier(part.name))))
    inner = context.within()
    if not isinstance(part.source, Relation):
        inner = replace(inner, queries={**inner.queries, part.name: part.source})
    return context.read(tree, inner)


def _plain_part(table: exp.Expr, context: Context) -> FromItem:
    line, place = position_of(table)
    table = window_function(table) or constant_rows(table) or table
    if isinstance(table, exp.Subquery) and isinstance(table.this, exp.Query):
        return query_part(
            table.alias, table.alias, context.read(table.this, context.within(context.outer, context.padded))
        )
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise not_in_from(table)
    if table.args.get("db") is not None:
        raise UnknownName(
            f"unknown schema '{table.db}'", line=line, column=place, hint="names have no schema before them"
        )
    name, alias = table.name, table.alias or table.name
    if name in context.queries:
        return query_part(alias, name, context.queries[name])
    return _relation_part(alias, name, context, line, place)


def query_part(alias: str, name: str, query: Query) -> FromItem:
    """A query as an input under its alias."""
    events = gives_events(query)
    hidden, row_key = (_META, ()) if events else ({}, query.key)
    return FromItem(alias, name, query, outputs_of(query), hidden, query.key, row_key, stream=events)


def _relation_part(alias: str, name: str, context: Context, line: int | None, place: int | None) -> FromItem:
    catalog = context.catalog
    if name in context.beside:
        return _companion_part(alias, context.beside[name])
    found = catalog.find(name)
    beside = companion(name, catalog) if context.pulls else None
    if beside is not None:
        return _companion_part(alias, beside)
    if found is None or isinstance(found, InsertQuery):
        raise UnknownName.among("stream, table or view", name, catalog.relations(), line=line, column=place)
    if isinstance(found, View) and found.partial and not context.pulls:
        raise NotSupported(
            sentence("'{}' is a partial view: it has no table that another query could be maintained from", Name(name)),
            line=line,
            column=place,
            hint=sentence(
                "read the tables below it ({}), or create it without STATE = 'partial'", quoted(found.inputs)
            ),
        )
    stored = not (isinstance(found, View) and found.partial)
    relation = fed_relation(found, catalog) if stored else visible_relation(found)
    shown = {column.name for column in found.columns}
    readable = (*relation.columns, *relation.hidden)
    hidden: dict[str, SqlType] = {
        name: sql_type for name, sql_type in readable if name not in shown and (name in _META or name in WINDOW_BOUNDS)
    }
    names = shown | hidden.keys()
    return FromItem(
        alias=alias,
        name=name,
        source=relation,
        columns=tuple((column.name, column.type) for column in found.columns),
        hidden=hidden,
        key=found.key,
        row_key=relation.key if names.issuperset(relation.key) else (),
        stream=found.kind == "stream",
        log=event_log(found) if isinstance(found, Source) and found.kind == "table" and not found.bag else None,
    )


def _companion_part(alias: str, relation: Relation) -> FromItem:
    """A table that comes with another: of a log, the meta columns are read by name alone."""
    meta = _META if relation.storage == "append" else {}
    columns = tuple((name, sql_type) for name, sql_type in relation.columns if name not in meta)
    return FromItem(alias, relation.name, relation, columns, meta, stream=relation.storage == "append")


def join_type(node: exp.Join) -> JoinType:
    """Type of a join: whose rows it keeps.

    Raises:
        NotSupported: its words are others.
    """
    if node.method not in ("", ASOF, NATURAL) or node.kind not in ("", "INNER", "OUTER", "CROSS"):
        line, place = position_of(node)
        word = node.method or node.kind
        raise NotSupported(
            f"{word} JOIN is not supported", line=line, column=place, hint="write JOIN … ON or USING (…)"
        )
    if node.kind == "OUTER" and not node.side:
        line, place = position_of(node)
        raise NotSupported(
            "OUTER JOIN does not say whose rows stay", line=line, column=place, hint="LEFT, RIGHT or FULL OUTER JOIN"
        )
    return _SIDES[node.side]


def not_in_from(table: exp.Expr) -> NotSupported:
    """Error for a function, or anything else, that FROM does not know."""
    if isinstance(table, exp.Subquery) and table.alias:
        what = f"a name for joins in brackets, '{table.alias}', is not supported"
        hint = f"(SELECT … FROM … JOIN …) AS {table.alias}; or leave the name out"
        return NotSupported(what, hint=hint).placed(*position_of(table))
    function = table.this if isinstance(table, exp.Table) else None
    what = function.name if isinstance(function, exp.Anonymous) else table.key.upper()
    return NotSupported(f"{what} in FROM is not supported", hint=_FUNCTIONS).placed(*position_of(table))


def check_first_table(table: exp.Expr) -> None:
    """Check that the first table of FROM has no clause that belongs to a join.

    Raises:
        InvalidQuery: it has WITHIN or FOR SYSTEM_TIME.
    """
    line, place = position_of(table)
    if table.args.get("within") is not None:
        raise InvalidQuery("WITHIN belongs to a JOIN", line=line, column=place)
    if table.args.get("version") is not None:
        raise InvalidQuery(
            "FOR SYSTEM_TIME AS OF belongs to the table that a stream joins",
            line=line,
            column=place,
            hint="FROM stream JOIN table FOR SYSTEM_TIME AS OF stream.ROWTIME ON …",
        )
