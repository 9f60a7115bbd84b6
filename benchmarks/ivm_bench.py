"""TPC-DI's warehouse as 45 views, in batches: the models of ivm-bench, as OpenIVM's repository has them in plain SQL.

    python -m benchmarks.ivm_bench OPENIVM [--customers 2000] [--batch 0.01]

OPENIVM is a checkout of github.com/ila/openivm. Its benchmark/queries/tpcdi holds the models, its
benchmark/src/tpcdi_helpers.cpp the tables that they read; both are read in place. The staging tables are Delta tables
that delta-rs writes, every model is a materialized view. One is respelled: the field of a STRUCT is `a->b` here.

The data are not those of ivm-bench, whose generator is TPC's DIGen (a program under TPC's licence): they are made here
by TPC-DI's rules, small. The first batch is history with NEW, UPDCUST and INACT of customers, fixed-width FINWIRE
lines, trades with two states each; a later one brings a share of it: customers and accounts that come and change,
trades, a day of prices, holdings, watches, cash and prospects. The states of all trades are there from the beginning,
since the models read those of the first batch alone.

Printed are the seconds of each batch, from the read of the Delta commits to the last view's commit, and of DuckDB as it
computes all models anew over the same tables; and whether each view has DuckDB's rows. TPC's rules forbid to compare
this with published results of TPC-DI.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
from deltalake import write_deltalake

from benchmarks.medallion import differing, example, pick, word
from strandline.jobs.model.definitions import View
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.pipeline import opened
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

PIPELINE: Final = "tpcdi"
AIM: Final = 5.0
BATCHES: Final = (1, 2, 3)
_LITERAL = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
_DDL = re.compile(rf"const char \*(\w+) =\s*{_LITERAL};")
_CREATE = re.compile(rf"con\.Query\((?:std::string\({_LITERAL}\) \+ (\w+)|{_LITERAL})\)")
_FIELDS = re.compile(r"\bCustomer((?:\.\w+)+)")
# DuckDB 2 takes no number for MD5, and a TIMESTAMP's text, which is hashed to a key, has another form there.
_FORMS: Final = (
    (re.compile(r"\bmd5\((\w+)\)"), r"md5(CAST(\1 AS VARCHAR))"),
    (re.compile(r"'\|' \|\| ((?:\w+\.)?effective_timestamp)"), r"'|' || strftime(\1, '%Y-%m-%dT%H:%M:%S.%g')"),
)
_BEGIN: Final = "TIMESTAMP '2015-01-01'"
# Of one customer.
_TRADES, _WATCHES, _CASH, _HOLDINGS, _PROSPECTS = 10, 5, 6, 5, 1
_DAYS: Final = 90


def padded(*parts: tuple[str, int]) -> str:
    """A line of FINWIRE: texts, each as wide as its field."""
    return " || ".join(f"rpad(CAST({text} AS VARCHAR), {width}, ' ')" for text, width in parts)


@dataclass(frozen=True)
class Sizes:
    """How many there are of what.

    Attributes:
        share: of what a later batch brings.
    """

    customers: int
    share: float

    @property
    def securities(self) -> int:
        return max(self.customers // 10, 10)

    @property
    def companies(self) -> int:
        return max(self.customers // 30, 5)

    @property
    def employees(self) -> int:
        return max(self.customers // 20, 5)

    def rows(self, table: str, batch: int) -> tuple[int, int]:
        """The numbers of a table's rows in a batch: the first, and the one past the last."""
        if table == "daily_market":
            first = self.securities * _DAYS
            return (
                (0, first)
                if batch == 1
                else (first + (batch - 2) * self.securities, first + (batch - 1) * self.securities)
            )
        each = {"trade": _TRADES, "watch_history": _WATCHES, "cash_transaction": _CASH, "holding_history": _HOLDINGS}
        first = self.customers * each.get(table, _PROSPECTS)
        step = max(int(first * self.share), 1)
        return (0, first) if batch == 1 else (first + (batch - 2) * step, first + (batch - 1) * step)


