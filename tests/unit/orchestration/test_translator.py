"""One translator decides what every definition looks like in Dagster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.name_map import NameMap
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Definition, InsertQuery, Source, View
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.stage import Plan
from strandline.orchestration.assets import (
    COLUMN_LINEAGE,
    COLUMN_SCHEMA,
    ORIGIN,
    SERVED,
    VISIBLE_LINEAGE,
    Role,
    identifier,
    role_of,
    table_of,
)
from strandline.orchestration.definitions import build
from strandline.orchestration.translator import Translator
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk

CHECKINS = Source(
    name="checkins",
    kind="stream",
    columns=(Column("id", t.BIGINT, key=True), Column("place", t.VARCHAR)),
    topic="checkins_topic",
    key_format="KAFKA",
    value_format="JSON",
    pipeline="packages",
    sql="CREATE STREAM checkins (id BIGINT KEY, place VARCHAR) WITH (KAFKA_TOPIC='checkins_topic');",
    partitions=3,
)
OWNERS = Source(
    name="owners",
    kind="table",
    columns=(Column("id", t.BIGINT, key=True), Column("owner", t.VARCHAR)),
    topic="owners_topic",
    key_format="KAFKA",
    value_format="JSON",
    pipeline="packages",
    sql="CREATE TABLE owners (id BIGINT PRIMARY KEY, owner VARCHAR) WITH (…);",
)
LOCATIONS = View(
    name="locations",
    kind="table",
    columns=(Column("id", t.BIGINT, key=True), Column("seen", t.VARCHAR), Column("at", t.BIGINT)),
    query="SELECT id, LATEST_BY_OFFSET(place) AS seen, MAX(rowtime) AS at FROM checkins GROUP BY id",
    inputs=("checkins",),
    pipeline="packages",
    sql="CREATE TABLE locations AS SELECT …;",
    fingerprint="f1",
    storage="keyed",
    row_key=("id",),
)
DOORS = replace(CHECKINS, name="doors", topic="doors_topic", sql="CREATE STREAM doors (…) WITH (…);")
ROME = View(
    name="rome",
    kind="stream",
    columns=(Column("id", t.BIGINT, key=True),),
    query="SELECT id FROM checkins WHERE place = 'Rome'",
    inputs=("checkins",),
    pipeline="packages",
    sql="CREATE STREAM rome AS SELECT …;",
    fingerprint="f2",
)
FEED = InsertQuery(
    target="checkins",
    number=1,
    query="SELECT id, place FROM doors",
    inputs=("doors",),
    pipeline="packages",
    sql="INSERT INTO checkins SELECT id, place FROM doors;",
    fingerprint="f3",
)
COUNTS = View(
    name="counts",
    kind="table",
    columns=(Column("seen", t.VARCHAR, key=True), Column("n", t.BIGINT)),
    query="SELECT seen, COUNT(*) AS n FROM locations GROUP BY seen",
    inputs=("locations",),
    pipeline="reports",
    sql="CREATE MATERIALIZED VIEW counts AS SELECT …;",
    fingerprint="f4",
    materialized=True,
)
EVERYTHING: tuple[Definition, ...] = (CHECKINS, OWNERS, LOCATIONS, ROME, DOORS, FEED, COUNTS)


@pytest.fixture
def translator(lake: LakeLayout) -> Translator:
    catalog = Catalog(lake)
    for definition in EVERYTHING:
        catalog.add(definition)
    return Translator(EVERYTHING, LakeLayout(Path("/lake")), plan_of=lambda view: plan(view, catalog))


def specs_of(translator: Translator) -> dict[str, dg.AssetSpec]:
    found = (spec for definition in EVERYTHING for spec in translator.specs(definition))
    return {spec.key.to_user_string(): spec for spec in found}


def edges(spec: dg.AssetSpec) -> set[str]:
    return {dep.asset_key.to_user_string() for dep in spec.deps}


def test_every_asset_has_its_key_and_stands_below_what_it_is_made_of(translator: Translator) -> None:
    """The whole graph, written out."""
    assert {key: edges(spec) for key, spec in specs_of(translator).items()} == {
        "topics/checkins_topic.topic": set(),
        "logs/checkins__log": {"topics/checkins_topic.topic", "logs/doors__log"},
        "dead_letters/checkins__dead_letters": {"topics/checkins_topic.topic"},
        "topics/owners_topic.topic": set(),
        "logs/owners__log": {"topics/owners_topic.topic"},
        "tables/owners": {"logs/owners__log"},
        "dead_letters/owners__dead_letters": {"topics/owners_topic.topic"},
        "projections/locations": {"logs/checkins__log"},
        "changelogs/locations__changelog": {"projections/locations"},
        "projections/rome": {"logs/checkins__log"},
        "topics/doors_topic.topic": set(),
        "logs/doors__log": {"topics/doors_topic.topic"},
        "dead_letters/doors__dead_letters": {"topics/doors_topic.topic"},
        "projections/counts": {"projections/locations"},
        "changelogs/counts__changelog": {"projections/counts"},
    }


def test_assets_name_their_tables_in_the_lake(translator: Translator) -> None:
    """A keyed source has an event log of its own; a changelog is its projection's table."""
    tables = {key: table_of(spec) for key, spec in specs_of(translator).items() if role_of(spec) is not Role.TOPIC}
    assert tables == {
        "logs/checkins__log": "checkins",
        "dead_letters/checkins__dead_letters": "checkins__dead_letters",
        "logs/owners__log": "owners__log",
        "tables/owners": "owners",
        "dead_letters/owners__dead_letters": "owners__dead_letters",
        "projections/locations": "locations",
        "changelogs/locations__changelog": "locations",
        "projections/rome": "rome",
        "logs/doors__log": "doors",
        "dead_letters/doors__dead_letters": "doors__dead_letters",
        "projections/counts": "counts",
        "changelogs/counts__changelog": "counts",
    }


