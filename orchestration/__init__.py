"""Dagster: the assets and jobs of the lake's pipelines. Drains run as child processes."""
