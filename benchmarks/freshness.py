"""Freshness: from the moment at which an event is due at its producer to the moment at which a pull shows it.

    python -m benchmarks.freshness [--seconds 180] [--rates 1000 10000] [--tries 20] [--out FOLDER]

A real Kafka broker, five views (`benchmarks.clicks.five_views`), the pipeline as `strandline run … --mode continuous`,
the producer open-loop in a process of its own. Visible is an event when all five views have it. When that was is read
off the tables afterwards (`benchmarks.clicks.visibility`), so that nothing but the pipeline works while it is measured.

Printed for each rate: p50, p99 and the largest latency, what of it passed before the event log had the event (producer,
broker, trigger, source, ingest) and after (refresh), and processor seconds of the pipeline for each second. Before the
rates: single events after a second of rest, until a pull of the joins has answered with them. `--out` gets a chart
(freshness.svg) and its figures (freshness.csv).
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import orjson

from benchmarks.clicks.click_producer import TICKS, connected, produce
from benchmarks.clicks.five_views import PAGES, STATEMENTS, VIEWS, VISITORS, country, section
from benchmarks.clicks.visibility import Clicks, Visibility
from benchmarks.measuring.process_tree import ProcessorWatch
from benchmarks.measuring.time_chart import Panel, svg
from infra.kafka.broker import KafkaBroker
from strandline.jobs.model.settings import KafkaSettings, Settings, load_settings
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout

PIPELINE: Final = "five_views"
_JOINS: Final = ("per_country", "per_section")
_WARM_SECONDS: Final = 15
"""The first micro-batches start Python workers and compile: they are not the life of a pipeline."""
_WARM_RATE: Final = 1_000
_IDLE_SECONDS: Final = 10.0
_PATIENCE: Final = 180.0
# Between looks at the five newest log entries while a single event is on its way: 0.3 ms of work each.
_LOOK_SECONDS: Final = 0.005
# After a load, whose times are read off later.
_SETTLE_SECONDS: Final = 0.25


@dataclass(frozen=True)
class Phase:
    """A part of the run in which clicks were due at a steady rate; seconds since the epoch."""

    rate: int
    begin: float
    end: float


class Bench:
    """A pipeline at work and its producer."""

    def __init__(self, settings: Settings) -> None:
        assert settings.kafka.bootstrap_servers is not None
        self._servers = settings.kafka.bootstrap_servers
        self._producer = connected(self._servers)
        self._settings = settings
        self.visibility = Visibility(LakeLayout(settings.lake))
        self.sent = 0

    def load(self, rate: int, seconds: float) -> Phase:
        """Clicks at that rate, until all views have them."""
        begin = time.time()
        command = [sys.executable, "-m", "benchmarks.clicks.click_producer", self._servers]
        subprocess.run([*command, str(self.sent), str(rate), str(seconds)], check=True)
        end = time.time()
        self.sent += round(rate * seconds)
        self.settle(_SETTLE_SECONDS)
        return Phase(rate, begin, end)

    def rest(self, seconds: float) -> Phase:
        """No clicks."""
        begin = time.time()
        time.sleep(seconds)
        return Phase(0, begin, time.time())

    def single(self) -> tuple[float, float]:
        """Seconds until one click, after a rest, is in all views, and until a pull of both joins shows it."""
        # Not whole seconds: whatever happens once a second must not happen at the same moment of each try.
        time.sleep(1 + self.sent % 97 / 97)
        began = time.time()
        produce(self._producer, self.sent, TICKS, 1 / TICKS)
        self.sent += 1
        self.settle(_LOOK_SECONDS)
        visible = time.time() - began
        interpreter = Interpreter(self._settings, PIPELINE)
        for view in _JOINS:
            (found,) = interpreter.run(f"SELECT MAX(newest) AS newest FROM {view};")
            assert isinstance(found, Rows)
            assert next(iter(found.rows))[0] == self.sent - 1, f"'{view}' does not show the click"
        return visible, time.time() - began

    def settle(self, look: float) -> None:
        """Wait until all views have all clicks, looking every `look` seconds. Raises TimeoutError."""
        deadline = time.monotonic() + _PATIENCE
        while any(self.visibility.reflected(view) < self.sent for view in VIEWS):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all of {self.sent:,} clicks are in all views after {_PATIENCE:.0f} s")
            time.sleep(look)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark, print the tables, write the chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0, help="of each rate")
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 10_000], help="clicks a second")
    parser.add_argument("--tries", type=int, default=20, help="single events")
    parser.add_argument("--out", type=Path, help="folder of the chart and its figures")
    said = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="strandline-freshness-") as folder, _broker(Path(folder)) as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        settings = load_settings(lake=Path(folder) / "lake", kafka=kafka)
        list(Interpreter(settings, PIPELINE).run(STATEMENTS))
        broker.produce("visitors", _keyed("country", [country(n) for n in range(VISITORS)]))
        broker.produce("pages", _keyed("section", [section(n) for n in range(PAGES)]))
        bench = Bench(settings)
        with _pipeline(settings, Path(folder) / "run.log") as process, ProcessorWatch(process.pid) as watch:
            bench.load(_WARM_RATE, _WARM_SECONDS)
            idle = bench.rest(_IDLE_SECONDS)
            singles = [bench.single() for _ in range(said.tries)]
            phases = [bench.load(rate, said.seconds) for rate in said.rates]
        clicks = bench.visibility.clicks(VIEWS)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"idle: {watch.share(idle.begin, idle.end) * 1000:.0f} ms of processor time a second")
    _report_singles(singles)
    _report(clicks, phases, watch)
    if said.out is not None:
        _draw(clicks, phases, watch, said.out)
    return 0


@contextmanager
def _broker(folder: Path) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(folder / "kafka")
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@contextmanager
def _pipeline(settings: Settings, said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`strandline run` as a user starts it; the end of what it said is shown when the benchmark fails."""
    servers = str(settings.kafka.bootstrap_servers)
    places = {"STRANDLINE_LAKE": str(settings.lake), "STRANDLINE_KAFKA__BOOTSTRAP_SERVERS": servers}
    command = [str(Path(sys.executable).with_name("strandline")), "run", PIPELINE, "--mode", "continuous"]
    with said.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | places, stdout=output, stderr=output)
    try:
        yield process
    except BaseException:
        print(f"the pipeline's exit code: {process.poll()}; it said\n{said.read_text()[-2_000:]}", file=sys.stderr)
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _keyed(column: str, values: Sequence[str]) -> Iterator[tuple[bytes, bytes]]:
    for number, each in enumerate(values):
        yield orjson.dumps(number), orjson.dumps({column: each})