def test_group_is_the_pipeline_and_everything_has_an_owner_and_a_kind(translator: Translator) -> None:
    for key, spec in specs_of(translator).items():
        assert spec.group_name == ("reports" if "/counts" in key else "packages")
        assert list(spec.owners) == ["team:strandline"]
        assert spec.kinds


def test_every_asset_has_a_label_of_its_own(translator: Translator) -> None:
    """Dagster's graph shows the last part of a key and nothing else."""
    labels = [spec.key.path[-1] for spec in specs_of(translator).values()]
    assert len(set(labels)) == len(labels)


def test_owners_and_tags_are_the_definitions(translator: Translator) -> None:
    owned = replace(LOCATIONS, options={"OWNER": "team:parcels, ann@example.org", "TAGS": '{"domain": "parcels"}'})
    for spec in translator.specs(owned):
        assert list(spec.owners) == ["team:parcels", "ann@example.org"]
        assert spec.tags["domain"] == "parcels"
        assert role_of(spec) in (Role.PROJECTION, Role.CHANGELOG)


def test_a_topic_is_a_file_until_there_is_a_broker() -> None:
    lake = LakeLayout(Path("/lake"))
    assert Translator(EVERYTHING, lake).specs(CHECKINS)[0].kinds == {"file"}
    assert Translator(EVERYTHING, lake, on_kafka=True).specs(CHECKINS)[0].kinds == {"kafka"}


def test_code_version_moves_with_the_definition_and_with_nothing_else(translator: Translator) -> None:
    """Views bring a fingerprint; sources are hashed; a query that feeds a stream is part of the stream's code."""
    specs = specs_of(translator)
    assert specs["projections/locations"].code_version == "f1"
    assert specs["changelogs/locations__changelog"].code_version == "f1"
    without_feed = specs_of(Translator([d for d in EVERYTHING if d is not FEED], LakeLayout(Path("/elsewhere"))))
    changed = {key for key in specs if specs[key].code_version != without_feed[key].code_version}
    assert changed == {"logs/checkins__log"}


def test_description_shows_the_statements_as_written(translator: Translator) -> None:
    description = specs_of(translator)["logs/checkins__log"].description or ""
    assert f"```sql\n{CHECKINS.sql}\n```" in description
    assert f"```sql\n{FEED.sql}\n```" in description


def test_an_asset_with_the_rows_begins_with_what_the_definition_says_of_itself(translator: Translator) -> None:
    said = {"DESCRIPTION": "Where each package is.", "ORIGIN": "def locations(checkins): ..."}
    for definition in (replace(LOCATIONS, options=said), replace(ROME, options=said), replace(OWNERS, options=said)):
        told = {role_of(spec) for spec in translator.specs(definition) if "package" in (spec.description or "")}
        shown = {role_of(spec) for spec in translator.specs(definition) if ORIGIN in spec.metadata}
        assert told == shown == ({Role.LOG, Role.TABLE} if definition.name == "owners" else {Role.PROJECTION})
    spec = translator.specs(replace(LOCATIONS, options=said))[0]
    assert (spec.description or "").startswith("Where each package is.\n\nProjection `locations`")
    assert spec.metadata[ORIGIN].value == "````\ndef locations(checkins): ...\n````"


