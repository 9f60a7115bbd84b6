"""Functions over VARCHAR. Characters are counted, not bytes."""

from __future__ import annotations

from jobs.sql import types as t
from jobs.sql.scalars import Scalar, takes, takes_any_number

_TEXT = takes(t.VARCHAR, t.VARCHAR)


TEXT = (
    Scalar("UCASE", _TEXT, "upper", aliases=("UPPER",)),
    Scalar("LCASE", _TEXT, "lower", aliases=("LOWER",)),
    Scalar("LEN", takes(t.INT, t.VARCHAR), "length", "CAST(length({0}) AS INTEGER)", aliases=("LENGTH",)),
    Scalar("TRIM", _TEXT, "trim"),
    Scalar("LTRIM", _TEXT, "ltrim"),
    Scalar("RTRIM", _TEXT, "rtrim"),
    # Positions count from 1; a negative one from the end.
    Scalar("SUBSTRING", takes(t.VARCHAR, t.VARCHAR, t.INT, t.INT, optional=1), "substring", aliases=("SUBSTR",)),
    Scalar("LEFT", takes(t.VARCHAR, t.VARCHAR, t.INT), "substring({0}, 1, greatest({1}, 0))"),
    Scalar("RIGHT", takes(t.VARCHAR, t.VARCHAR, t.INT), "right({0}, greatest({1}, 0))"),
    # NULL arguments are left out, as in ksqlDB.
    Scalar("CONCAT", takes_any_number(t.VARCHAR, t.VARCHAR, 2), "concat_ws('', {args})", "concat({args})"),
    Scalar("CONCAT_WS", takes_any_number(t.VARCHAR, t.VARCHAR, 3), "concat_ws"),
    Scalar("REPLACE", takes(t.VARCHAR, t.VARCHAR, t.VARCHAR, t.VARCHAR), "replace"),
    Scalar("INSTR", takes(t.INT, t.VARCHAR, t.VARCHAR), "instr({0}, {1})", "CAST(instr({0}, {1}) AS INTEGER)"),
    Scalar("LPAD", takes(t.VARCHAR, t.VARCHAR, t.INT, t.VARCHAR), "lpad"),
    Scalar("RPAD", takes(t.VARCHAR, t.VARCHAR, t.INT, t.VARCHAR), "rpad"),
    Scalar("REVERSE", _TEXT, "reverse"),
    Scalar(
        "SPLIT",
        takes(t.array(t.VARCHAR), t.VARCHAR, t.VARCHAR),
        "split({0}, concat('\\\\Q', {1}, '\\\\E'))",
        "str_split({0}, {1})",
    ),
)
