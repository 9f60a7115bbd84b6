"""INSERT INTO … SELECT: one more query that feeds a stream, declared or made by CREATE STREAM … AS SELECT."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.model.definitions import InsertQuery, Source, View, written_elsewhere
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.stage import MapStage, Plan
from strandline.jobs.model.stage_columns import relation_of
from strandline.jobs.model.types import BaseType, SqlType, common_type
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.query.logical import Block, Query, fingerprint, outputs_of
from strandline.jobs.session.define.replaced import reads_the_same
from strandline.jobs.session.define.view import check_rules, inputs_of, makes_stream
from strandline.jobs.session.define.view_options import check_quarantine_of_target
from strandline.jobs.sql.dialect import quote, sql_of
from strandline.jobs.sql.syntax import InsertSelect
from strandline.state_store.wording import Name, sentence


def insert_query_of(statement: InsertSelect, catalog: Catalog) -> InsertQuery:
    """The query that a statement adds to a stream, or the same query in the catalog.

    It belongs to the pipeline of the stream, whatever the statement's pipeline: a table has one writer.

    One whose file is broken gets its number back: its rows are known by it.

    Raises:
        SqlError: with line and column of the fault, where they are known.
        CorruptState: the file of another query into the stream is broken.
    """
    target = _target(statement, catalog)
    registered = next((each for each in catalog.whole_queries(target.name) if _is_it(each, statement, catalog)), None)
    if registered is not None:
        return registered
    query = read_query(statement.query, catalog, kind="stream")
    _check_events(target, query, catalog)
    _check_columns(target, query)
    inputs = inputs_of(query, catalog)
    made = InsertQuery(
        target=target.name,
        number=0,
        query=sql_of(statement.query),
        inputs=inputs,
        pipeline=target.pipeline,
        sql=statement.sql,
        fingerprint=fingerprint(query),
    )
    for each in catalog.whole_queries(target.name):
        if each.fingerprint == made.fingerprint or reads_the_same(each, made.fingerprint, catalog):
            return each
    read_query(statement.query, catalog, kind="stream", strict=True)
    broken = next((each for each in catalog.broken_queries(target.name) if each.holds(made.fingerprint)), None)
    if broken is not None:
        return _numbered(made, broken.number, catalog)
    for source in inputs:
        _check_chain(target.name, source, catalog)
    made = _numbered(made, _free_number(target, catalog), catalog)
    _check_readers(target, made, catalog)
    return made


def _check_events(target: Source | View, query: Query, catalog: Catalog) -> None:
    if not makes_stream(query, catalog):
        raise InvalidQuery(
            sentence(
                "only events can be inserted into the stream '{}'; the rows of this query change", Name(target.name)
            ),
            hint="read a stream, without aggregates",
        )


def _check_readers(target: Source | View, made: InsertQuery, catalog: Catalog) -> None:
    readers = () if made.identified else catalog.readers(target.name)
    if readers:
        raise NotSupported(
            sentence(
                "the query gives several rows for one event; '{}' tells rows of '{}' apart by events",
                Name(readers[0]),
                Name(target.name),
            ),
            hint=sentence("insert before anything reads '{}'", Name(target.name)),
        )


def _is_it(query: InsertQuery, statement: InsertSelect, catalog: Catalog) -> bool:
    """True if the statement means what the query was registered with, before its inputs were given further columns."""
    if not query.columns_seen:
        return False
    try:
        return fingerprint(read_query(statement.query, catalog.as_seen_by(query), kind="stream")) == query.fingerprint
    except SqlError:
        return False


def _numbered(made: InsertQuery, number: int, catalog: Catalog) -> InsertQuery:
    made = replace(made, number=number)
    planned = compiled(made, catalog)
    check_rules(planned)
    return replace(made, identified=bool(relation_of(planned.stages[-1]).identity))


def _free_number(target: Source | View, catalog: Catalog) -> int:
    """The first number whose partitions no other query of the target has.

    Each branch of a UNION ALL has a partition of its own, after the query's number.
    """
    feeding = [(each.number, each) for each in catalog.insert_queries(target.name)]
    last = [number + _branches(compiled(each, catalog)) for number, each in feeding]
    own = _branches(compiled(target, catalog)) if isinstance(target, View) else 0
    return max((own, *last)) + 1


def _branches(made: Plan) -> int:
    stage = made.stages[-1]
    return len(stage.body) if isinstance(stage, MapStage) and len(stage.body) > 1 else 0


def _target(statement: InsertSelect, catalog: Catalog) -> Source | View:
    found = catalog.find(statement.target)
    if found is None or isinstance(found, InsertQuery):
        raise UnknownName.among("stream", statement.target, catalog.relations())
    if found.kind == "table":
        raise InvalidQuery(sentence("'{}' is a table: a query can insert into a stream only", Name(found.name)))
    if isinstance(found, View):
        _check_view(found)
        check_quarantine_of_target(found)
    elif found.read_only:
        raise InvalidQuery(
            sentence("'{}' is a SOURCE: it is read only", Name(found.name)), hint=written_elsewhere(found)
        )
    header = next((column for column in found.columns if column.part == "headers"), None)
    if header is not None:
        raise InvalidQuery(
            sentence("'{}' of '{}' is a record's header: a query has none to insert", header.name, Name(found.name))
        )
    return found


def _check_view(target: View) -> None:
    if target.materialized:
        raise InvalidQuery(
            sentence("'{}' is a materialized view: its rows are those of its query alone", Name(target.name)),
            hint=sentence("CREATE STREAM {} AS … takes more", Name(target.name, quote)),
        )
    if target.storage != "append":
        raise NotSupported(
            sentence("the rows of '{}' change and go: inserting more into it is not maintained yet", Name(target.name)),
            hint=sentence("UNION ALL of '{}' and the query, in a view", Name(target.name)),
        )


def _check_columns(target: Source | View, query: Query) -> None:
    """Check that the query's columns fit the target's by position, name and type (which may widen).

    A number that is written in the query fits a DECIMAL that holds all its digits, as in ksqlDB.
    """
    wanted = [(c.name, c.type) for c in target.columns]
    given = list(outputs_of(query))
    written = {each.name: each.expression for each in query.outputs} if isinstance(query, Block) else {}
    fits = len(wanted) == len(given) and all(
        name == other and (common_type(sql_type, mine) == sql_type or _holds(sql_type, written.get(name)))
        for (name, sql_type), (other, mine) in zip(wanted, given, strict=True)
    )
    if not fits:
        raise TypeMismatch(
            sentence(
                "the columns do not fit '{}': selected {}, wanted {}",
                Name(target.name),
                _listed(given),
                _listed(wanted),
            ),
            hint="select the target's columns in its order, each with its name: expression AS name",
        )


def _holds(sql_type: SqlType, expression: exp.Expression | None) -> bool:
    """True if an expression is a number, and the type a DECIMAL with a place for each of its digits."""
    number = expression.this if isinstance(expression, exp.Neg) else expression
    if sql_type.base is not BaseType.DECIMAL or not isinstance(number, exp.Literal) or number.is_string:
        return False
    value = Decimal(number.name).normalize()
    fraction = max(-int(value.as_tuple().exponent), 0)
    return fraction <= sql_type.scale and value.adjusted() < sql_type.precision - sql_type.scale


def _listed(columns: list[tuple[str, SqlType]]) -> str:
    return ", ".join(f"{name} {sql_type}" for name, sql_type in columns)


def _check_chain(target: str, source: str, catalog: Catalog) -> None:
    """Refuse chains: a query must not read a stream that another query fills. So there are no circles."""
    below = _ancestors(source, catalog)
    if target in below:
        raise InvalidQuery(sentence("the query would read what it inserts into '{}'", Name(target)))
    fed = [name for name in below if catalog.insert_queries(name)]
    feeds = [
        q.name
        for q in catalog.definitions()
        if isinstance(q, InsertQuery) and any(target in _ancestors(each, catalog) for each in q.inputs)
    ]
    if fed or feeds:
        what = (
            sentence("'{}' is filled by INSERT INTO … SELECT itself", Name(fed[0]))
            if fed
            else sentence("'{}' is read by '{}'", Name(target), Name(feeds[0]))
        )
        raise NotSupported(
            sentence("chains of INSERT INTO … SELECT are not maintained yet: {}", what),
            hint="let the query read what that one reads",
        )


def _ancestors(name: str, catalog: Catalog) -> tuple[str, ...]:
    """`name` and all that its query reads, directly or not; what queries insert does not count."""
    found = catalog.find(name)
    inputs = found.inputs if isinstance(found, View) else ()
    return (name, *(each for source in inputs for each in _ancestors(source, catalog)))
