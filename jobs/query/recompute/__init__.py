"""A whole query as one plain SELECT: the batch recomputation that a maintained view must equal."""
