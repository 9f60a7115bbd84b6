"""The registry in files: what a Confluent registry promises, for many processes at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from strandline.jobs.ingest.formats.registry import LocalRegistry, open_registry
from strandline.jobs.model.settings import RegistrySettings, Settings
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk
from tests.support.warm_process import warm_processes

SUBJECT = "orders-value"


def avro(name: str) -> Schema:
    return Schema(json.dumps({"type": "record", "name": name, "fields": []}), "AVRO")


@pytest.fixture
def registry(lake: LakeLayout) -> LocalRegistry:
    return LocalRegistry(lake.registry)


def test_the_same_schema_keeps_its_id(registry: LocalRegistry, lake: LakeLayout) -> None:
    """Also in another subject, and for another process."""
    first = registry.register_schema(SUBJECT, avro("a"))
    assert registry.register_schema(SUBJECT, avro("a")) == first
    assert LocalRegistry(lake.registry).register_schema("orders-key", avro("a")) == first
    assert registry.register_schema(SUBJECT, avro("b")) != first


def test_versions_count_up_within_a_subject(registry: LocalRegistry) -> None:
    for name in ("a", "b", "a", "c"):
        registry.register_schema(SUBJECT, avro(name))
    assert registry.get_versions(SUBJECT) == [1, 2, 3]
    assert registry.get_latest_version(SUBJECT).schema.schema_str == avro("c").schema_str
    assert registry.get_version(SUBJECT, 2).schema.schema_str == avro("b").schema_str
    assert registry.lookup_schema(SUBJECT, avro("b")).version == 2


def test_an_id_gives_its_schema_back(registry: LocalRegistry) -> None:
    identity = registry.register_schema(SUBJECT, Schema('{"type": "object"}', "JSON"))
    found = registry.get_schema(identity)
    assert (found.schema_str, found.schema_type) == ('{"type": "object"}', "JSON")


def test_the_kind_is_part_of_a_schema(registry: LocalRegistry) -> None:
    text = '{"type": "string"}'
    assert registry.register_schema(SUBJECT, Schema(text, "AVRO")) != registry.register_schema(
        SUBJECT, Schema(text, "JSON")
    )


def test_what_is_unknown_is_not_found(registry: LocalRegistry) -> None:
    """404, as a registry answers: the decoder tells a broken record from a silent registry by it."""
    asks = (
        lambda: registry.get_schema(1),
        lambda: registry.get_version(SUBJECT, 1),
        lambda: registry.get_latest_version(SUBJECT),
        lambda: registry.lookup_schema(SUBJECT, avro("a")),
    )
    for ask in asks:
        with pytest.raises(SchemaRegistryError) as caught:
            ask()
        assert caught.value.http_status_code == 404


def _register(root: Path, results: Path, worker: int) -> None:
    registry = LocalRegistry(root)
    ids = {f"s{n}": registry.register_schema(SUBJECT, avro(f"s{n}")) for n in range(20)}
    own = registry.register_schema(f"w{worker}-value", avro(f"own{worker}"))
    results.joinpath(f"{worker}.json").write_text(json.dumps({**ids, f"own{worker}": own}))


def test_many_processes_agree_on_ids(lake: LakeLayout, tmp_path: Path) -> None:
    """4 processes register the same 20 schemas at once: one id each, no id twice, versions without a gap."""
    context = warm_processes()
    workers = [context.Process(target=_register, args=(lake.registry, tmp_path, n)) for n in range(4)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
        assert process.exitcode == 0
    seen = [json.loads(tmp_path.joinpath(f"{n}.json").read_text()) for n in range(4)]
    merged = {name: identity for ids in seen for name, identity in ids.items()}
    assert all(merged[name] == identity for ids in seen for name, identity in ids.items())
    assert sorted(merged.values()) == list(range(1, 25))
    registry = LocalRegistry(lake.registry)
    assert registry.get_versions(SUBJECT) == list(range(1, 21))
    for name, identity in merged.items():
        assert registry.get_schema(identity).schema_str == avro(name).schema_str


@pytest.mark.parametrize("kind", ["ids", "subjects"])
def test_a_flipped_bit_of_a_file_gives_a_typed_error_or_the_same_answer(lake: LakeLayout, kind: str) -> None:
    LocalRegistry(lake.registry).register_schema(SUBJECT, avro("a"))
    (file,) = on_disk(lake.registry / kind).rglob("*.json")
    data, found = file.read_bytes(), 0
    for bit in range(len(data) * 8):
        file.write_bytes(bytes(byte ^ (1 << bit % 8 if at == bit // 8 else 0) for at, byte in enumerate(data)))
        try:
            assert LocalRegistry(lake.registry).get_latest_version(SUBJECT).schema.schema_str == avro("a").schema_str
        except CorruptState:
            found += 1
    assert found > len(data) * 4


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schemaType": "AVRO"'])
def test_a_file_that_holds_no_schema_is_a_typed_error(registry: LocalRegistry, lake: LakeLayout, text: str) -> None:
    registry.register_schema(SUBJECT, avro("a"))
    (file,) = on_disk(lake.registry).glob("ids/*.json")
    file.write_text(text)
    with pytest.raises(CorruptState, match="schema registry"):
        LocalRegistry(lake.registry).get_schema(1)


def test_files_without_a_checksum_are_read_and_known_again(lake: LakeLayout) -> None:
    for folder, text in (
        ("ids", json.dumps({"schemaType": "AVRO", "schema": avro("a").schema_str})),
        (f"subjects/{SUBJECT}", '{"id": 1}'),
    ):
        on_disk(lake.registry / folder).mkdir(parents=True)
        on_disk(lake.registry / folder / f"{1:08d}.json").write_text(text)
    assert LocalRegistry(lake.registry).register_schema(SUBJECT, avro("a")) == 1
    assert LocalRegistry(lake.registry).register_schema("other-value", avro("a")) == 1


def test_without_a_url_schemas_are_kept_in_the_lake(settings: Settings, lake: LakeLayout) -> None:
    opened = open_registry(settings, lake)
    opened.register_schema(SUBJECT, avro("a"))
    assert list(on_disk(lake.registry).glob("ids/*.json"))


def test_a_url_is_asked_with_the_credentials_of_the_settings(settings: Settings, lake: LakeLayout) -> None:
    section = RegistrySettings.model_validate({"url": "http://registry:8081", "username": "u", "password": "p"})
    opened = open_registry(settings.model_copy(update={"registry": section}), lake)
    assert type(opened) is SchemaRegistryClient
    config: Callable[[], dict[str, object]] = opened.config
    assert config()["url"] == "http://registry:8081"
    assert config()["basic.auth.user.info"] == "u:p"