def test_columns_carry_our_types_and_say_which_are_the_key(translator: Translator) -> None:
    specs = specs_of(translator)
    schema = specs["projections/locations"].metadata[COLUMN_SCHEMA]
    assert [(c.name, c.type, c.constraints.other) for c in schema.columns] == [
        ("id", "BIGINT", ["key"]),
        ("seen", "VARCHAR", []),
        ("at", "BIGINT", []),
    ]
    log_columns = [c.name for c in specs["logs/checkins__log"].metadata[COLUMN_SCHEMA].columns]
    assert log_columns == ["id", "place", "_partition", "_offset", "_timestamp", "_stream_time", "_headers"]


def test_column_lineage_points_at_assets_and_is_readable_too(translator: Translator) -> None:
    """Dagster's own entry, and the same as a table; a pseudo column is traced to the stored one."""
    metadata = specs_of(translator)["projections/locations"].metadata
    log = dg.AssetKey(["logs", "checkins__log"])
    assert metadata[COLUMN_LINEAGE].value == dg.TableColumnLineage(
        {
            "id": [dg.TableColumnDep(log, "id")],
            "seen": [dg.TableColumnDep(log, "place")],
            "at": [dg.TableColumnDep(log, "_timestamp")],
        }
    )
    assert "| `seen` | `checkins.place` |" in metadata[VISIBLE_LINEAGE].value


def test_tables_and_changelogs_are_traced_to_what_they_copy(translator: Translator) -> None:
    specs = specs_of(translator)
    copied = {"tables/owners": ["logs", "owners__log"], "changelogs/locations__changelog": ["projections", "locations"]}
    for key, path in copied.items():
        lineage = specs[key].metadata[COLUMN_LINEAGE].value
        assert lineage.deps_by_column["id"] == [dg.TableColumnDep(dg.AssetKey(path), "id")]


def test_a_view_that_cannot_be_planned_has_no_lineage_and_its_other_metadata(translator: Translator) -> None:
    broken = replace(LOCATIONS, query="SELECT gone FROM checkins")
    metadata = next(s for s in translator.specs(broken) if s.key.path[0] == "projections").metadata
    assert COLUMN_LINEAGE not in metadata
    assert COLUMN_SCHEMA in metadata


def test_freshness_has_one_verdict_the_check_of_that_name(translator: Translator) -> None:
    """A policy of Dagster's counts from the last materialization: a quiet view would be called stale."""
    assert all(spec.freshness_policy is None for spec in specs_of(translator).values())


def test_a_table_says_where_it_lies_in_a_form_that_the_page_shows(translator: Translator) -> None:
    uri = specs_of(translator)["projections/locations"].metadata["dagster/uri"]
    assert isinstance(uri, str)
    assert uri.endswith("/locations")


@pytest.mark.parametrize("name", ["plain_name", "with-dash", "with dash", "mit_ü", "a.b"])
def test_identifiers_are_valid_and_different_names_stay_different(name: str) -> None:
    made = identifier(name)
    assert made.isascii()
    assert made.replace("_", "").isalnum()
    assert made not in {identifier(other) for other in ("plain", "with_dash", "mit__", "a_b")}


def test_empty_lake_loads_and_says_how_to_begin(settings: Settings) -> None:
    (asset,) = build(settings).get_repository_def().asset_graph.asset_nodes
    assert asset.key == dg.AssetKey("start_here")
    assert "strandline apply" in (asset.description or "")