def columns(sizes: Sizes) -> dict[str, dict[str, str]]:
    """{table without its batch: {column: the value of row n, in DuckDB's words}}."""
    customer, symbol = f"(1 + {pick(sizes.customers, 1)})", f"('S' || {pick(sizes.securities, 2)})"
    at = f"{_BEGIN} + to_minutes(n * 7)"
    return {
        "trade": {
            "t_id": "'T' || n",
            "t_dts": at,
            "t_st_id": word({"CMPT": 8, "SBMT": 1, "CNCL": 1}, 3),
            "t_tt_id": word({"TMB": 4, "TMS": 3, "TLB": 2, "TSL": 1, "TLS": 1}, 4),
            "t_is_cash": f"{pick(5, 5)} > 0",
            "t_s_symb": symbol,
            "t_qty": f"1 + {pick(900, 6)}",
            "t_bid_price": f"5 + {pick(9_000, 7)} / 100.0",
            "t_ca_id": customer,
            "t_exec_name": f"'executor ' || {pick(40, 8)}",
            "t_trade_price": f"5 + {pick(9_000, 9)} / 100.0",
            "t_chrg": f"{pick(400, 10)} / 100.0",
            "t_comm": f"{pick(900, 11)} / 100.0",
            "t_tax": f"{pick(500, 12)} / 100.0",
        },
        "daily_market": {
            "dm_date": f"DATE '2015-06-01' + CAST(n // {sizes.securities} AS INT)",
            "dm_s_symb": f"'S' || (n % {sizes.securities})",
            "dm_close": f"20 + {pick(4_000, 13)} / 100.0",
            "dm_high": f"61 + {pick(4_000, 14)} / 100.0",
            "dm_low": f"1 + {pick(1_900, 15)} / 100.0",
            "dm_vol": f"100 + {pick(90_000, 16)}",
        },
        "holding_history": {
            "hh_h_t_id": f"'T' || (n * {_TRADES} // {_HOLDINGS})",
            "hh_t_id": f"'T' || (n * {_TRADES} // {_HOLDINGS})",
            "hh_before_qty": f"{pick(300, 17)}",
            "hh_after_qty": f"{pick(300, 18)}",
        },
        "watch_history": {
            "w_c_id": f"1 + (n // 2) % {sizes.customers}",
            "w_s_symb": f"'S' || ((n // 2) // {sizes.customers} * 7 + (n // 2)) % {sizes.securities}",
            "w_dts": at,
            "w_action": "CASE WHEN n % 2 = 0 THEN 'ACTV' ELSE 'CNCL' END",
        },
        "cash_transaction": {
            "ct_ca_id": customer,
            "ct_dts": at,
            "ct_amt": f"({pick(200_000, 19)} - 100000) / 100.0",
            "ct_name": f"'cash ' || {pick(90, 20)}",
        },
        "prospect": {
            "agencyid": "'A' || n",
            "lastname": f"'last ' || (1 + n % {sizes.customers})",
            "firstname": f"'first ' || (1 + n % {sizes.customers})",
            **dict.fromkeys(("middleinitial", "gender"), "'F'"),
            "addressline1": f"'street ' || (1 + n % {sizes.customers})",
            "addressline2": "''",
            "postalcode": f"CAST(10000 + n % {sizes.customers} AS VARCHAR)",
            **{"city": "'Oslo'", "state": "'OS'", "country": "'NO'", "phone": "'1'"},
            "income": f"{pick(200_000, 21)}",
            "numbercars": f"{pick(4, 22)}",
            "numberchildren": f"{pick(5, 23)}",
            "maritalstatus": word({"S": 1, "M": 1, "D": 1}, 24),
            "age": f"18 + {pick(80, 25)}",
            "creditrating": f"300 + {pick(550, 26)}",
            "ownorrentflag": word({"O": 1, "R": 1}, 27),
            "employer": f"'employer ' || {pick(90, 28)}",
            "numbercreditcards": f"{pick(9, 29)}",
            "networth": f"{pick(2_000_000, 30)}",
        },
        "customer": {
            "cdc_dsn": "1483228800 + n * 60",
            "cdc_flag": "CASE WHEN n % 2 = 0 THEN 'I' ELSE 'U' END",
            "customerid": f"CASE WHEN n % 2 = 0 THEN {sizes.customers} + 1 + n ELSE {customer} END",
            "taxid": "'tax ' || n",
            "gender": word({"F": 1, "M": 1}, 31),
            "tier": f"1 + {pick(3, 32)}",
            "dob": f"DATE '1950-01-01' + CAST({pick(18_000, 33)} AS INT)",
            "lastname": "'last ' || n",
            "firstname": "'first ' || n",
            "middleinitial": "'M'",
            "addressline1": "'street ' || n",
            **{"addressline2": "''", "postalcode": "'10000'", "city": "'Oslo'", "stateprov": "'OS'", "country": "'NO'"},
            **{"email1": "'c' || n || '@example.org'", "email2": "NULL"},
            **{f"c_{each}_{number}": "'1'" for number in (1, 2, 3) for each in ("ctry", "area", "local", "ext")},
            **{"lcl_tx_id": "'TX1'", "nat_tx_id": "'TX2'"},
        },
        "account": {
            "cdc_dsn": "1483228800 + n * 60 + 7",
            "cdc_flag": "CASE WHEN n % 2 = 0 THEN 'I' ELSE 'U' END",
            "ca_c_id": f"CASE WHEN n % 2 = 0 THEN {sizes.customers} + 1 + n ELSE {customer} END",
            "accountid": f"CASE WHEN n % 2 = 0 THEN {sizes.customers} + 1 + n ELSE {customer} END",
            "taxstatus": f"{pick(3, 34)}",
            "ca_b_id": f"1 + {pick(sizes.employees, 35)}",
            "accountdesc": "'account ' || n",
        },
    }


