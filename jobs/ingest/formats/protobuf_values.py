"""Protobuf messages as Python values, in both directions.

    field                                              value
    int32 … double, bool, string, bytes                the value; without a presence of its own, its default
    `optional` field, member of a oneof, message       None where it is missing
    enum                                               the name of the number, or a number that has no name
    google.protobuf.Int64Value, StringValue, …         the wrapped value
    google.protobuf.Timestamp, google.type.Date        a time to the microsecond (further digits are left out), a date
    google.type.TimeOfDay, confluent.type.Decimal      a time of day, an exact number
    repeated, map, any other message                   a list, a dict, a dict of its fields

This is Kafka Connect's mapping, which ksqlDB uses; only a oneof is not a struct of its members there, but its members.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.schema_registry.protobuf import decimal_to_protobuf, protobuf_to_decimal
from google.protobuf.descriptor import FieldDescriptor

from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.model.types import BaseType, SqlType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

Reader = Callable[[Any], object]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_WRAPPED: Final = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")


def _wrapped(message: Any) -> object:
    found: object = message.value
    return found


_SINGLE: Final[dict[str, Reader]] = {
    **{f"google.protobuf.{name}Value": _wrapped for name in _WRAPPED},
    "google.protobuf.Timestamp": lambda m: _EPOCH + timedelta(seconds=m.seconds, microseconds=m.nanos // 1000),
    "google.type.Date": lambda m: date(m.year, m.month, m.day),
    "google.type.TimeOfDay": lambda m: time(m.hours, m.minutes, m.seconds, m.nanos // 1000),
    "confluent.type.Decimal": protobuf_to_decimal,
}
"""The messages that stand for one value, by their full names."""


class MessageReader:
    """Reads the messages of one class into dicts; how each field is read is found once.

    Args:
        wanted: the names of the fields that are read, in lower case; those of messages inside are all read.
    """

    def __init__(self, descriptor: Descriptor, wanted: Iterable[str]) -> None:
        names = frozenset(wanted)
        # By full name: a message may have itself inside.
        self._known: dict[str, list[tuple[str, Reader]]] = {}
        self._own = [(f.name, self._field(f)) for f in descriptor.fields if f.name.lower() in names]

    def __call__(self, message: Message) -> dict[str, object]:
        """The wanted fields. Raises ValueError or OverflowError: a date or time is none."""
        return {name: read(message) for name, read in self._own}

    def _fields(self, message: Message) -> dict[str, object]:
        descriptor = message.DESCRIPTOR
        known = self._known.get(descriptor.full_name)
        if known is None:
            known = [(f.name, self._field(f)) for f in descriptor.fields]
            self._known[descriptor.full_name] = known
        return {name: read(message) for name, read in known}

    def _field(self, field: FieldDescriptor) -> Reader:
        name = field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            item = self._item(field.message_type.fields_by_name["value"])
            # In the order of the keys: a message keeps its map in any.
            return lambda m: {key: item(getattr(m, name)[key]) for key in sorted(getattr(m, name))}
        item = self._item(field)
        if field.is_repeated:
            return lambda m: [item(value) for value in getattr(m, name)]
        if field.has_presence and not field.has_default_value:
            return lambda m: item(getattr(m, name)) if m.HasField(name) else None
        return lambda m: item(getattr(m, name))

    def _item(self, field: FieldDescriptor) -> Reader:
        """The reader of one value of a field."""
        if field.message_type is not None:
            return _SINGLE.get(field.message_type.full_name, self._fields)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        return _same


def _same(value: object) -> object:
    return value


def fill(message: Message, fields: Sequence[tuple[str, SqlType]], row: Mapping[str, Any]) -> None:
    """Set the fields of a message of `protobuf_schema` to wire values (see `encoding`); NULL is left out.

    Raises:
        EncodeFailed: a NULL is an item of an array or a value of a map.
        ValueError, TypeError: a value is not one of its field.
    """
    for name, sql_type in fields:
        value = row[name]
        if value is None:
            continue
        match sql_type.base:
            case BaseType.ARRAY:
                for item in value:
                    _add(getattr(message, name), _given(item, name), sql_type.args[0])
            case BaseType.MAP:
                for key, item in value.items():
                    _put(getattr(message, name), key, _given(item, name), sql_type.args[1])
            case _:
                _set(message, name, value, sql_type)


def _given(item: object, name: str) -> object:
    if item is None:
        raise EncodeFailed(f"'{name}' has a NULL inside: arrays and maps of PROTOBUF have none", hint="use JSON")
    return item


def _add(items: Any, value: object, sql_type: SqlType) -> None:
    if sql_type.base in _FILLED:
        _FILLED[sql_type.base](items.add(), value, sql_type)
    else:
        items.append(value)


def _put(items: Any, key: str, value: object, sql_type: SqlType) -> None:
    if sql_type.base in _FILLED:
        _FILLED[sql_type.base](items[key], value, sql_type)
    else:
        items[key] = value


def _set(message: Message, name: str, value: object, sql_type: SqlType) -> None:
    if message.DESCRIPTOR.fields_by_name[name].message_type is None:
        setattr(message, name, value)
        return
    inner = getattr(message, name)
    inner.SetInParent()  # a message of defaults is there too
    if sql_type.base in _FILLED:
        _FILLED[sql_type.base](inner, value, sql_type)
    else:
        inner.value = value


def _fill_struct(message: Any, value: Mapping[str, Any], sql_type: SqlType) -> None:
    fill(message, sql_type.fields, value)


def _fill_decimal(message: Any, value: Any, sql_type: SqlType) -> None:
    message.value = decimal_to_protobuf(value, sql_type.scale).value
    message.precision, message.scale = sql_type.precision, sql_type.scale


def _fill_date(message: Any, days: int, _: SqlType) -> None:
    found = date.fromordinal(_EPOCH_DAY + days)
    message.year, message.month, message.day = found.year, found.month, found.day


def _fill_time(message: Any, millis: int, _: SqlType) -> None:
    seconds, rest = divmod(millis, 1000)
    message.hours, message.minutes, message.seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    message.nanos = rest * 1_000_000


def _fill_timestamp(message: Any, millis: int, _: SqlType) -> None:
    message.seconds, rest = divmod(millis, 1000)
    message.nanos = rest * 1_000_000


_FILLED: Final[dict[BaseType, Callable[[Any, Any, SqlType], None]]] = {
    BaseType.STRUCT: _fill_struct,
    BaseType.DECIMAL: _fill_decimal,
    BaseType.DATE: _fill_date,
    BaseType.TIME: _fill_time,
    BaseType.TIMESTAMP: _fill_timestamp,
}
"""How the messages of types without a scalar are filled."""
