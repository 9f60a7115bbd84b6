"""The schema registry of AVRO, JSON_SR and PROTOBUF: Confluent's over HTTP when a URL is set, else files in the lake.

    <lake>/registry/ids/<id>.json                    a schema; its id is in every record written with it
    <lake>/registry/subjects/<subject>/<n>.json      {"id": …}: version n of a subject, e.g. `orders-value`

Each file has a CRC-32 of its bytes among its members (`crc`, the first); files without one are read as they are.

Ids and versions are claimed in order by creating their file, which only one process can do. A process that comes
second reads the first one's file, so equal schemas get one id.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient, SchemaRegistryError

from strandline.state_store.errors import CorruptState
from strandline.state_store.files import create, make_folder
from strandline.state_store.layout import safe_name
from strandline.state_store.paths import files_in
from strandline.state_store.stored_state import EMPTY, intact, sealed

if TYPE_CHECKING:
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath

NOT_FOUND = 404
# A schema's own text cannot hold the mark: within JSON its quotes are escaped.
_CHECKSUM: Final = re.compile(rb'\{"crc": "([0-9a-f]{8})"')


def open_registry(settings: Settings, lake: LakeLayout) -> SchemaRegistryClient:
    """The client of this installation's registry. `mock://…` is one in memory, for tests."""
    registry = settings.registry
    if registry.url is None:
        return LocalRegistry(lake.registry)
    conf: dict[str, Any] = {"url": registry.url}
    if registry.username is not None and registry.password is not None:
        conf["basic.auth.user.info"] = f"{registry.username}:{registry.password.get_secret_value()}"
    return SchemaRegistryClient.new_client(conf)


class LocalRegistry(SchemaRegistryClient):
    """A registry in files, with the methods that confluent-kafka's (de)serializers call."""

    def __init__(self, root: LakePath) -> None:
        # The base class requires a URL; nothing ever calls it. Certificates for it would take 50 ms to load.
        super().__init__({"url": "http://localhost", "ssl.ca.location": False})
        self._ids = root / "ids"
        self._subjects = root / "subjects"
        self._read = lru_cache(maxsize=1000)(self._read_schema)

    def register_schema(self, subject_name: str, schema: Schema, normalize_schemas: bool = False) -> int:
        """Register the schema as a version of the subject, and return its id."""
        identity = self.register_schema_full_response(subject_name, schema, normalize_schemas).schema_id
        assert identity is not None, "the answer is made below, with an id"
        return identity

    def register_schema_full_response(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        try:
            return self.lookup_schema(subject_name, schema)
        except SchemaRegistryError:
            identity = self._claim_id(schema)
        folder = self._subjects / safe_name(subject_name)
        make_folder(folder)
        version = 1
        while not create(_numbered(folder, version), _file_bytes({"id": identity})):
            if _identity(_numbered(folder, version)) == identity:
                break
            version += 1
        return _registered(subject_name, version, identity, schema)

    def get_schema(self, schema_id: int, *_: object, **__: object) -> Schema:
        return self._read(schema_id)

    def lookup_schema(self, subject_name: str, schema: Schema, *_: object, **__: object) -> RegisteredSchema:
        for version in self.get_versions(subject_name):
            known = self.get_version(subject_name, version)
            if _text(known.schema) == _text(schema):
                return known
        raise _missing(f"subject {subject_name} has no such schema")

    def get_versions(self, subject_name: str, *_: object, **__: object) -> list[int]:
        found = files_in(self._subjects / safe_name(subject_name), ".json")
        return sorted(int(path.stem) for path in found if path.stem.isdecimal())

    def get_version(
        self, subject_name: str, version: int | str = "latest", *_: object, **__: object
    ) -> RegisteredSchema:
        versions = self.get_versions(subject_name)
        number = versions[-1] if version == "latest" and versions else version
        if number not in versions:
            raise _missing(f"subject {subject_name} has no version {version}")
        identity = _identity(_numbered(self._subjects / safe_name(subject_name), int(number)))
        return _registered(subject_name, int(number), identity, self.get_schema(identity))

    def get_latest_version(self, subject_name: str, *_: object, **__: object) -> RegisteredSchema:
        return self.get_version(subject_name)

    def _claim_id(self, schema: Schema) -> int:
        make_folder(self._ids)
        identity = 1
        while not create(_numbered(self._ids, identity), _file_bytes(_members(schema))):
            if _text(self.get_schema(identity)) == _text(schema):
                break
            identity += 1
        return identity

    def _read_schema(self, identity: int) -> Schema:
        path = _numbered(self._ids, identity)
        try:
            members = _load(path)
        except FileNotFoundError:
            raise _missing(f"no schema has the id {identity}") from None
        if not isinstance(members.get("schema"), str):
            raise _damaged(path)
        return Schema.from_dict(members)


def _numbered(folder: LakePath, number: int) -> LakePath:
    return folder / f"{number:08d}.json"


def _file_bytes(members: dict[str, Any]) -> bytes:
    return sealed(json.dumps({"crc": EMPTY, **members}).encode(), _CHECKSUM)


def _load(path: LakePath) -> dict[str, Any]:
    """The members of a file.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptState: it is not as it was written.
    """
    data = path.read_bytes()
    if _CHECKSUM.match(data) and not intact(data, _CHECKSUM):
        raise _damaged(path)
    try:
        loaded = json.loads(data)
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(loaded, dict):
        raise _damaged(path)
    loaded.pop("crc", None)
    return loaded


def _identity(path: LakePath) -> int:
    """The id that a version of a subject has. Raises as `_load`."""
    found = _load(path).get("id")
    if not isinstance(found, int):
        raise _damaged(path)
    return found


def _members(schema: Schema) -> dict[str, Any]:
    return {"schemaType": schema.schema_type or "AVRO", "schema": schema.schema_str}


def _text(schema: Schema) -> str:
    """A schema as text: equal schemas give equal text."""
    return json.dumps(_members(schema), sort_keys=True)


def _damaged(path: LakePath) -> CorruptState:
    return CorruptState(
        "a file of the schema registry does not read back as it was written",
        where=str(path),
        hint="restore the file from a backup of the lake",
    )


def _registered(subject: str, version: int, identity: int, schema: Schema) -> RegisteredSchema:
    return RegisteredSchema(subject=subject, version=version, schema_id=identity, guid=None, schema=schema)


def _missing(message: str) -> SchemaRegistryError:
    return SchemaRegistryError(NOT_FOUND, 40403, message)
