"""The upkeep of a lake: what proves its tables, and mends them."""