def fixed(sizes: Sizes) -> dict[str, tuple[int, dict[str, str]]]:
    """{table of the first batch alone: (its rows, their columns)}."""
    day = "(DATE '2015-01-01' + CAST(n AS INT))"
    phone = "struct_pack(C_CTRY_CODE := '1', C_AREA_CODE := '2', C_LOCAL := '3', C_EXT := NULL::VARCHAR)"
    number = f"(1 + n % {sizes.customers})"
    new = f"n < {sizes.customers}"
    trades = int(sizes.rows("trade", 3)[1])
    listed = {
        "status_type": {
            "ACTV": "Active",
            "CMPT": "Completed",
            "CNCL": "Canceled",
            "SBMT": "Submitted",
            "INAC": "Inactive",
        },
        "trade_type": {
            "TMB": "Market Buy",
            "TMS": "Market Sell",
            "TSL": "Stop Loss",
            "TLS": "Limit Sell",
            "TLB": "Limit Buy",
        },
    }
    words = {
        name: (
            len(of),
            {f"{name[0] + name.partition('_')[2][0]}_id" if name != "status_type" else "st_id": _nth(list(of))}
            | {f"{'st' if name == 'status_type' else 'tt'}_name": _nth(list(of.values()))},
        )
        for name, of in listed.items()
    }
    companies, securities = sizes.companies, sizes.securities
    cmp = padded(
        ("''", 18),
        ("'company ' || k", 60),
        ("100000 + k", 10),
        ("'ACTV'", 4),
        ("'I' || (k % 3)", 2),
        ("'A+'", 4),
        ("'19800101'", 8),
        ("'street ' || k", 80),
        ("''", 80),
        ("'10000'", 12),
        ("'Oslo'", 25),
        ("'OS'", 20),
        ("'NO'", 24),
        ("'ceo ' || k", 46),
        ("'description ' || k", 150),
    )
    sec = padded(
        ("''", 18),
        ("'S' || k", 15),
        ("'COMMON'", 6),
        ("'ACTV'", 4),
        ("'security ' || k", 70),
        ("'NYSE'", 6),
        ("1000 + k", 13),
        ("'20000101'", 8),
        ("'20000103'", 8),
        ("'1.5'", 12),
        (f"100000 + k % {companies}", 60),
    )
    fin = padded(
        ("''", 18),
        ("2014 + k % 2", 4),
        ("1 + k % 4", 1),
        ("(2014 + k % 2) || '0101'", 8),
        ("(2014 + k % 2) || '0215'", 8),
        ("1000 + k * 3", 17),
        ("100 + k", 17),
        ("'1.25'", 12),
        ("'1.20'", 12),
        ("'0.15'", 12),
        ("500 + k", 17),
        ("2000 + k", 17),
        ("800 + k", 17),
        ("'10000'", 13),
        ("'10000'", 13),
        (f"100000 + k // 8 % {companies}", 60),
    )
    kind = f"CASE WHEN n < {companies} THEN 'CMP' WHEN n < {companies + securities} THEN 'SEC' ELSE 'FIN' END"
    both = companies + securities
    place = f"CASE WHEN n < {companies} THEN n WHEN n < {both} THEN n - {companies} ELSE n - {both} END"
    placed = f"FROM (SELECT {place} AS k)"
    return {
        **words,
        "tax_rate": (2, {"tx_id": "'TX' || (n + 1)", "tx_name": "'tax ' || n", "tx_rate": "0.05 * (n + 1)"}),
        "industry": (3, {"in_id": "'I' || n", "in_name": "'industry ' || n", "in_sc_id": "'SC' || n"}),
        "hr": (
            sizes.employees,
            {
                **{"employeeid": "n + 1", "managerid": "1"},
                **{
                    f"employee{each}": f"'{each} ' || n"
                    for each in ("firstname", "lastname", "mi", "branch", "office", "phone")
                },
                "employeejobcode": "'314'",
            },
        ),
        "date": (
            1_200,
            {
                "sk_dateid": f"CAST(strftime({day}, '%Y%m%d') AS BIGINT)",
                "datevalue": day,
                "datedesc": f"strftime({day}, '%d.%m.%Y')",
                **{f"{each}yearid": f"year({day})" for each in ("calendar", "fiscal")},
                **{f"{each}yeardesc": f"'year ' || year({day})" for each in ("calendar", "fiscal")},
                **{f"{each}qtrid": f"year({day}) * 10 + quarter({day})" for each in ("calendar", "fiscal")},
                **{f"{each}qtrdesc": f"'quarter ' || quarter({day})" for each in ("calendar", "fiscal")},
                **{"calendarmonthid": f"month({day})", "calendarmonthdesc": f"monthname({day})"},
                **{"calendarweekid": f"week({day})", "calendarweekdesc": f"'week ' || week({day})"},
                **{"dayofweeknum": f"isodow({day})", "dayofweekdesc": f"dayname({day})", "holidayflag": "n % 50 = 0"},
            },
        ),
        "trade_history": (
            2 * trades,
            {
                "th_t_id": "'T' || (n // 2)",
                "th_dts": f"{_BEGIN} + to_minutes((n // 2) * 7 + (n % 2) * 3)",
                "th_st_id": "CASE WHEN n % 2 = 0 THEN 'SBMT' ELSE 'CMPT' END",
            },
        ),
        "finwire": (
            companies + securities + 8 * companies,
            {
                "pts": "TIMESTAMP '2014-01-01' + to_minutes(n)",
                "rec_type": kind,
                "line": f"(SELECT CASE {kind} WHEN 'CMP' THEN {cmp} WHEN 'SEC' THEN {sec} ELSE {fin} END {placed})",
            },
        ),
        "customer_mgmt": (
            int(sizes.customers * 1.2),
            {
                "_ActionTS": "TIMESTAMP '2014-06-01' + to_minutes(n * 3)",
                "_ActionType": f"CASE WHEN {new} THEN 'NEW' WHEN n % 5 = 0 THEN 'INACT' ELSE 'UPDCUST' END",
                "Customer": f"""struct_pack(
                    _C_ID := {number}, _C_TAX_ID := 'tax ' || n, _C_GNDR := 'F', _C_TIER := CAST(1 + n % 3 AS VARCHAR),
                    _C_DOB := DATE '1960-01-01' + CAST(n % 9000 AS INT),
                    "Name" := struct_pack(
                        C_L_NAME := 'last ' || {number}, C_F_NAME := 'first ' || {number}, C_M_NAME := 'M'),
                    Address := struct_pack(C_ADLINE1 := 'street ' || {number}, C_ADLINE2 := '',
                        C_ZIPCODE := CAST(10000 + {number} AS VARCHAR), C_CITY := 'Oslo', C_STATE_PROV := 'OS',
                        C_CTRY := 'NO'),
                    ContactInfo := struct_pack(C_PRIM_EMAIL := 'c' || n || '@example.org', C_ALT_EMAIL := NULL::VARCHAR,
                        C_PHONE_1 := {phone}, C_PHONE_2 := {phone}, C_PHONE_3 := {phone}),
                    TaxInfo := struct_pack(C_LCL_TX_ID := 'TX1', C_NAT_TX_ID := 'TX2'),
                    Account := struct_pack(_CA_ID := CASE WHEN {new} THEN {number} END, _CA_TAX_ST := '1',
                        CA_B_ID := 1 + n % {sizes.employees}, CA_NAME := 'account ' || {number}))""",
            },
        ),
    }


