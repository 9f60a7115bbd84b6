"""The checks of expectations with quarantine: whether the rows that break one can be kept out, and kept aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.options import Ownership
from strandline.jobs.sql.dialect import quote
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import View


def check_quarantine_of_source(name: str, options: Mapping[str, str]) -> None:
    """Check that a source asks for no quarantine.

    Raises:
        NotSupported: it does. Its rows are the records of its topic, as they came.
    """
    if Ownership.read(options).quarantined:
        raise NotSupported(
            sentence("quarantine is for views: '{}' has every record of its topic that can be decoded", Name(name)),
            hint=sentence(
                "put the expectation on a view, CREATE … AS SELECT * FROM {}, and read that", Name(name, quote)
            ),
        )


def check_quarantine(view: View, catalog: Catalog) -> None:
    """Check that every row that breaks an expectation with quarantine goes to the view's dead letters.

    Raises:
        NotSupported: the view has no dead letters, or rows that do not come from its own query.
    """
    if not Ownership.read(view.options).quarantined:
        return
    if view.partial:
        raise NotSupported(
            "quarantine keeps rows in dead letters, and a partial view has none",
            hint="leave STATE = 'partial' or quarantine out",
        )
    errors = view.maintenance.errors
    if errors != "dead_letter":
        raise NotSupported(
            f"quarantine keeps rows in dead letters, and a view with ERRORS = '{errors}' has none",
            hint="add ERRORS = 'dead_letter', which SEMANTICS = 'ksql' does not have by itself",
        )
    queries = catalog.insert_queries(view.name)
    if queries:
        raise NotSupported(
            sentence("quarantine is not supported of a stream that other queries feed: '{}'", Name(queries[0].name)),
            hint=f"put the expectation on a view over {quote(view.name)}",
        )


def check_quarantine_of_target(target: View) -> None:
    """Check that no expectation keeps rows out of the view, which would not be asked about rows inserted into it.

    Raises:
        NotSupported: one does.
    """
    kept_out = Ownership.read(target.options).quarantined
    if kept_out:
        raise NotSupported(
            sentence(
                "inserting into '{}' is not supported: '{}' keeps rows of its query out of it",
                Name(target.name),
                Name(kept_out[0].name),
            ),
            hint=sentence("UNION ALL of '{}' and the query, in a view with that expectation", Name(target.name)),
        )
