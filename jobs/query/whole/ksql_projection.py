"""ksqlDB's checks on the SELECT of CREATE STREAM and CREATE TABLE, which gives a record's key and value.

| SELECT | refused, because |
| --- | --- |
| name FROM s | the record has no key: id is not selected |
| id FROM s | the record has no value |
| id, id AS again, name FROM s | the key is selected once; a copy in the value is AS_VALUE(id) AS again |
| id FROM s GROUP BY id | nothing is aggregated: SELECT DISTINCT does the same |

A materialized view is a table of the lake, with no record: none of this applies to it.
"""

from __future__ import annotations

from strandline.jobs.model.definitions import Kind
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.query.logical.query import Block, Query, SetOperation
from strandline.jobs.sql.dialect import sql_of


def check_projection(query: Query, kind: Kind) -> None:
    """Check the selected columns against the rules of the statement.

    Args:
        kind: the statement creates a stream or a table.

    Raises:
        InvalidQuery: the key is not selected, or more than once, or nothing else is; a table groups and aggregates
            nothing.
    """
    for block in query.branches if isinstance(query, SetOperation) else (query,):
        if isinstance(block, Block):
            _check_key(block)
            _check_aggregates(block, kind)


def _check_key(block: Block) -> None:
    if block.unseen_key:
        raise InvalidQuery(
            f"the query must select the {block.unseen_key}",
            hint="it becomes the key of the records; CREATE MATERIALIZED VIEW … AS may leave it out",
        )
    if block.key and all(output.name in block.key for output in block.outputs):
        raise InvalidQuery(
            f"the query selects nothing but the key: {', '.join(block.key)}",
            hint=f"select a value too, as AS_VALUE({block.key[0]}) AS name; CREATE MATERIALIZED VIEW … AS needs none",
        )
    keys = {sql_of(output.expression): output.name for output in block.outputs if output.name in block.key}
    for output in block.outputs:
        key = keys.get(sql_of(output.expression), output.name)
        if key != output.name:
            raise InvalidQuery(
                f"the query selects the key more than once: '{key}' and '{output.name}'",
                hint=f"a copy of the key in the value: AS_VALUE({key}) AS {output.name}",
            )


def _check_aggregates(block: Block, kind: Kind) -> None:
    if kind == "table" and block.group is not None and not block.calls:
        raise InvalidQuery(
            "GROUP BY without an aggregate function in SELECT or HAVING",
            hint="add one, such as COUNT(*); CREATE MATERIALIZED VIEW … AS needs none",
        )
