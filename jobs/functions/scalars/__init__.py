"""The scalar functions, a file for each type of value they work on."""
