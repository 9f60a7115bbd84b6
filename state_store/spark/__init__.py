"""Tables in a Spark session: rows, changes and commits, computed by Spark."""
