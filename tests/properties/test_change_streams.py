"""Views over a change stream: read while a database table changes, cut and broken off at random, they are their own
SELECTs over that table.

The records are those that Debezium and Kafka Connect write: a snapshot, changes with and without schemas, tombstones,
keys that change, and all of it again from some place before, as after a connector's crash. The oracle is the table
itself, a dictionary. `STRANDLINE_CHANGE_EXAMPLES` says how many histories are run, `STRANDLINE_SEED` which.
"""

from __future__ import annotations

import base64
import json
import os
import random
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.settings import IngestSettings, Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.broken_drains import broken_drain

EXAMPLES: Final = int(os.environ.get("STRANDLINE_CHANGE_EXAMPLES", "4"))
_EACH: Final = 4
_TEXT: Final = """
    CREATE TABLE orders (id INT PRIMARY KEY, shop VARCHAR, price DECIMAL(12, 2), at TIMESTAMP)
      WITH (KAFKA_TOPIC = 'db.orders', PARTITIONS = {partitions}, VALUE_FORMAT = 'DEBEZIUM_JSON',
            DECIMAL_HANDLING = 'precise', TIME_PRECISION = 'microseconds');
    CREATE MATERIALIZED VIEW sales AS
      SELECT shop, COUNT(*) AS orders, SUM(price) AS total, MAX(at) AS last FROM orders GROUP BY shop;
"""

Row = tuple[str | None, Decimal, int]
"""shop, price, microseconds since 1970."""


class _Database:
    """A table and its connector, which may send again what it has sent."""

    def __init__(self, pick: random.Random) -> None:
        self.rows: dict[int, Row] = {}
        self.told: list[str] = []
        self._pick = pick
        self._wrapped_keys = pick.random() < 0.5
        """One converter writes all keys, so the bytes of a key are the same in each record."""
        self._sent: list[tuple[bytes | None, bytes | None]] = []
        self._full = pick.random() < 0.5
        """REPLICA IDENTITY FULL: `before` has the whole row, else its key at most."""

    def snapshot(self) -> None:
        """Every row as it is, read."""
        for number, row in self.rows.items():
            self._send(
                number, {"op": "r", "before": None, "after": _after(number, row), "source": {"snapshot": "true"}}
            )

    def change(self) -> None:
        """One statement of the database, and its records."""
        number = self._pick.randrange(6)
        row = self.rows.get(number)
        operation = self._pick.choice(["write", "write", "write", "delete", "move", "message", "again"])
        self.told.append(f"{operation} {number}")
        if operation == "again":
            for key, value in self._sent[self._pick.randrange(len(self._sent)) :] if self._sent else ():
                self._sent.append((key, value))
        elif operation == "message":
            self._sent.append((None, json.dumps({"op": "m", "message": {"prefix": "p", "content": ""}}).encode()))
        elif operation == "write":
            new = self._row()
            before = self._before(number, row) if row is not None else None
            self.rows[number] = new
            self._send(number, {"op": "c" if row is None else "u", "before": before, "after": _after(number, new)})
        elif row is not None:
            self._delete(number, row)
            if operation == "move":
                free = 10 + self._pick.randrange(3)
                self.rows[free] = row
                self._send(free, {"op": "c", "before": None, "after": _after(free, row)})

    def take(self) -> list[tuple[bytes | None, bytes | None]]:
        """All that was sent so far, in order."""
        return self._sent

    def _delete(self, number: int, row: Row) -> None:
        del self.rows[number]
        self._send(number, {"op": "d", "before": self._before(number, row), "after": None})
        if self._pick.random() < 0.7:
            self._sent.append((self._key(number), None))

    def _before(self, number: int, row: Row) -> dict[str, Any] | None:
        if self._full:
            return _after(number, row)
        return {"id": number, "shop": None, "price": None, "at": None} if self._pick.random() < 0.5 else None

    def _row(self) -> Row:
        cents = self._pick.choice([0, 1, -1, 127, 128, -129, 10**11 - 1, self._pick.randrange(10**6)])
        moment = self._pick.choice([0, -1, 1_700_000_000_000_000 + self._pick.randrange(10**6)])
        return self._pick.choice(["a", "b", None]), Decimal(cents).scaleb(-2), moment

    def _send(self, number: int, value: dict[str, Any]) -> None:
        value["ts_ms"] = 1
        if self._pick.random() < 0.3:
            value = {"schema": _SCHEMA, "payload": value}
        self._sent.append((self._key(number), json.dumps(value).encode()))

    def _key(self, number: int) -> bytes:
        key = {"id": number}
        return json.dumps({"schema": {}, "payload": key} if self._wrapped_keys else key).encode()


