"""The columns of a relation as a SELECT lists them: those kept in `__state` become plain ones."""

from __future__ import annotations

from strandline.jobs.engines.engine import Engine
from strandline.jobs.model.relation import Relation
from strandline.state_store.tablespec import STATE


def listed(relation: Relation, engine: Engine) -> list[str]:
    """All that can be read by name of a relation's table, in order: its columns, then the hidden ones."""
    plain = [engine.name(name) for name, _ in relation.columns]
    return plain + [f"{STATE}.{engine.name(name)} AS {engine.name(name)}" for name, _ in relation.hidden]
