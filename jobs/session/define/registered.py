"""CREATE STREAM and CREATE TABLE without columns of the value: they are taken from the schema registry.

    CREATE STREAM orders WITH (KAFKA_TOPIC = 'orders', VALUE_FORMAT = 'AVRO')
    -> the fields of the newest schema of subject orders-value, or of VALUE_SCHEMA_ID

What was taken once stays, whatever the registry says later: a statement that is applied again means the same. A
statement with another VALUE_SCHEMA_ID means that schema.

Columns by the schemas of a registry: an Avro record or a JSON Schema of an object becomes names and types.

    record orders {id: long, tags: [null, array<string>], price: bytes decimal(10, 2)}
    -> id BIGINT, tags ARRAY<VARCHAR>, price DECIMAL(10, 2)

A type that the language does not have is refused with its column; nothing is left out in silence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.ingest.formats.connect_values import (
    DATES,
    DECIMAL,
    TIMES,
    TIMESTAMPS,
    VARIABLE_DECIMAL,
    Schema,
    schema_of_avro,
)
from strandline.jobs.ingest.formats.format import WRAP_OPTION
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused, SqlError
from strandline.jobs.model.types import MAX_PRECISION, SqlType
from strandline.jobs.query.clauses.select_list import is_reserved
from strandline.jobs.session.define.foreign import declared
from strandline.jobs.session.define.options import SCHEMA_IDS, error, formats_of
from strandline.jobs.sql.syntax import CreateSource, DeclaredColumn, Option

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema as RegisteredSchema
    from confluent_kafka.schema_registry import SchemaRegistryClient

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.ingest.formats.format import Role
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout


REGISTERED: Final = ("AVRO", "JSON_SR", "DEBEZIUM_AVRO")
"""Formats whose schemas say which columns there are."""
_BARE_KEY: Final = "rowkey"
"""A key that is one value and no record has no name in its schema."""
_BARE_VALUE: Final = "rowval"
"""The same of a value: as ksqlDB calls it."""


def with_registered_columns(
    statement: CreateSource, catalog: Catalog, lake: LakeLayout, settings: Settings
) -> CreateSource:
    """The statement with the columns that it leaves to the registry; any other as it is.

    Raises:
        InvalidQuery: it has no columns, and there is no schema to take them from.
        NotSupported: a column has a type or a name that the language does not have.
        OptionRefused: an id of a schema stands beside columns that are declared, or with a format without schemas.
        SourceUnavailable: the registry does not answer.
    """
    try:
        return _filled(statement, catalog, lake, settings)
    except SqlError as refused:
        raise refused.placed(statement.line, statement.column) from None


def _filled(statement: CreateSource, catalog: Catalog, lake: LakeLayout, settings: Settings) -> CreateSource:
    key_format, value_format = formats_of(statement.options)
    ids = {option.name: option for option in statement.options if option.name in SCHEMA_IDS.values()}
    asked = _Asked(statement, ids)
    asked.check(key_format, value_format)
    of_value = any(column.key is None and column.header is None for column in statement.columns)
    if of_value or value_format not in REGISTERED:
        if not statement.columns:
            what = f"'{statement.name}' has no columns, and the format {value_format} has no schemas to take them from"
            raise InvalidQuery(
                what, hint=f"write CREATE {statement.kind.upper()} {statement.name} (column TYPE, …) WITH (…)"
            )
        return statement
    statement = replace(
        statement, options=tuple(each for each in statement.options if each.name not in SCHEMA_IDS.values())
    )
    known = _known(statement, catalog)
    if known is not None and not ids and not statement.or_replace:
        return replace(statement, columns=known)
    from strandline.jobs.ingest.formats.registry import open_registry

    return asked.filled(statement, open_registry(settings, lake), key_format, value_format)


def _known(statement: CreateSource, catalog: Catalog) -> tuple[DeclaredColumn, ...] | None:
    """The columns that the statement got before; None where it is new, or declares another key."""
    found = None if statement.name in catalog.broken else catalog.find(statement.name)
    if not isinstance(found, Source):
        return None
    keys = [(column.name, column.type) for column in statement.columns]
    if keys and keys != [(column.name, column.type) for column in found.columns if column.key]:
        return None
    return declared(found.columns, statement)


class _Asked:
    """What a statement asks of the registry. Args: `ids` are its options that name schemas, by their names."""

    def __init__(self, statement: CreateSource, ids: dict[str, Option]) -> None:
        self._statement = statement
        self._ids = ids

    def check(self, key_format: str, value_format: str) -> None:
        """Check the ids of schemas. Raises OptionRefused."""
        columns = [column for column in self._statement.columns if column.header is None]
        forms: dict[Role, str] = {"key": key_format, "value": value_format}
        for role, form in forms.items():
            option = self._ids.get(SCHEMA_IDS[role])
            if option is None:
                continue
            if form not in REGISTERED:
                what = f"{option.name} is for {', '.join(REGISTERED)}, not {form}"
                raise error(OptionRefused, option, what)
            if any((column.key is not None) == (role == "key") for column in columns):
                what = f"{option.name} says which columns there are, and the statement says it too"
                raise error(OptionRefused, option, what, f"leave out the columns of the {role}, or {option.name}")
            if not option.value.isdigit() or int(option.value) > 2**31 - 1:
                raise error(OptionRefused, option, f"{option.name} is the number of a schema, not '{option.value}'")

    def filled(
        self, statement: CreateSource, client: SchemaRegistryClient, key_format: str, value_format: str
    ) -> CreateSource:
        """The statement with the columns of its schemas. Raises as `with_registered_columns`."""
        values = self._found("value", value_format, client)
        if values is None:
            if statement.columns:
                return statement  # a key alone is a table too
            subject = _subject(statement, "value")
            what = f"'{statement.name}' has no columns, and the registry has no schema '{subject}'"
            raise InvalidQuery(what, hint="declare the columns, or name a schema: VALUE_SCHEMA_ID")
        bare = any(each.name == WRAP_OPTION and each.value.lower() == "false" for each in statement.options)
        if isinstance(values, SqlType):
            if not bare:
                what = f"the schema of the values is {values}, not a record of columns"
                raise NotSupported(what, hint=f"{WRAP_OPTION} = 'false' takes it for the column {_BARE_VALUE}")
            values = {_BARE_VALUE: values}
        elif bare:
            raise OptionRefused(f"{WRAP_OPTION} = 'false', and the schema of the values is a record of columns")
        keys: Found = {}
        if not statement.columns and key_format in REGISTERED:
            keys = self._keys(key_format, value_format, client)
        columns = [Column(name.lower(), sql_type, key=True) for name, sql_type in keys.items()]
        taken = {column.name for column in columns} | {column.name for column in statement.columns}
        columns += [Column(name.lower(), each) for name, each in values.items() if name.lower() not in taken]
        self._check_names(columns)
        return replace(statement, columns=(*statement.columns, *declared(columns, statement)))

    def _keys(self, key_format: str, value_format: str, client: SchemaRegistryClient) -> Found:
        found = self._found("key", key_format, client)
        if found is None:
            return {}
        if isinstance(found, SqlType):
            return {_BARE_KEY: found}
        if len(found) == 1 and value_format != "DEBEZIUM_AVRO":
            (only,) = found
            what = f"the key is a record of one field, '{only}': a key of one column is its bare value"
            raise NotSupported(what, hint="declare the columns, without the key: KEY_FORMAT = 'NONE'")
        return found

    def _found(self, role: Role, form: str, client: SchemaRegistryClient) -> Found | SqlType | None:
        """The columns of the key or the value; None when the registry has no schema of it."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        from strandline.jobs.ingest.formats.confluent import answering

        option = self._ids.get(SCHEMA_IDS[role])
        subject = _subject(self._statement, role)
        try:
            with answering():
                schema = client.get_schema(int(option.value)) if option is not None else _newest(client, subject)
        except SchemaRegistryError as missing:
            if option is not None:
                raise error(OptionRefused, option, f"the registry has no schema with id {option.value}") from missing
            return None
        wanted = "JSON" if form == "JSON_SR" else "AVRO"
        if schema.schema_type not in (wanted, None) or schema.references:
            what = f"a {schema.schema_type} schema" if not schema.references else "a schema that refers to others"
            raise NotSupported(f"'{subject}' is {what}", hint="declare the columns")
        text = schema.schema_str or ""
        if form == "JSON_SR":
            return columns_of_json(text)
        if form == "DEBEZIUM_AVRO":
            return columns_of_envelope(text)
        changes = role == "key" and formats_of(self._statement.options)[1] == "DEBEZIUM_AVRO"
        return columns_of_avro(text, changes=changes)

    def _check_names(self, columns: list[Column]) -> None:
        names = [column.name for column in columns]
        for column in columns:
            if names.count(column.name) > 1 or is_reserved(column.name):
                why = "has a name that is reserved here" if names.count(column.name) == 1 else "is there twice"
                raise NotSupported(
                    f"the registered schema: '{column.name}' {why}", hint="declare the columns that you need"
                )