_ROW_FIELDS: Final = [
    {"type": "int32", "field": "id"},
    {"type": "string", "field": "shop"},
    {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}, "field": "price"},
    {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "field": "at"},
]
_SCHEMA: Final = {
    "type": "struct",
    "fields": [{"type": "struct", "fields": _ROW_FIELDS, "field": name} for name in ("before", "after")],
}


def _after(number: int, row: Row) -> dict[str, Any]:
    shop, price, moment = row
    unscaled = int(price * 100)
    size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    text = base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
    return {"id": number, "shop": shop, "price": text, "at": moment}


class _Example:
    """One history, and one lake that reads it."""

    def __init__(self, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pick = random.Random(seed)
        self._seed = seed
        self._database = _Database(self._pick)
        ingest = IngestSettings(max_rows_per_epoch=self._pick.choice([1, 3, 1_000_000]))
        self._settings = Settings(lake=folder, ingest=ingest)
        self._log = LocalLog(LakeLayout(self._settings.lake))
        self._monkeypatch = monkeypatch
        self._produced = 0
        self._time = 1_700_000_000_000

    def run(self) -> None:
        """Change, read, compare, some times. No record is broken, so there are no dead letters."""
        self._say(_TEXT.format(partitions=self._pick.choice([1, 2])))
        for _ in range(self._pick.randrange(5)):
            self._database.change()
        for _ in range(self._pick.randrange(1, 4)):
            if self._pick.random() < 0.3:
                self._database.snapshot()
            for _ in range(self._pick.randrange(1, 8)):
                self._database.change()
            self._produce()
            self._drain()
            self._compare()
        wrong = [check for check in verify(self._settings, deep=True) if check.ok is False]
        assert not wrong, self._about(str(wrong))

    def _produce(self) -> None:
        """Bring what was sent into the topic, at times that are not quite in order."""
        sent = self._database.take()
        for key, value in sent[self._produced :]:
            self._time += self._pick.randrange(-5, 20)
            self._log.produce("db.orders", [Record(key, value, self._time)])
        self._produced = len(sent)

    def _drain(self) -> None:
        if self._pick.random() < 0.3:
            self._break_off()
        drain(self._settings, "p", in_driver=True)

    def _break_off(self) -> None:
        place = broken_drain(self._settings, "p", self._pick, self._monkeypatch)
        if place is not None:
            self._database.told.append(f"broken off {place}")

    def _compare(self) -> None:
        letters = LakeLayout(self._settings.lake).table("orders__dead_letters")
        assert not letters.exists(), self._about(str(self._say("SELECT * FROM orders__dead_letters")))
        table = self._database.rows
        expected = Counter((number, *row) for number, row in table.items())
        assert self._asked("SELECT id, shop, price, UNIX_MICROS(at) FROM orders") == expected, self._about("orders")
        groups: dict[str | None, list[Row]] = defaultdict(list)
        for row in table.values():
            groups[row[0]].append(row)
        sales = Counter(
            (shop, len(rows), sum((price for _, price, _ in rows), Decimal(0)), max(moment for *_, moment in rows))
            for shop, rows in groups.items()
        )
        assert self._asked("SELECT shop, orders, total, UNIX_MICROS(last) FROM sales") == sales, self._about("sales")

    def _asked(self, query: str) -> Counter[tuple[Any, ...]]:
        (answer,) = self._say(query)
        return Counter(tuple(row) for row in answer.rows)

    def _say(self, text: str) -> list[Any]:
        return list(Interpreter(self._settings, "p").run(text))

    def _about(self, what: str) -> str:
        return f"seed {self._seed}: {what}: {'; '.join(self._database.told)}"


def _seed() -> int:
    said = os.environ.get("STRANDLINE_SEED", "0")
    return random.SystemRandom().randrange(1 << 30) if said == "anew" else int(said)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(-(-EXAMPLES // _EACH)))
def test_views_over_a_change_stream_are_their_selects_over_the_table(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _seed() * 1_000_003 + part * _EACH
    for seed in range(first, first + _EACH):
        _Example(seed, tmp_path / str(seed), monkeypatch).run()
