"""The catalog that the tests of CREATE and INSERT define things in."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of
from tests.unit.session.define.defined import SOURCES


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, SOURCES)
