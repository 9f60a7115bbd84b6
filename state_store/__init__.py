"""Delta tables and their changelogs: read at a version, changed by one commit per epoch, verified by a digest.

It knows nothing of SQL views or Dagster. Importing it starts neither a JVM nor a Delta reader.
"""
