"""The formats of records: one class each, for the key or the value of a source."""
