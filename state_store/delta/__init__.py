"""Delta tables without a Delta library: the log, its commits and checkpoints, the rows and changes of a version."""
