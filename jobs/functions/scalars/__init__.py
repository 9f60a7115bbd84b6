"""The scalar functions, a file for each kind of value they work on."""
