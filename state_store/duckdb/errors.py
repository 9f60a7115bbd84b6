"""DuckDB's errors in the class that they had, where only their text came: to Arrow's reader all are OSErrors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import duckdb

_CLASSES: Final[Mapping[str, type[duckdb.Error]]] = {
    "Binder": duckdb.BinderException,
    "Catalog": duckdb.CatalogException,
    "Conversion": duckdb.ConversionException,
    "IO": duckdb.IOException,
    "INTERNAL": duckdb.InternalException,
    "INTERRUPT": duckdb.InterruptException,
    "Invalid Input": duckdb.InvalidInputException,
    "Not implemented": duckdb.NotImplementedException,
    "Out of Memory": duckdb.OutOfMemoryException,
    "Out of Range": duckdb.OutOfRangeException,
    "Parser": duckdb.ParserException,
    "Serialization": duckdb.SerializationException,
}
"""{DuckDB's type of an error: its class}. The type stands at the begin of the text, before the word Error."""


def error_of(said: str) -> duckdb.Error:
    """Make DuckDB's error of its text, of the class that it had."""
    made: duckdb.Error = _CLASSES.get(said.partition(" Error: ")[0], duckdb.Error)(said)
    return made
