"""AVRO and JSON_SR: payloads framed with a schema's id (a zero byte, four bytes of id), the schema in a registry.

A record whose id the registry does not know is broken. A registry that does not answer is no property of the record:
that stops the batch, which is tried again.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka.schema_registry import SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from httpx2 import HTTPError

from jobs.errors import SourceUnavailable
from jobs.ingest.formats import columns, json_text, schemas
from jobs.ingest.formats.json_format import JsonFormat, from_objects
from jobs.ingest.registry import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from confluent_kafka.schema_registry import SchemaRegistryClient

    from jobs.ingest.formats.columns import Errors
    from jobs.sql.model import Column

_FRAME = 5
# Subjects are `<topic>-key` and `<topic>-value`, as ksqlDB names them. The library's newer default asks the registry
# for associations first, which older registries do not have.
_STRATEGY = {"subject.name.strategy.type": "TOPIC"}


class _Framed:
    """What both formats share: the frame, and telling a broken record from a silent registry."""

    def __init__(
        self, wanted: tuple[Column, ...], registry: SchemaRegistryClient, topic: str, *, key: bool, bare: bool
    ) -> None:
        self._columns = wanted
        self._registry = registry
        self._bare = bare
        self._context = SerializationContext(topic, MessageField.KEY if key else MessageField.VALUE)

    def _framed(self, payload: bytes | None, row: int, errors: Errors) -> bool:
        """Whether the payload has a frame whose schema is known; otherwise the error is noted."""
        if payload is None:
            return False
        if len(payload) <= _FRAME or payload[0] != 0:
            errors.setdefault(row, "no schema id before the payload")
            return False
        identity = int.from_bytes(payload[1:_FRAME], "big")
        try:
            with _answering():
                self._registry.get_schema(identity)
        except SchemaRegistryError:
            errors.setdefault(row, f"the registry has no schema with id {identity}")
            return False
        return True


class AvroFormat(_Framed):
    """Avro with the writer's schema; fields and columns meet by name, without regard to case."""

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """One array per column. A null payload gives nulls; a broken one nulls and an entry in `errors`."""
        deserialize = AvroDeserializer(self._registry, conf=_STRATEGY)
        values = [
            self._decode_one(deserialize, payload, row, errors) if self._framed(payload, row, errors) else None
            for row, payload in enumerate(payloads)
        ]
        if self._bare:
            return [columns.build(self._columns[0], values, errors)]
        documents: list[dict[str, Any]] = []
        for row, value in enumerate(values):
            if value is not None and not isinstance(value, dict):
                errors.setdefault(row, "not an Avro record")
            documents.append(value if isinstance(value, dict) else {})
        return from_objects(self._columns, documents, errors)

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of wire values; registers the schema when it is new."""
        value = row[self._columns[0].name] if self._bare else dict(row)
        if value is None:
            return None
        schema = schemas.avro_schema(self._columns, bare=self._bare)
        with _answering():
            serialize = AvroSerializer(self._registry, schema, conf=_STRATEGY)
            payload: bytes | None = serialize(value, self._context)
        return payload

    def _decode_one(self, deserialize: AvroDeserializer, payload: bytes | None, row: int, errors: Errors) -> object:
        try:
            with _answering():
                return deserialize(payload, self._context)
        except SourceUnavailable:
            raise
        # Anything may come out of the parser when the bytes are not what the schema says.
        except Exception as error:
            errors.setdefault(row, f"not readable with its Avro schema: {type(error).__name__}")
            return None


class JsonSchemaFormat(_Framed):
    """JSON behind a frame. The columns' types decide what fits; the registered schema was the writer's business."""

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """One array per column. A null payload gives nulls; a broken one nulls and an entry in `errors`."""
        texts = [
            payload[_FRAME:] if payload is not None and self._framed(payload, row, errors) else None
            for row, payload in enumerate(payloads)
        ]
        return JsonFormat(self._columns, bare=self._bare).decode(texts, errors)

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of wire values; registers the schema when it is new."""
        value = row[self._columns[0].name] if self._bare else dict(row)
        if value is None:
            return None
        conf = {**_STRATEGY, "validate": False}
        schema = schemas.json_schema(self._columns, bare=self._bare)
        with _answering():
            serialize = JSONSerializer(schema, self._registry, conf=conf, json_encode=json_text.dumps)
            payload: bytes | None = serialize(value, self._context)
        return payload


@contextmanager
def _answering() -> Iterator[None]:
    """Turn a registry that cannot be reached into SourceUnavailable; 'not found' passes through."""
    try:
        yield
    except (HTTPError, OSError) as error:
        raise SourceUnavailable(f"the schema registry does not answer: {error}", hint="see registry.url") from error
    except SchemaRegistryError as error:
        if error.http_status_code == NOT_FOUND:
            raise
        raise SourceUnavailable(
            f"the schema registry answered {error.http_status_code}: {error.error_message}"
        ) from error
