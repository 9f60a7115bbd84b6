"""The graph of a lake's definitions."""

from __future__ import annotations

from pathlib import Path

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lineage import lineage
from strandline.jobs.model.settings import load_settings
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout

DEFINITIONS = """
    CREATE STREAM orders (id BIGINT KEY, n BIGINT) WITH (KAFKA_TOPIC = 'shop');
    CREATE STREAM returns (id BIGINT KEY, n BIGINT) WITH (KAFKA_TOPIC = 'shop');
    CREATE STREAM large (id BIGINT KEY, n BIGINT) WITH (KAFKA_TOPIC = 'large');
    INSERT INTO large SELECT id, n FROM orders WHERE n > 100;
    INSERT INTO large SELECT id, n FROM returns WHERE n > 100;
    CREATE TABLE totals AS SELECT id, SUM(n) AS n FROM large GROUP BY id;
"""


def test_a_topic_of_two_streams_is_one_and_queries_join_their_inputs_to_their_stream(tmp_path: Path) -> None:
    settings = load_settings(lake=tmp_path / "lake")
    assert list(Interpreter(settings).run(DEFINITIONS))
    definitions = list(Catalog(LakeLayout(settings.lake)).definitions())
    found = lineage(definitions, lambda _name: True)
    assert sorted(node.id for node in found.nodes) == [
        "large", "orders", "returns", "topic/large", "topic/shop", "totals",
    ]  # fmt: skip
    assert set(found.edges) == {
        ("topic/shop", "orders"),
        ("topic/shop", "returns"),
        ("topic/large", "large"),
        ("orders", "large"),
        ("returns", "large"),
        ("large", "totals"),
    }
    hidden = lineage(definitions, lambda name: name != "orders")
    assert "topic/shop" in {node.id for node in hidden.nodes}
    assert not [edge for edge in hidden.edges if "orders" in edge]
