"""A whole query as one plain SELECT: the recomputation that a maintained view must equal."""
