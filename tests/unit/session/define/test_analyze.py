"""A name that is taken: the same definition again, another one, and instead of one."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import NameTaken, NotSupported
from tests.support.catalog_from_sql import run


def test_another_definition_of_a_taken_name_is_refused(catalog: Catalog) -> None:
    with pytest.raises(NameTaken, match="'readings'"):
        run("CREATE STREAM readings (a INT)", catalog)
    run("CREATE STREAM v AS SELECT sensor, n FROM readings", catalog)
    with pytest.raises(NameTaken, match="'v'"):
        run("CREATE STREAM v AS SELECT sensor, area FROM readings", catalog)


def test_if_not_exists_takes_what_is_there(catalog: Catalog) -> None:
    there = catalog.get("readings")
    assert run("CREATE STREAM IF NOT EXISTS readings (a INT)", catalog) is there


def test_a_view_whose_rows_are_only_added_cannot_be_replaced(catalog: Catalog) -> None:
    run("CREATE STREAM v AS SELECT sensor, n FROM readings", catalog)
    with pytest.raises(NotSupported, match="only ever added") as caught:
        run("CREATE OR REPLACE STREAM v AS SELECT sensor, area FROM readings", catalog)
    assert "DROP it" in str(caught.value.hint)


def test_a_view_cannot_become_a_source(catalog: Catalog) -> None:
    run("CREATE TABLE v AS SELECT sensor, COUNT(*) AS n FROM readings GROUP BY sensor", catalog)
    with pytest.raises(NotSupported, match="cannot become a source"):
        run("CREATE OR REPLACE STREAM v (a INT) WITH (KAFKA_TOPIC = 't')", catalog)
