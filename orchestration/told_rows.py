"""The materializations of tables that are told outside of runs: how often, and with what beside the numbers.

Dagster keeps every event for ever, and a table may be committed to every second. So a table that never stands still is
told of every half minute, and less often where there are many: a lake leaves some hundred thousand materializations a
day at most, however large it is. Each counts all commits since the one before, so none is lost.

Dagster marks an asset *Unsynced* whose inputs have another data version than those that it was made of. It is told
both:

| asset | its data version |
| --- | --- |
| an event log, a source's table, dead letters | always the same |
| a view | the digest of its rows: equal rows, equal versions |
| a changelog | the version of the table |

A view is made of the rows of the views above it that its vector names. Whether it is behind the events of a stream is
what its check `freshness` says, by its target: Dagster would call each view unsynced that waits as it may, or that an
event did not concern.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import dagster as dg
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    INPUT_DATA_VERSION_TAG_PREFIX,
    INPUT_EVENT_POINTER_TAG_PREFIX,
    NULL_EVENT_POINTER,
)

from strandline.jobs.run.dagster_child import data_version, data_version_of
from strandline.jobs.serve.consistent_snapshot import reflected
from strandline.orchestration.assets import Role, role_of, table_of, with_defined
from strandline.state_store.delta import reader
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from strandline.jobs.model.report import TableReport
    from strandline.state_store.layout import LakeLayout

VERSION: Final = "delta version"
"""The label of the version in a materialization's metadata."""

_A_DAY: Final = 100_000
_DAY_SECONDS: Final = 86_400
_LEAST_SECONDS: Final = 27.0
"""A little less than between two reports of a stream, or each other one would come a moment too early."""
_AT_ONCE: Final = 32
"""Assets whose last materializations are asked for together: each question opens Dagster's database anew."""


def told_every(assets: int) -> float:
    """The seconds between two materializations of a table that never stands still, in a lake of so many assets."""
    return max(_LEAST_SECONDS, assets * _DAY_SECONDS / _A_DAY)


class LastTold:
    """The last materializations of assets, asked for when they are needed, with those that will be next.

    Args:
        keys: in the order in which they will be needed.
    """

    def __init__(self, instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]) -> None:
        self._instance, self._keys = instance, list(keys)
        self._known: dict[dg.AssetKey, dg.AssetMaterialization | None] = {}

    def of(self, key: dg.AssetKey) -> dg.AssetMaterialization | None:
        """The last materialization of an asset; None if there is none."""
        if key not in self._known:
            at = self._keys.index(key)
            asked = self._keys[at : at + _AT_ONCE]
            found = self._instance.event_log_storage.get_latest_materialization_events(asked)
            for each in asked:
                event = found.get(each)
                self._known[each] = event.asset_materialization if event is not None else None
        return self._known[key]

    def version(self, key: dg.AssetKey) -> int | None:
        """The version of a table that was told last, by an asset that shows it; None if none was."""
        last = self.of(key)
        found = last.metadata.get(VERSION) if last is not None else None
        return found.value if found is not None and isinstance(found.value, int) else None


class Provenance:
    """The tags by which Dagster knows which rows an asset shows, and of which it was made.

    Args:
        specs: the assets of the lake, also of other pipelines.
    """

    def __init__(self, lake: LakeLayout, specs: Iterable[dg.AssetSpec]) -> None:
        self._lake, self._specs = lake, {spec.key: spec for spec in specs}

    def tags(self, spec: dg.AssetSpec, table: TableReport | None) -> dict[str, str]:
        """The tags of a materialization.

        Args:
            table: None of one that has no commit yet.
        """
        role = role_of(spec)
        own = data_version(table, role) if table is not None else data_version_of(role)
        tags = {} if own is None else {DATA_VERSION_TAG: own}
        try:
            inputs = dict(self._inputs(spec, table))
        except StrandlineError:
            return tags  # what it was made of does not read any more: Dagster goes by the times then
        if spec.code_version is None or own is None:
            return tags
        tags |= {CODE_VERSION_TAG: spec.code_version, DATA_VERSION_IS_USER_PROVIDED_TAG: "true"}
        for key, version in inputs.items():
            name = key.to_user_string()
            tags[f"{INPUT_DATA_VERSION_TAG_PREFIX}/{name}"] = version
            tags[f"{INPUT_EVENT_POINTER_TAG_PREFIX}/{name}"] = NULL_EVENT_POINTER
        return tags

    def _inputs(self, spec: dg.AssetSpec, table: TableReport | None) -> Iterator[tuple[dg.AssetKey, str]]:
        made_of: Mapping[str, int] | None = None
        for dep in spec.deps:
            above = self._specs.get(dep.asset_key)
            role = role_of(above) if above is not None else Role.TOPIC
            if above is None or role is Role.TOPIC:
                yield dep.asset_key, DEFAULT_DATA_VERSION.value
                continue
            constant = data_version_of(role)
            if constant is not None:
                yield dep.asset_key, constant
                continue
            if made_of is None:
                made_of = reflected(self._lake, table.name, table.version).versions if table is not None else {}
            name = table_of(above)
            version = made_of.get(name)
            digest = reader.record_at(self._lake.table(name), version).digest if version is not None else None
            yield dep.asset_key, digest or DEFAULT_DATA_VERSION.value


def with_definition_once(
    metadata: Mapping[str, Any], spec: dg.AssetSpec, last: dg.AssetMaterialization | None
) -> dict[str, Any]:
    """The metadata, with the columns and the lineage of its definition unless that was told already: they are half of
    an event, and Dagster shows those of the definition where an event has none."""
    told = last is not None and (last.tags or {}).get(CODE_VERSION_TAG) == spec.code_version
    return dict(metadata) if told else with_defined(metadata, spec)
