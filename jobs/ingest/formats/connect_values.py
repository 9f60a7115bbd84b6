"""Values as Kafka Connect writes them, told by their logical type, or by an option of the source in its place.

    column           written as                                 told by
    DECIMAL          "AZA=", two's complement without scale     the type's scale, else DECIMAL_HANDLING = 'precise'
                     "4.00"; also of an INT, BIGINT, DOUBLE     type string, else DECIMAL_HANDLING = 'string'
                     {"scale": 2, "value": "AZA="}              itself
    TIMESTAMP, TIME  1700000000000                              the type's name, else TIME_PRECISION
    DATE             19700, days                                itself
    ARRAY MAP STRUCT a list or object; JSON text                itself

A number whose unit is not known, or text that may be either of two numbers, is refused: a guess would be a wrong row
that nobody notices. Everything else is left as it is, for `formats.coerce`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import orjson

from strandline.jobs.ingest.formats.coerce import FIRST_MICROSECOND, LAST_MICROSECOND, Misfit, find, loads_exact
from strandline.jobs.model.types import BaseType, SqlType

Schema = Mapping[str, Any]
"""A schema as Connect's JsonConverter writes it: type, name, parameters; fields, items or values."""

DECIMAL_HANDLING: Final = "DECIMAL_HANDLING"
TIME_PRECISION: Final = "TIME_PRECISION"
DECIMALS: Final = ("precise", "string")
PER_SECOND: Final = {"milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
DATES: Final = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
TIMES: Final = {
    "io.debezium.time.Time": 1_000,
    "io.debezium.time.MicroTime": 1_000_000,
    "io.debezium.time.NanoTime": 1_000_000_000,
    "org.apache.kafka.connect.data.Time": 1_000,
}
TIMESTAMPS: Final = {
    "io.debezium.time.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
}
_NUMERIC: Final = (BaseType.DECIMAL, BaseType.DOUBLE, BaseType.INT, BaseType.BIGINT, BaseType.VARCHAR)
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
"""Values of a DOUBLE that Connect's converter writes as text."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_BYTES: Final = 64
"""Of a number: more digits than any type of ours has."""
_EXACT: Final = Context(prec=200)


@dataclass(frozen=True)
class Reading:
    """How values are read whose type is not in the message, as the source's options say; None: they do not say.

    Attributes:
        decimals: one of `DECIMALS`.
        per_second: the unit of times that are numbers, see `PER_SECOND`.
    """

    decimals: str | None = None
    per_second: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Reading:
        """What the options of a source say."""
        precision = options.get(TIME_PRECISION)
        return cls(options.get(DECIMAL_HANDLING), PER_SECOND[precision] if precision is not None else None)

    def value(self, value: Any, wanted: SqlType, schema: Schema | None) -> Any:
        """The value as `formats.coerce` takes it.

        Args:
            schema: of the value; None where the message has none.

        Raises:
            Misfit: it cannot be told what the value is.
        """
        base = wanted.base
        if value is None or base in (BaseType.BOOLEAN, BaseType.BYTES):
            return value
        if base in _NUMERIC:
            return self._number(value, wanted, schema)
        if base in (BaseType.TIMESTAMP, BaseType.TIME):
            return self._time(value, wanted, schema)
        if base is BaseType.DATE:
            return _date(value, schema)
        return self._nested(value, wanted, schema)

    def _number(self, value: Any, wanted: SqlType, schema: Schema | None) -> Any:
        name = schema.get("name") if schema is not None else None
        if isinstance(value, dict) and (name == VARIABLE_DECIMAL or _is_variable(value, wanted)):
            return _unscaled(value.get("value"), value.get("scale"))
        if not isinstance(value, str | bytes):
            return value
        if name == DECIMAL and schema is not None:
            return _unscaled(value, (schema.get("parameters") or {}).get("scale"))
        if wanted.base is BaseType.VARCHAR or (schema is not None and schema.get("type") == "string"):
            return value
        if wanted.base is BaseType.DOUBLE and value in _NO_NUMBERS:
            return float(value)
        if self.decimals is None:
            raise Misfit(
                f"text may be digits or bytes of a number: say {DECIMAL_HANDLING} = 'precise' or 'string', as the "
                "connector's decimal.handling.mode does, or have the converter write schemas"
            )
        if self.decimals == "string":
            return value
        if wanted.base is not BaseType.DECIMAL:
            raise Misfit(
                f"text is the bytes of a number whose scale is not known: declare the column as DECIMAL, not {wanted}, "
                "or have the converter write schemas"
            )
        return _unscaled(value, wanted.scale)

    def _time(self, value: Any, wanted: SqlType, schema: Schema | None) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        known = TIMESTAMPS if wanted.base is BaseType.TIMESTAMP else TIMES
        name = schema.get("name") if schema is not None else None
        if name is not None and name not in known:
            raise Misfit(f"a number of type {name} is not a {wanted}")
        unit = known[name] if name is not None else self.per_second
        if unit is None:
            raise Misfit(
                f"the unit of a number is not known: say {TIME_PRECISION} = 'milliseconds', 'microseconds' or "
                "'nanoseconds', or have the converter write schemas"
            )
        if wanted.base is BaseType.TIME:
            return value * 1_000 // unit
        moment = value * 1_000_000 // unit
        if not FIRST_MICROSECOND <= moment <= LAST_MICROSECOND:
            raise Misfit(f"number out of the range of {wanted}")
        return _EPOCH + timedelta(microseconds=moment)

    def _nested(self, value: Any, wanted: SqlType, schema: Schema | None) -> Any:
        if isinstance(value, str):  # json and jsonb are columns of text
            value, schema = _parsed(value, wanted), None
        inner = schema or {}
        if wanted.base is BaseType.ARRAY and isinstance(value, list):
            return [self.value(each, wanted.args[0], inner.get("items")) for each in value]
        if not isinstance(value, dict):
            return value
        if wanted.base is BaseType.MAP:
            return {key: self.value(each, wanted.args[1], inner.get("values")) for key, each in value.items()}
        schemas = {field.get("field"): field for field in inner.get("fields") or ()}
        read = dict(value)
        for name, field_type in wanted.fields:
            found = find(name, value)
            if found is not None:
                read[found] = self.value(value[found], field_type, schemas.get(found))
        return read


def _is_variable(value: Mapping[str, object], wanted: SqlType) -> bool:
    return wanted.base is not BaseType.VARCHAR and value.keys() == {"scale", "value"}


def _unscaled(value: object, scale: object) -> Decimal:
    """The number that the bytes of Java's BigInteger and a scale are. Raises Misfit: they are not."""
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else value
        if not isinstance(data, bytes) or not 0 < len(data) <= _MOST_BYTES or not isinstance(scale, int | str):
            raise Misfit("not the bytes of a number and its scale")
        return _EXACT.scaleb(Decimal(int.from_bytes(data, "big", signed=True)), -int(scale))
    except (ValueError, ArithmeticError) as error:
        raise error if isinstance(error, Misfit) else Misfit("text is not base64 of a number") from None


def _date(value: Any, schema: Schema | None) -> Any:
    name = schema.get("name") if schema is not None else None
    if isinstance(value, int) and name is not None and name not in DATES:
        raise Misfit(f"a number of type {name} is not a DATE")
    # IsoDate writes its zone, UTC.
    return value.removesuffix("Z") if isinstance(value, str) else value


def _parsed(text: str, wanted: SqlType) -> Any:
    try:
        orjson.loads(text)
        return loads_exact(text.encode())
    except ValueError:
        raise Misfit(f"text is not JSON of a {wanted.base}") from None


# Schemas: of a type of ours, and of an Avro schema that Connect's converter registered.

_TYPES: Final[Mapping[BaseType, Mapping[str, str]]] = {
    BaseType.BOOLEAN: {"type": "boolean"},
    BaseType.INT: {"type": "int32"},
    BaseType.BIGINT: {"type": "int64"},
    BaseType.DOUBLE: {"type": "double"},
    BaseType.DECIMAL: {"type": "double"},
    BaseType.VARCHAR: {"type": "string"},
    BaseType.BYTES: {"type": "bytes"},
    BaseType.DATE: {"type": "int32", "name": "io.debezium.time.Date"},
    BaseType.TIME: {"type": "int32", "name": "io.debezium.time.Time"},
    BaseType.TIMESTAMP: {"type": "int64", "name": "io.debezium.time.Timestamp"},
}


def connect_schema(sql_type: SqlType) -> dict[str, Any]:
    """The schema of wire values of a type (see `coerce.wire_value`)."""
    match sql_type.base:
        case BaseType.ARRAY:
            return {"type": "array", "items": connect_schema(sql_type.args[0])}
        case BaseType.MAP:
            return {"type": "map", "values": connect_schema(sql_type.args[1])}
        case BaseType.STRUCT:
            fields = [{**connect_schema(inner), "field": name} for name, inner in sql_type.fields]
            return {"type": "struct", "fields": fields}
        case _:
            return dict(_TYPES[sql_type.base])


def schema_of_avro(avro: Any, named: dict[str, Schema]) -> Schema:
    """The Connect schema that an Avro schema stands for.

    Args:
        named: {full name: record that has been seen}, to which those that it meets are added.
    """
    if isinstance(avro, list):
        branches = [schema_of_avro(each, named) for each in avro if each != "null"]
        return branches[0] if len(branches) == 1 else {"type": "union"}
    if isinstance(avro, str):
        return named.get(avro, {"type": avro})
    kept = ("logicalType", "precision", "scale")
    found = {"type": avro["type"], "name": avro.get("connect.name"), "parameters": avro.get("connect.parameters")}
    found |= {name: avro[name] for name in kept if name in avro}
    match avro["type"]:
        case "record":
            found["type"], found["fields"] = "struct", []
            # Before its fields: one of them may be of the same type.
            named[avro["name"]] = named[f"{avro.get('namespace', '')}.{avro['name']}"] = found
            for each in avro["fields"]:
                found["fields"].append({**schema_of_avro(each["type"], named), "field": each["name"]})
        case "array":
            found["items"] = schema_of_avro(avro["items"], named)
        case "map":
            found["values"] = schema_of_avro(avro["values"], named)
        case dict() | list():
            return {**schema_of_avro(avro["type"], named), **{k: v for k, v in found.items() if k != "type" and v}}
    return found
