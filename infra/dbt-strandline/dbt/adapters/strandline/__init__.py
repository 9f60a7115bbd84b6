"""The adapter by which dbt writes to a lake of Strandline."""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.strandline.connections import StrandlineCredentials
from dbt.adapters.strandline.impl import StrandlineAdapter
from dbt.include import strandline

Plugin = AdapterPlugin(
    adapter=StrandlineAdapter,  # type: ignore[arg-type]
    credentials=StrandlineCredentials,
    include_path=strandline.PACKAGE_PATH,
)