def _nth(words: list[str]) -> str:
    return f"list_extract({words!r}, CAST(n + 1 AS INT))"


@dataclass
class Staging:
    """The tables that the models read, as DuckDB has them and as Delta tables that another writer keeps."""

    folder: Path
    sizes: Sizes
    schema: Mapping[str, str]
    db: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)

    def begin(self) -> None:
        """All tables, empty."""
        self.db.execute("SET TimeZone = 'UTC'")
        for table, statement in self.schema.items():
            self.db.execute(statement)
            feed = {"delta.enableChangeDataFeed": "true"}
            write_deltalake(str(self.folder / table), self._arrow(table), configuration=feed)

    def come(self, batch: int) -> int:
        """The rows of a batch, in one commit of each table; how many."""
        made = {
            f"batch{batch}_{name}": (self.sizes.rows(name, batch), each) for name, each in columns(self.sizes).items()
        }
        if batch == 1:
            made |= {f"batch1_{name}": ((0, count), each) for name, (count, each) in fixed(self.sizes).items()}
        rows = 0
        for table, ((first, past), each) in made.items():
            if table not in self.schema:
                continue
            listed = ", ".join(f'{text} AS "{name}"' for name, text in each.items())
            self.db.execute(f"INSERT INTO {table} BY NAME SELECT {listed} FROM range({first}, {past}) AS rows(n)")
            write_deltalake(str(self.folder / table), self._arrow(table), mode="append")
            rows += past - first
        return rows

    def _arrow(self, table: str) -> pa.Table:
        """The rows, with instants for TIMESTAMPs, which have no zone in DuckDB."""
        found = self.db.sql(f"FROM {table}")
        stamps = [name for name, of in zip(found.columns, found.types, strict=True) if str(of) == "TIMESTAMP"]
        changed = ", ".join(f'"{name}"::TIMESTAMPTZ AS "{name}"' for name in stamps)
        return self.db.sql(f"SELECT * {f'REPLACE ({changed})' if stamps else ''} FROM {table}").to_arrow_table()

    def recomputed(self, models: Mapping[str, str]) -> float:
        """Compute all models anew; the seconds."""
        began = time.monotonic()
        for name, text in models.items():
            for form, ours in _FORMS:
                text = form.sub(ours, text)
            self.db.execute(f"CREATE OR REPLACE TABLE {name} AS {text}")
        return time.monotonic() - began


