"""The lake's pipelines in another Dagster project: its assets, checks and jobs, to merge with the project's own.

defs = dagster.Definitions.merge(my_definitions, strandline.dagster.definitions())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model.settings import load_settings

if TYPE_CHECKING:
    import dagster

    from strandline.lake import Lake


def definitions(lake: Lake | None = None) -> dagster.Definitions:
    """The definitions of a lake, as they are when the code location loads; reload it after `strandline apply`.

    Args:
        lake: default: the one that the settings name. The processes that Dagster starts read the same settings from
            their environment: a lake that was opened by its path alone must be the setting's too.

    Raises:
        SettingsError: a setting is unknown or wrong.
    """
    from strandline.orchestration.definitions import build

    return build(lake.settings if lake is not None else load_settings())
