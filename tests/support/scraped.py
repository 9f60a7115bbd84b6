"""What a Prometheus would have of a scrape: {metric's name: the label sets of its samples}."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Scrape = Mapping[str, list[tuple[Mapping[str, str], float]]]
"""{name of a sample: its labels and value, in the order of the scrape}"""


def parsed(text: str) -> Scrape:
    """The samples of a scrape in Prometheus' text form."""
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue  # when a counter began: of the client library, for all
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def scrape(port: int) -> Scrape:
    """Scrape the `/metrics` of a port of this machine."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return parsed(answer.read().decode())


def value(found: Scrape, name: str, **labels: str) -> float:
    """The value of the only sample with these labels."""
    [only] = [each for has, each in found[name] if labels.items() <= has.items()]
    return only
