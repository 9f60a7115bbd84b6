"""ALTER … RENAME TO: another name for a definition, and nothing else.

Its tables, and all that others keep of them, say the name that it is stored under, which stays: version vectors in
commits, fingerprints, leases, replicas, the tokens of subscribers, Dagster's assets. So no row is computed anew, no
history ends, and a run of the pipeline, which says stored names alone, need not hear of it. One file of the catalog is
replaced: killed at any moment, the definition has its former name or the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model.definitions import Definition, InsertQuery, View
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.session.define.source import check_name
from strandline.jobs.sql.dialect import quote
from strandline.state_store.failpoints import failpoint
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.sql.syntax import Rename


def rename(statement: Rename, catalog: Catalog) -> str:
    """Call a definition by another name from now on.

    Args:
        statement: with the name that it is stored under.

    Returns:
        The message for the user.

    Raises:
        UnknownName: there is none of that name, and the statement does not say IF EXISTS.
        InvalidQuery: it is of another kind than the statement says; or nothing can have the name.
        NameTaken: another definition is called so, or stored so.
        CorruptState: the file of the definition is broken.
    """
    name, following = statement.name, statement.following
    if statement.if_exists and catalog.find(name) is None:
        return f"'{name}' is not there"
    definition, before = catalog.get(name), catalog.called.of(name)
    _check_kind(statement, definition, before)
    check_name(following)
    if following == before:
        return f"'{before}' is called so already"
    failpoint("before-called")
    catalog.rename(name, following)
    failpoint("after-called")
    return f"`{before}` is called `{following}` from now on"


def _check_kind(statement: Rename, definition: Definition, called: str) -> None:
    if isinstance(definition, InsertQuery):
        raise InvalidQuery(
            sentence("'{}' is a query into '{}', and is called after it", called, Name(definition.target)),
            hint=sentence("ALTER STREAM {} RENAME TO …", Name(definition.target, quote)),
        )
    kinds = (definition.kind.upper(), *(("VIEW",) if isinstance(definition, View) else ()))
    if statement.what not in kinds:
        raise InvalidQuery(
            f"'{called}' is no {statement.what.lower()}",
            hint=f"ALTER {kinds[0]} {quote(called)} RENAME TO {quote(statement.following)}",
        )