def read_models(folder: Path) -> dict[str, str]:
    """{model: its SELECT}, those that it reads first."""
    files = sorted((folder / "benchmark/queries/tpcdi").glob("tpcdi_query*.sql"))
    todo = {each.stem.split("_", 2)[2]: re.sub(r"(?m)^\s*--.*$", "", each.read_text()) for each in files}
    found: dict[str, str] = {}
    while todo:
        reads = {name: set(re.findall(r"\w+", text)) - {name} for name, text in todo.items()}
        ready = [name for name in todo if not reads[name] & todo.keys()]
        if not ready:
            raise SystemExit(f"the models {sorted(todo)} read each other in a circle")
        found |= {name: todo.pop(name) for name in ready}
    return found


def read_schema(folder: Path, models: Mapping[str, str]) -> dict[str, str]:
    """{table: its CREATE TABLE}, of those that are no models themselves."""
    source = (folder / "benchmark/src/tpcdi_helpers.cpp").read_text().partition("// InsertTPCDIData")[0]
    lists = {name: _text(literals) for name, literals in _DDL.findall(source)}
    made = [_text(begin) + lists[name] if name else _text(whole) for begin, name, whole in _CREATE.findall(source)]
    tables = {each.split("(")[0].split()[-1]: each for each in made}
    return {name: each for name, each in tables.items() if name not in models}


