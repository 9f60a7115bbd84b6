"""pandas: read_sql by text, by table, with parameters, in pieces."""

from __future__ import annotations

import sys

import pandas as pd
import sqlalchemy as sa

from tests.campaigns.postgres.checking import check, told


def main() -> None:
    told(pd.__version__)
    engine = sa.create_engine(f"postgresql+psycopg://{sys.argv[1]}")
    check("types", lambda: str(pd.read_sql("SELECT at FROM everything", engine)["at"].dtype)[:10], "datetime64")
    sql = "SELECT visits FROM by_town WHERE town = %(town)s"
    check("parameters", lambda: int(pd.read_sql(sql, engine, params={"town": "Rome"})["visits"][0]), 250)
    check("a table", lambda: pd.read_sql_table("by_town", engine).shape, (4, 3))
    check("by name", lambda: pd.read_sql("by_town", engine).shape, (4, 3))
    pieces = pd.read_sql("SELECT id FROM by_id", engine, chunksize=300)
    check("in pieces", lambda: [len(piece) for piece in pieces], [300, 300, 300, 100])


if __name__ == "__main__":
    main()