def _report_singles(singles: Sequence[tuple[float, float]]) -> None:
    if not singles:
        return
    print(f"single events, {len(singles)} tries, seconds until")
    for name, column in zip(("in all views", "shown by a pull"), zip(*singles, strict=True), strict=True):
        print(f"  {name:16} p50 {np.median(column):.2f}   largest {max(column):.2f}")


def _report(clicks: Clicks, phases: Sequence[Phase], watch: ProcessorWatch) -> None:
    print("clicks/s   p50 s   p99 s   largest   taken in p50   refreshed p50   processor s/s   clicks")
    for phase in phases:
        part = clicks.between(phase.begin, phase.end)
        latency = part.visible - part.due
        p50, p99, taken = (np.quantile(latency, 0.5), np.quantile(latency, 0.99), np.median(part.taken - part.due))
        spent = watch.share(phase.begin, phase.end)
        refreshed = np.median(part.visible - part.taken)
        print(
            f"{phase.rate:8,} {p50:7.2f} {p99:7.2f} {latency.max():9.2f} {taken:14.2f} {refreshed:15.2f} {spent:15.2f}"
            f" {len(latency):8,}"
        )


def _draw(clicks: Clicks, phases: list[Phase], watch: ProcessorWatch, out: Path) -> None:
    """Latency and processor time, second by second."""
    begin = phases[0].begin
    latency: dict[str, list[tuple[float, float]]] = {"p50": [], "p99": []}
    for second in range(int(phases[-1].end - begin)):
        part = clicks.between(begin + second, begin + second + 1)
        if len(part.due):
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                latency[name].append((second, float(np.quantile(part.visible - part.due, share))))
    samples = [(at - begin, spent) for at, spent in watch.samples if begin <= at <= phases[-1].end]
    cores = [(at, (spent - last) / (at - before)) for (before, last), (at, spent) in pairwise(samples)]
    rates = ", then ".join(f"{phase.rate:,}" for phase in phases)
    panels = [
        Panel(f"seconds until visible, {rates} clicks a second", latency),
        Panel("processor seconds of the pipeline a second", {"processor": cores}),
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / "freshness.svg").write_text(svg(panels))
    with (out / "freshness.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("line", "second", "value"))
        for name, line in [*latency.items(), ("processor", cores)]:
            writer.writerows((name, f"{at:.1f}", f"{value:.3f}") for at, value in line)


if __name__ == "__main__":
    sys.exit(main())
