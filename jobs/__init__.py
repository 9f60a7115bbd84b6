"""Jobs: SQL, Spark, sources, queries. Everything that runs without Dagster."""
