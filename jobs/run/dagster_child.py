"""The child process that Dagster starts to drain a pipeline: `python -m strandline.jobs.run.dagster_child PIPELINE`.

It runs the same drain as `strandline run`, then reports each selected asset through Dagster Pipes. The parent names
the table of each asset, and the version that Dagster was told last, in the session's extras under `tables`:

    {"projections/locations": {"table": "locations", "role": "projection", "told": 3}, …}

Rows are counted from that version on, so that those of a drain that was killed after its commit are not lost.

Nothing is reported before the drain has succeeded: an asset turns green only with its numbers.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from strandline.jobs.model.report import counted_since
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.orphans import hold_lifeline
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster_pipes import PipesContext, PipesMetadataValue

    from strandline.jobs.model.report import RunReport, TableReport
    from strandline.jobs.model.settings import Settings

EXIT_FAILED = 1
EXIT_USAGE = 2

_CHANGELOG = "changelog"


def main(arguments: list[str]) -> int:
    """Drain the pipeline named by the only argument and report to Dagster.

    Returns:
        The exit code: 0, `EXIT_FAILED` when the drain failed, `EXIT_USAGE` when called wrongly.
    """
    if len(arguments) != 1:
        print("usage: python -m strandline.jobs.run.dagster_child PIPELINE", file=sys.stderr)
        return EXIT_USAGE
    hold_lifeline()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        try:
            settings = load_settings()
            report = _drain(settings, arguments[0])
            report_run(pipes, report, LakeLayout(settings.lake))
        except StrandlineError as error:
            pipes.report_custom_message({"error": error.attrs()})
            print(error, file=sys.stderr)
            return EXIT_FAILED
    return 0


def _drain(settings: Settings, pipeline: str) -> RunReport:
    from strandline.jobs.run.pipeline import drain

    return drain(settings, pipeline)


def report_run(pipes: PipesContext, report: RunReport, lake: LakeLayout) -> None:
    """Report one materialization for each selected asset, then the run as a whole.

    Pipes takes one materialization per asset and session, so this is called once, at the end. A table without a commit
    is up to date too, and empty: it has had no input yet (or no record was broken).
    """
    tables = {table.name: table for table in report.tables}
    selected: Mapping[str, Mapping[str, Any]] = pipes.extras["tables"]
    for asset in pipes.asset_keys:
        role = selected[asset]["role"]
        table = tables.get(selected[asset]["table"])
        if table is not None:
            table = counted_since(table, lake.table(table.name), selected[asset].get("told"))
            metadata = table_metadata(table, role, report.held.get(table.name))
            pipes.report_asset_materialization(
                asset_key=asset, metadata=metadata, data_version=data_version(table, role)
            )
        else:
            pipes.report_asset_materialization(
                asset_key=asset, metadata={"dagster/row_count": 0, "reason": "no commit yet: nothing has come"}
            )
    pipes.report_custom_message(
        {"report": {"pipeline": report.pipeline, "epochs": report.epochs, "seconds": report.seconds}}
    )


def table_metadata(
    table: TableReport, role: str, held: str | None = None
) -> dict[str, int | float | str | PipesMetadataValue]:
    """The metadata that Dagster shows of a table. Labels must not change: Dagster plots each label over time.

    A changelog is the same Delta table read as changes, so its rows and bytes are not repeated; it counts changes.

    Args:
        held: what is wrong with its newest rows, from which nothing is computed.
    """
    metadata: dict[str, int | float | str | PipesMetadataValue] = {
        "delta version": table.version,
        "epoch": table.epoch,
        "batch seconds": float(table.seconds),
        "rows inserted": table.inserted,
        "rows deleted": table.deleted,
        "digest": table.digest,
    }
    if table.inserted or table.deleted:
        metadata |= {"mode": table.mode, "reason": table.reason}
    else:
        metadata["outcome"] = f"no row changed; epoch {table.epoch} was the last"
    if role == _CHANGELOG:
        metadata["changes"] = table.inserted + table.deleted
    else:
        metadata["dagster/row_count"] = table.rows
        metadata["dagster/size_bytes"] = table.bytes
    if held is not None:
        metadata["what reads it waits"] = held
    if table.late is not None:
        metadata["late rows"] = table.late
    if table.early:
        metadata["early events"] = "; ".join(each.in_words(each.table) for each in table.early)
    if table.seconds > 0:
        metadata["rows per second"] = round((table.inserted + table.deleted) / table.seconds, 1)
    if table.vector:
        metadata["version vector"] = _markdown_vector(table.vector)
        metadata["version vector (json)"] = {"type": "json", "raw_value": dict(table.vector)}
    if table.offsets:
        metadata["source offsets"] = {"type": "json", "raw_value": {t: dict(p) for t, p in table.offsets.items()}}
    return metadata


def data_version(table: TableReport, role: str) -> str | None:
    """The data version of an asset: a table's digest, so that equal rows give equal versions.

    A changelog grows with every commit, so its data version is that of the commit.
    """
    if role == _CHANGELOG:
        return str(table.version)
    return table.digest or None


def _markdown_vector(vector: Mapping[str, int]) -> PipesMetadataValue:
    lines = [
        "| input | version |",
        "| --- | ---: |",
        *(f"| `{name}` | {version} |" for name, version in vector.items()),
    ]
    return {"type": "md", "raw_value": "\n".join(lines)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