def _newest(client: SchemaRegistryClient, subject: str) -> RegisteredSchema:
    schema: RegisteredSchema = client.get_latest_version(subject).schema
    return schema


def _subject(statement: CreateSource, role: Role) -> str:
    topic = next((each.value for each in statement.options if each.name == "KAFKA_TOPIC"), statement.name)
    return f"{topic}-{role}"


_PLAIN: Final[Mapping[str, SqlType]] = {
    "boolean": t.BOOLEAN,
    "int": t.INT,
    "long": t.BIGINT,
    "float": t.DOUBLE,
    "double": t.DOUBLE,
    "string": t.VARCHAR,
    "enum": t.VARCHAR,
    "bytes": t.BYTES,
    "fixed": t.BYTES,
}
_LOGICAL: Final[Mapping[str, SqlType]] = {
    "date": t.DATE,
    "time-millis": t.TIME,
    "time-micros": t.TIME,
    "timestamp-millis": t.TIMESTAMP,
    "timestamp-micros": t.TIMESTAMP,
    "local-timestamp-millis": t.TIMESTAMP,
    "local-timestamp-micros": t.TIMESTAMP,
    "uuid": t.VARCHAR,
}
_JSON: Final[Mapping[str, SqlType]] = {
    "boolean": t.BOOLEAN,
    "integer": t.BIGINT,
    "number": t.DOUBLE,
    "string": t.VARCHAR,
}
_JSON_CONNECT: Final[Mapping[str, SqlType]] = {
    "org.apache.kafka.connect.data.Date": t.DATE,
    "org.apache.kafka.connect.data.Time": t.TIME,
    "org.apache.kafka.connect.data.Timestamp": t.TIMESTAMP,
    "int8": t.INT,
    "int16": t.INT,
    "int32": t.INT,
    "bytes": t.BYTES,
}