def test_registered_pipelines_load_as_one_multi_asset_and_one_job_each(settings: Settings, lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    for definition in EVERYTHING:
        catalog.add(definition)
    repository = build(settings).get_repository_def()
    graph = repository.asset_graph
    assert {node.key.to_user_string() for node in graph.asset_nodes if node.is_external} == {
        "topics/checkins_topic.topic",
        "topics/doors_topic.topic",
        "topics/owners_topic.topic",
    }
    jobs = {job.name: job for job in repository.get_all_jobs()}
    assert {"drain_packages", "drain_reports"} <= set(jobs)
    (node,) = (each for each in jobs["drain_packages"].nodes if each.name == "packages__drain")
    assert node.definition.pools == {"pipeline:packages"}
    assert len(jobs["drain_packages"].asset_layer.selected_asset_keys) == 10


def test_quoted_names_load_too(settings: Settings, lake: LakeLayout) -> None:
    """A name in backticks and a file name with a dash are no identifiers of Dagster's."""
    catalog = Catalog(lake)
    catalog.add(replace(CHECKINS, name="Check Ins!", pipeline="my-pipe.v2", topic="a.b-c/d"))
    keys = {node.key.path[0] for node in build(settings).get_repository_def().asset_graph.asset_nodes}
    assert keys == {"topics", "logs", "dead_letters"}


def test_a_broken_definition_leaves_the_other_pipelines_and_is_shown(settings: Settings, lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    for definition in EVERYTHING:
        catalog.add(definition)
    on_disk(lake.catalog / "checkins.json").write_bytes(b"")
    repository = build(settings).get_repository_def()
    shown = {node.key.to_user_string(): node.description or "" for node in repository.asset_graph.asset_nodes}
    assert "strandline apply" in shown["broken/checkins"]
    assert "drain_reports" in {job.name for job in repository.get_all_jobs()}


def test_a_projection_links_to_its_rows_on_the_server() -> None:
    lake = LakeLayout(Path("/lake"))
    linked = specs_of(Translator(EVERYTHING, lake, server_url="https://shop.example/strandline/"))
    links = {key: spec.metadata[SERVED].value for key, spec in linked.items() if SERVED in spec.metadata}
    assert links == {
        "projections/locations": "https://shop.example/strandline/?view=locations",
        "projections/counts": "https://shop.example/strandline/?view=counts",
    }
    assert not [spec for spec in specs_of(Translator(EVERYTHING, lake)).values() if SERVED in spec.metadata]


def test_assets_keep_their_keys_when_a_definition_is_called_otherwise(translator: Translator) -> None:
    name_map = NameMap({"counts": "seen_by_place"})
    lake = LakeLayout(Path("/lake"))
    renamed = specs_of(Translator(EVERYTHING, lake, name_map=name_map, server_url="https://shop.example"))
    before = specs_of(Translator(EVERYTHING, lake, server_url="https://shop.example"))
    assert renamed.keys() == before.keys()
    spec = renamed["projections/counts"]
    assert str(spec.description).startswith("`counts` is called `seen_by_place` now.\n\nProjection `counts`")
    assert spec.metadata[SERVED].value == "https://shop.example/?view=seen_by_place"
    assert spec.code_version == before["projections/counts"].code_version
    assert {key for key in renamed if renamed[key] != before[key]} == {
        "projections/counts",
        "changelogs/counts__changelog",
    }


def test_a_view_is_planned_once_however_often_its_assets_are_asked_for(lake: LakeLayout) -> None:
    planned: list[str] = []

    def plan_of(view: View) -> Plan:
        planned.append(view.name)
        raise SqlError("planted")

    translator = Translator(EVERYTHING, lake, plan_of=plan_of)
    assert translator.specs(LOCATIONS) == translator.specs(LOCATIONS)
    assert planned == [LOCATIONS.name]
    assert translator.specs(replace(LOCATIONS, options={"OWNER": "ops@example.com"})) is not translator.specs(LOCATIONS)


@pytest.mark.parametrize(
    ("option", "kind", "begun"),
    [
        ("DELTA", "deltalake", {"START_VERSION": "3"}),
        ("ICEBERG", "iceberg", {"START_VERSION": "7"}),
        ("PARQUET", "parquet", {}),
    ],
)
def test_a_source_over_a_table_of_others_begins_with_that_table(option: str, kind: str, begun: dict[str, str]) -> None:
    place = {"DELTA": "/there", "ICEBERG": "prod.web.clicks", "PARQUET": "s3://landing/clicks"}[option]
    source = replace(CHECKINS, topic="x", key_format=option, value_format=option, options={option: place, **begun})
    spec = Translator([source], LakeLayout(Path("/lake"))).specs(source)[0]
    assert spec.kinds == {kind}
    assert spec.metadata["dagster/uri"] == place
    assert spec.metadata.get("start_version") == begun.get("START_VERSION")
    assert f"`{place}`, which others write" in str(spec.description)
