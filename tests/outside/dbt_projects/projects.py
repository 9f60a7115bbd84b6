"""Public dbt projects with incremental models: where they are, and what a run of one needs.

They are no part of the project, and nothing of them is copied into it. Their checkouts lie beside those of the suites
(`tests.outside.sqllogic.suites.PLACE`), the last two at the tags
which fit together:

    git clone https://github.com/dbt-labs/dbt-utils           outside-suites/dbt-labs+dbt-utils
    git clone https://github.com/dbt-labs/segment             outside-suites/dbt-labs+segment
    git clone https://github.com/dbt-labs/snowplow            outside-suites/dbt-labs+snowplow
    git clone https://github.com/fivetran/dbt_amplitude       outside-suites/fivetran+dbt_amplitude
    git clone https://github.com/fivetran/dbt_salesforce      outside-suites/fivetran+dbt_salesforce
    git clone https://github.com/fivetran/dbt_mixpanel        outside-suites/fivetran+dbt_mixpanel        # v0.16.1
    git clone https://github.com/fivetran/dbt_fivetran_utils  outside-suites/fivetran+dbt_fivetran_utils  # v0.4.10

Each is a package with a project for its own tests, which has seeds for its sources: that project is what runs. Only its
seeds are ours where it has next to no rows of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

Row = dict[str, str]

# A package's own text for PostgreSQL is that of DuckDB, whose TIMESTAMP is what a clock shows. Ours is an instant.
_ZONES: Final = """
{% macro duckdb__convert_timezone(in_zone, out_zone, moment) %}
  {{ return(snowplow.postgres__convert_timezone(in_zone, out_zone, moment)) }}
{% endmacro %}
{% macro strandline__convert_timezone(in_zone, out_zone, moment) %}
  {{ moment }} AT TIME ZONE {{ out_zone }}
{% endmacro %}
"""
# It wants names of columns, and packages name BigQuery's partitions by a mapping.
UNPARTITIONED: Final = "{% macro duckdb__get_partitioned_by(relation, temporary) %}{{ return(none) }}{% endmacro %}\n"


@dataclass(frozen=True)
class Project:
    """A package, and the project in it that is run.

    Attributes:
        checkout: the folder of its checkout.
        needs: the checkouts of the packages it asks for.
        schema: the schema in which its sources look for the seeds.
        seeds: makes the rows of seeds by name from those that are there.
        macros: what the user of the project would write.
        settings: of the root project, beside its own; `own` stands for its name.
        variables: dbt's, beside its own.
        refused: models that our adapter refuses, and why.
        undecided: models whose SELECT leaves open which rows they have, and why.
    """

    name: str
    checkout: str
    needs: tuple[str, ...] = ("dbt-labs+dbt-utils",)
    schema: str = "dbt"
    seeds: Mapping[str, Callable[[Sequence[Row]], list[Row]]] = field(default_factory=dict)
    macros: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    variables: Mapping[str, object] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)

    @property
    def checkouts(self) -> tuple[str, ...]:
        """Its own and those it needs."""
        return (self.checkout, *self.needs)

    def missing(self, place: Path) -> list[str]:
        """The checkouts that are absent."""
        return [each for each in self.checkouts if not (place / each / "dbt_project.yml").is_file()]


def _visits(rows: Sequence[Row]) -> list[Row]:
    """Page views of a dozen visitors, some of whom sign in, in sessions of a few views."""
    pick, made = random.Random(1), []
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    for number in range(240):
        moment += timedelta(seconds=pick.choice((5, 40, 900, 2400)), milliseconds=number)
        visitor = pick.randrange(12)
        row = {**pick.choice(rows), "id": f"v{number:04}", "anonymous_id": f"a{visitor}"}
        row["user_id"] = f"u{visitor % 5}" if visitor < 8 and pick.random() < 0.4 else ""
        row |= {
            name: str(moment) for name in ("timestamp", "received_at", "sent_at", "original_timestamp") if name in row
        }
        row["referrer"] = pick.choice(("", "https://www.google.com/search?q=x", "https://t.co/a"))
        made.append({name: row[name] for name in rows[0]})
    return made


_FIVETRAN: Final = ("dbt-labs+dbt-utils", "fivetran+dbt_fivetran_utils")
PROJECTS: Final = {
    each.name: each
    for each in (
        Project("segment", "dbt-labs+segment", seeds={"example_segment_pages": _visits}),
        Project(
            "snowplow",
            "dbt-labs+snowplow",
            macros=_ZONES,
            settings={"dispatch": [{"macro_namespace": "snowplow", "search_order": ["own", "snowplow"]}]},
        ),
        Project("amplitude", "fivetran+dbt_amplitude", needs=_FIVETRAN, schema="amplitude_integration_tests"),
        Project("mixpanel", "fivetran+dbt_mixpanel", needs=_FIVETRAN, schema="mixpanel_integration_tests_3"),
        Project(
            "salesforce",
            "fivetran+dbt_salesforce",
            needs=_FIVETRAN,
            schema="salesforce_integrations_tests_4",
            undecided={"salesforce__opportunity_line_item_enhanced": "ROW_NUMBER() over rows of one created_date"},
            variables={f"salesforce__{each}_history_enabled": True for each in ("contact", "account", "opportunity")},
        ),
    )
}