Found = dict[str, SqlType]
"""{field as the schema names it: its type}"""


class NoColumn(Exception):
    """A part of a schema has no type of ours; the text says what it is."""


def columns_of_avro(text: str, *, changes: bool) -> Found | SqlType:
    """The fields of an Avro record, or the type of a schema that is no record.

    Args:
        changes: numbers whose Connect name says what they count are read by it, as those of change streams are.

    Raises:
        NotSupported: a field has a type that the language does not have.
    """
    schema = schema_of_avro(json.loads(text), {})
    if schema["type"] == "struct":
        return _fields(schema, changes)
    try:
        return _avro_type(schema, changes)
    except NoColumn as error:
        raise _refused(error) from None


def columns_of_envelope(text: str) -> Found:
    """The fields of a row, by the Avro schema of a change stream's values.

    Raises:
        NotSupported: it is no such schema, or a field has a type that the language does not have.
    """
    schema = schema_of_avro(json.loads(text), {})
    row = next((each for each in schema.get("fields") or () if each["field"] == "after"), None)
    if row is None or row["type"] != "struct":
        raise NotSupported("the schema of the values is no Debezium envelope: it has no record 'after'")
    return _fields(row, True)


def columns_of_json(text: str) -> Found | SqlType:
    """The members of a JSON Schema of an object, or the type of one of a bare value.

    Raises:
        NotSupported: a member has a type that the language does not have.
    """
    schema = json.loads(text)
    members = schema.get("properties")
    try:
        if not isinstance(members, Mapping):
            return _json_type(schema)
        found: Found = {}
        # Connect notes the places of members, whose order JSON does not keep.
        for name in sorted(members, key=lambda each: members[each].get("connect.index", 0)):
            found[name] = _in(name, _json_type, members[name])
    except NoColumn as error:
        raise _refused(error) from None
    return found


