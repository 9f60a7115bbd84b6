"""A pipeline at work: its stream, its refreshes, its Spark session and its end."""
