"""The whole milliseconds of an instant, in DuckDB's words.

Spark leaves out what is left of one, also before 1970; DuckDB's `epoch_ms` rounds to the nearest, so that the last
moment of a day would be the next day's first, and its division cuts towards zero.
"""

from __future__ import annotations


def since_1970(instant: str) -> str:
    """BIGINT."""
    micros = f"epoch_us({instant})"
    return f"(({micros} - ({micros} % 1000 + 1000) % 1000) // 1000)"


def since_last(milliseconds: int, instant: str) -> str:
    """BIGINT, since the last multiple of so many milliseconds after 1970: 86,400,000 for those of the day."""
    length = milliseconds * 1000
    return f"((epoch_us({instant}) % {length} + {length}) % {length} // 1000)"
