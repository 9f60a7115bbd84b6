"""The engines of a run, as its settings name them."""

from __future__ import annotations

from typing import Literal

EngineChoice = Literal["auto", "spark", "duckdb"]
"""What computes epochs: `auto` the kernel (DuckDB) what one machine can hold, and Spark's plans the rest; or one of the
two everything."""
