"""What is expected of rows: expectations, validated by Great Expectations, and the version up to which they hold."""
