"""The catalog that statements are planned over."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of
from tests.unit.ivm.plan.planned import SOURCES


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, SOURCES)