def _text(literals: str) -> str:
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"')


def main() -> None:
    """Make the staging tables, play the batches, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("openivm", type=Path)
    parser.add_argument("--customers", type=int, default=2_000)
    parser.add_argument("--batch", type=float, default=0.01, help="what a later batch brings of the first")
    asked = parser.parse_args()
    models = read_models(asked.openivm)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        staging = Staging(folder / "staging", Sizes(asked.customers, asked.batch), read_schema(asked.openivm, models))
        staging.begin()
        wrong = play(folder / "lake", staging, models)
    print(f"all {len(models)} views have DuckDB's rows after each batch" if not wrong else f"WRONG: {wrong}")
    raise SystemExit(bool(wrong))


def play(lake: Path, staging: Staging, models: Mapping[str, str]) -> list[str]:
    """Play the batches; the views that are wrong after one."""
    settings = load_settings(lake=lake, engine="duckdb", ingest={"driver_rows": 2_000_000})
    interpreter = Interpreter(settings, PIPELINE)
    for table in staging.schema:
        list(interpreter.run(f"CREATE TABLE {table} WITH (DELTA = '{staging.folder}/{table}');"))
    for name, text in models.items():
        text = _FIELDS.sub(lambda found: "Customer" + found[1].replace(".", "->"), text)
        list(interpreter.run(f"CREATE MATERIALIZED VIEW {name} AS {text};"))
    wrong = []
    print(f"{'batch':>5}{'rows':>10}{'Strandline s':>14}{'of a processor':>16}{'DuckDB anew s':>15}", flush=True)
    with opened(settings, PIPELINE, None, in_driver=True) as (run, _):
        for batch in BATCHES:
            rows = staging.come(batch)
            began, used = time.monotonic(), time.process_time()
            run.drain(in_driver=True)
            spent, used = time.monotonic() - began, time.process_time() - used
            if run.failures:
                raise next(iter(run.failures.values()))
            anew = staging.recomputed(models)
            print(f"{batch:>5}{rows:>10,}{spent:>14.2f}{used:>16.2f}{anew:>15.2f}", flush=True)
            wrong += [f"batch {batch}: {each}" for each in compare(interpreter, staging.db)]
    return wrong


def compare(interpreter: Interpreter, db: duckdb.DuckDBPyConnection) -> list[str]:
    """The views that have not DuckDB's rows."""
    wrong = []
    for view in (each for each in interpreter.catalog.pipeline(PIPELINE) if isinstance(each, View)):
        names = [f'"{column.name}"' for column in view.columns]
        db.register("ours", reader.read_rows(interpreter.lake.table(view.name)))
        numbers = {f'"{each.name}"' for each in view.columns if each.type.base.value in ("DECIMAL", "DOUBLE")}
        count = differing(db, view.name, names, numbers)
        if count:
            wrong.append(f"{view.name}: {count} rows")
            print(f"{view.name} has, and DuckDB has not: {example(db, names, numbers)}", flush=True)
        db.unregister("ours")
    return wrong


if __name__ == "__main__":
    main()
