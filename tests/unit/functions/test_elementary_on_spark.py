"""Elementary functions on Spark: not for items of arrays. `tests/spark/test_functions.py` calls them for others."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from strandline.jobs.functions.python import register_elementary
from strandline.jobs.functions.render import lower
from strandline.jobs.model.errors import EngineRefused
from tests.support.function_cases import elaborated


def test_what_spark_cannot_call_is_refused_before_it_is_asked() -> None:
    text = lower(elaborated("TRANSFORM(ARRAY[d, 1], x => LN(x))").expression, "spark")
    with pytest.raises(EngineRefused, match="items of an array"):
        register_elementary(MagicMock(), text)
