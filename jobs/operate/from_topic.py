"""`strandline rebuild VIEW --from-topic`: a view's rows put back from its changelog topic, its inputs left alone.

    topic ──live records──> rows, digest compared ──> one commit, mode `rebuild`

A topic holds the rows that people see, and not what a refresh goes on from (`__state`, the version vector). So the
table can be read at once, by whatever reads tables, and a run stops at it until `strandline rebuild VIEW` has computed
it from its inputs, which changes no visible row where those are the same.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.ivm.refresh.epoch import FROM_TOPIC
from strandline.jobs.ivm.rules.stored import spec_of, state_type
from strandline.jobs.model.stage_columns import visible_columns
from strandline.jobs.publish.encoder import decoded_rows, live_records
from strandline.jobs.publish.publisher import open_topic, published_view, registry_of
from strandline.jobs.publish.topic import NeverPublished, TopicDiffers, TopicMoved, topic_as_source
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.standby import difference
from strandline.state_store.commits import REBUILD, CommitRecord
from strandline.state_store.delta import heads, reader
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.table import DuckDBTable
from strandline.state_store.errors import CorruptState, VersionGone
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import STATE
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.stage import Stage
    from strandline.jobs.publish.topic import Position
    from strandline.state_store.commits import Head


@dataclass(frozen=True)
class FromTopic:
    """What was put back.

    Attributes:
        of_version: the version of the former table whose rows they are.
        version: of the commit that holds them.
    """

    view: str
    topic: str
    rows: int
    of_version: int
    version: int

    def as_json(self) -> dict[str, Any]:
        """What was done as values of JSON."""
        return asdict(self)


@dataclass(frozen=True)
class FromTopicPlan:
    """The rows of a view that its changelog topic holds, proved by the digest of their version.

    Attributes:
        version: of the former table whose rows they are.
    """

    view: str
    pipeline: str
    topic: str
    version: int
    rows: pa.Table
    record: CommitRecord

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.view}: put {self.rows.num_rows:,} rows of version {self.version} back from the topic "
                f"'{self.topic}', in one commit; pipeline '{self.pipeline}' must not be running",
                "  they add up to the digest of that version",
                sentence(
                    "  then, before a run can go on from its inputs: strandline rebuild {}",
                    Name(self.view, shlex.quote),
                ),
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """The plan as values of JSON."""
        return {
            "name": self.view,
            "pipeline": self.pipeline,
            "topic": self.topic,
            "of_version": self.version,
            "rows": self.rows.num_rows,
        }


def rebuild_from_topic(settings: Settings, name: str) -> FromTopic:
    """Put the rows of a view back from its changelog topic. Planned and executed at once.

    Raises: as of `plan_from_topic` and `execute_from_topic`.
    """
    return execute_from_topic(settings, plan_from_topic(settings, name))


def plan_from_topic(settings: Settings, name: str) -> FromTopicPlan:
    """Read a view's changelog topic, and prove its rows. Nothing is changed by it.

    Raises:
        UnknownName, InvalidQuery: there is no such view, or it has no changelog topic.
        NeverPublished: the topic holds no version, or does not say which.
        TopicMoved: it was written to meanwhile.
        TopicTaken, TopicDiffers: it does not add up to that version.
    """
    lake = LakeLayout(settings.lake)
    view = published_view(Catalog(lake), name)
    source = topic_as_source(view)
    position, rows = _read(source, settings, lake)
    return FromTopicPlan(
        name, view.pipeline, source.topic, position.version, rows, _record(position, source, view.pipeline)
    )


def execute_from_topic(settings: Settings, planned: FromTopicPlan) -> FromTopic:
    """Commit the rows of a plan. A table that cannot be read is set aside.

    Raises:
        UnknownName: the view was dropped meanwhile.
        WriterBusy: the view's pipeline is running.
    """
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    stage = compiled(published_view(catalog, planned.view), catalog).stages[-1]
    with sole_writer(lake, planned.pipeline, f"{planned.pipeline}/{os.getpid()}"):
        made = _stored(settings, lake, stage, planned.rows, planned.record)
    return FromTopic(planned.view, planned.topic, planned.rows.num_rows, planned.version, made.version)


def _read(source: Source, settings: Settings, lake: LakeLayout) -> tuple[Position, pa.Table]:
    """The version that the topic holds, and its rows."""
    topic = open_topic(source, settings, lake)
    try:
        position = topic.position()
        if position is None:
            raise NeverPublished(
                sentence("the topic '{}' does not say which version of '{}' it holds", source.topic, Name(source.name)),
                hint=sentence(
                    "type: strandline publish {}; or strandline rebuild {}",
                    Name(source.name, shlex.quote),
                    Name(source.name, shlex.quote),
                ),
            )
        live = live_records(topic.log, source.topic, source.name, bytes)
        if topic.position() != position:
            raise TopicMoved(f"the topic '{source.topic}' was written to meanwhile", hint="end its publisher")
    finally:
        topic.close()
    rows = decoded_rows(live, source, registry_of(settings, lake))
    found = digest_of_table(rows.to_batches())
    if found != Digest.parse(position.digest):
        raise TopicDiffers(
            sentence(
                "the topic '{}' adds up to {} rows that are not those of version {} of '{}', which had {}",
                source.topic,
                found.count,
                position.version,
                Name(source.name),
                position.rows,
            ),
            where=source.topic,
            hint=sentence("compute them from the view's inputs: strandline rebuild {}", Name(source.name, shlex.quote)),
        )
    return position, rows


def _record(position: Position, source: Source, pipeline: str) -> CommitRecord:
    return CommitRecord(
        epoch=0,
        fingerprint=FROM_TOPIC,
        writer=f"{pipeline}/{os.getpid()}",
        mode=REBUILD,
        reason=f"rebuilt from the topic '{source.topic}': version {position.version}",
        digest=position.digest,
    )


def _stored(settings: Settings, lake: LakeLayout, stage: Stage, rows: pa.Table, record: CommitRecord) -> Head:
    """Commit the rows in the place of all that the table has."""
    engine = engine_of("duckdb")
    state = state_type(stage)
    listed = [engine.name(name) for name, _ in visible_columns(stage)]
    if state is not None:
        listed.append(f"{engine.cast('NULL', state)} AS {STATE}")
    text = f"SELECT {', '.join(listed)} FROM from_topic"
    with DuckDBEngine(*settings.kernel_size) as duckdb_engine, duckdb_engine.connection() as connection:
        connection.register("from_topic", rows)
        table = DuckDBTable(connection, duckdb_engine.kept, lake.table(stage.table), spec_of(stage), "view")
        head = _standing(lake, stage.table)
        if head is None:
            heads.forget(lake, stage.table)
            head = table.ensure(record)
            heads.note(lake, stage.table, head.record.table)
        before = table.read(head.version).text
        following = replace(record, epoch=head.record.epoch + 1, table=head.record.table)
        return table.replace_all(text, difference(stage, stage, before, text), following, head)


def _standing(lake: LakeLayout, table: str) -> Head | None:
    """The table as it stands; None when there is none that can be read."""
    try:
        return reader.current_head(lake.table(table))
    except (CorruptState, VersionGone):
        set_aside(lake, table)
        return None
