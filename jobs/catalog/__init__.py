"""The catalog of a lake: its definitions, and the files that hold them."""