def _fields(schema: Schema, changes: bool) -> Found:
    try:
        return {each["field"]: _in(each["field"], _avro_type, each, changes) for each in schema["fields"]}
    except NoColumn as error:
        raise _refused(error) from None
    except RecursionError:
        raise NotSupported("the registered schema has a record within itself: declare the columns") from None


def _refused(error: NoColumn) -> NotSupported:
    return NotSupported(
        f"the registered schema: {error}, which the language does not have", hint="declare the columns that you need"
    )


def _in(name: str, read: Callable[..., SqlType], *arguments: object) -> SqlType:
    """The type of a field; what has none is named with it."""
    try:
        return read(*arguments)
    except NoColumn as error:
        raise NoColumn(f"{name}: {error}" if str(error).startswith("it is") else f"{name}.{error}") from None


def _avro_type(schema: Schema, changes: bool) -> SqlType:
    name, kind = schema.get("name"), schema["type"]
    if name == DECIMAL or schema.get("logicalType") == "decimal":
        parameters = schema.get("parameters") or {}
        precision = parameters.get("connect.decimal.precision", schema.get("precision"))
        return _decimal(precision, schema.get("scale", parameters.get("scale", 0)))
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if changes and (name in DATES or name in TIMES or name in TIMESTAMPS):
        return t.DATE if name in DATES else t.TIME if name in TIMES else t.TIMESTAMP
    if changes and name == VARIABLE_DECIMAL:
        return t.VARCHAR  # every digit, whatever the scale
    match kind:
        case "array":
            return t.array(_avro_type(schema["items"], changes))
        case "map":
            return t.map_of(t.VARCHAR, _avro_type(schema["values"], changes))
        case "struct" if schema.get("fields"):
            fields = ((each["field"], _in(each["field"], _avro_type, each, changes)) for each in schema["fields"])
            return t.struct(*((field.lower(), sql_type) for field, sql_type in fields))
    if kind not in _PLAIN:
        raise NoColumn(f"it is {'a union' if kind == 'union' else kind}")
    return _PLAIN[kind]


def _decimal(precision: object, scale: object) -> SqlType:
    """Connect's default precision, 64, stands for one that is not known."""
    digits = int(str(precision)) if precision is not None else MAX_PRECISION
    return t.decimal(min(digits, MAX_PRECISION), int(str(scale)))


def _json_type(schema: Any) -> SqlType:
    """The type of a member that may be null."""
    branches = [each for each in schema.get("oneOf", schema.get("anyOf", ())) if each.get("type") != "null"]
    if len(branches) > 1:
        raise NoColumn("it is one of several types")
    if branches:
        return _json_type(branches[0])
    title = schema.get("title")
    if title == DECIMAL:
        parameters = schema.get("connect.parameters") or {}
        return _decimal(parameters.get("connect.decimal.precision"), parameters.get("scale", 0))
    for said in (title, schema.get("connect.type")):
        if said in _JSON_CONNECT:
            return _JSON_CONNECT[said]
    return _plain_json_type(schema)


def _plain_json_type(schema: Any) -> SqlType:
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    match kind:
        case "array" if isinstance(schema.get("items"), Mapping):
            return t.array(_json_type(schema["items"]))
        case "object" if schema.get("properties"):
            members = schema["properties"]
            return t.struct(*((name.lower(), _in(name, _json_type, members[name])) for name in members))
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return t.map_of(t.VARCHAR, _json_type(schema["additionalProperties"]))
        case str() if kind in _JSON:
            return _JSON[kind]
    raise NoColumn(f"it is {kind or 'of several types'}")
